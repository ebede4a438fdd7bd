"""The peers by the names that the command line takes: ours, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core.plugins import Offers
from tilewright.measure.peers.base import Peer, ProcessPeer

GROUP = "tilewright.peers"
_FOLDER = "tilewright.measure.peers"


def onnxruntime_peer() -> Peer:
    """ONNX Runtime on its CPU provider with all graph optimisations."""
    return ProcessPeer(
        name="onnxruntime",
        package="onnxruntime",
        module=f"{_FOLDER}.onnxruntime_engine",
    )


def openvino_peer() -> Peer:
    """OpenVINO's CPU plug-in, tuned for latency."""
    return ProcessPeer(name="openvino", package="openvino", module=f"{_FOLDER}.openvino_engine")


def torch_peer() -> Peer:
    """PyTorch without its compiler, on our graph of the model: eager operators one by one."""
    return ProcessPeer(name="torch eager", package="torch", module=f"{_FOLDER}.torch_engine")


def compiled_torch_peer() -> Peer:
    """PyTorch with its compiler and frozen weights; compiling takes tens of seconds."""
    module = f"{_FOLDER}.torch_compiled_engine"
    return ProcessPeer(name="torch compiled", package="torch", module=module)


PeerMaker = Callable[[], Peer]

PEERS = Offers[PeerMaker](
    GROUP,
    kind="peer",
    built_in={
        "onnxruntime": onnxruntime_peer,
        "openvino": openvino_peer,
        "torch": torch_peer,
        "torch_compiled": compiled_torch_peer,
    },
    needs=("__call__",),
)
"""What makes each peer, by name."""


def make_peer(name: str) -> Peer:
    """The peer called `name`, not started; raises UsageError for a name that is not known,
    PluginError where a package offers it that is broken."""
    return PEERS.named(name)()
