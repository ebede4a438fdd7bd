"""The peers by the names that the command line takes: ours, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilewright.core.plugins import Offers
from tilewright.measure.peers.base import Peer, ProcessPeer

GROUP = "tilewright.peers"

PeerMaker = Callable[[], Peer]

_BUILT_IN = {
    # ONNX Runtime on its CPU provider with all graph optimisations
    "onnxruntime": ("onnxruntime", "onnxruntime", "onnxruntime_engine"),
    # OpenVINO's CPU plug-in, tuned for latency
    "openvino": ("openvino", "openvino", "openvino_engine"),
    # PyTorch without its compiler, on our graph of the model: eager operators one by one
    "torch": ("torch eager", "torch", "torch_engine"),
    # PyTorch with its compiler and frozen weights; compiling takes tens of seconds
    "torch_compiled": ("torch compiled", "torch", "torch_compiled_engine"),
}
"""The engine's name in tables, its package, and what its process runs."""

PEERS = Offers[PeerMaker](
    GROUP,
    kind="peer",
    built_in={
        name: partial(
            ProcessPeer, name=shown, package=package, module=f"tilewright.measure.peers.{module}"
        )
        for name, (shown, package, module) in _BUILT_IN.items()
    },
    needs=("__call__",),
)
"""What makes each peer, by name."""


def make_peer(name: str) -> Peer:
    """The peer called `name`, not started; raises UsageError for a name that is not known,
    PluginError where a package offers it that is broken."""
    return PEERS.named(name)()
