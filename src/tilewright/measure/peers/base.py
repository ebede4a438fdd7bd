"""What a peer is, engines that run in a child process, and the peers by the names that the command
line takes: ours, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import TargetError
from tilewright.core.plugins import Offers
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.kernels.cuda.base import CUDA

Tensor = npt.NDArray[np.generic]
Tensors = dict[str, Tensor]
PrecisionRequest = Literal["fp32", "fp16", "default"]
"""`fp32` forbids lower precision inside, `fp16` asks for that where an engine can be asked for it;
`default` lets the engine do as it does by itself."""
_CPU = "cpu"
_ONLY_FP32 = {"NVIDIA_TF32_OVERRIDE": "0"}
"""No library of NVIDIA's computes float32 in tf32, whatever an engine asks it for."""

START_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 300.0


class EngineRefused(TargetError):
    """The engine is there and works, and says that it cannot run this model."""


class Peer(Protocol):
    """An engine that runs ONNX models, asleep except while one of its methods runs.

    After `start`, `precision` is what the engine computes in: fp32, tf32, bf16, fp16 or int8.
    """

    name: str
    """The engine's name in tables."""
    precision: str
    """What the engine computes in; what was asked for until it started."""
    package: str
    """The Python package it needs."""

    def available(self) -> str | None:
        """None when the peer can be used here, else the reason why not."""
        ...

    def start(
        self,
        model_path: Path,
        threads: int,
        cpus: Sequence[int],
        precision: PrecisionRequest = "fp32",
    ) -> None:
        """Load a model onto `cpus`; raises `TargetError` when the engine cannot."""

    def run(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """The outputs by their ONNX names."""
        ...

    def time(self, inputs: Mapping[str, Tensor], repeats: int, warmup: int) -> list[float]:
        """Seconds of each of `repeats` calls, in order, after `warmup` untimed ones."""
        ...

    def stop(self) -> None:
        """End the engine's process; harmless when it does not run."""


@runtime_checkable
class InSeveralWays(Protocol):
    """A peer that has tried how it is fastest."""

    mode: str
    """How it computes, in words, once it has started; empty where there is but one way."""


def mode_of(peer: Peer) -> str:
    """In which of several ways a started peer computes; empty where there is but one."""
    return peer.mode if isinstance(peer, InSeveralWays) else ""


class ProcessPeer:
    """A peer whose engine lives in a child process.

    `package` is the importable package that must be there; `module` the child's code, which
    serves an `Engine` that computes on the CPU, `modules` that for other kinds of processors. The
    peer computes on a processor of `kind`, which `environment` may choose among several.
    """

    def __init__(
        self, *, name: str, package: str, module: str = "", modules: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.precision = "fp32"
        self.mode = ""
        self.package = package
        self.kind = _CPU
        self._environment: Mapping[str, str] = {}
        self._modules = {**({_CPU: module} if module else {}), **(modules or {})}
        self._child: Child | None = None

    def place(self, kind: str, environment: Mapping[str, str]) -> None:
        """Have it compute on another kind of processor from the next start on; the environment is
        that of its process."""
        self.kind, self._environment = kind, environment

    def available(self) -> str | None:
        """None when the engine's package is installed and computes on such processors, else why it
        cannot be used."""
        if self.kind not in self._modules:
            kinds = " and ".join(self._modules)
            return f"it computes on processors of the kind {kinds}, not {self.kind}"
        found = find_spec(self.package) is not None
        return None if found else f"the Python package {self.package} is not installed"

    def start(
        self,
        model_path: Path,
        threads: int,
        cpus: Sequence[int],
        precision: PrecisionRequest = "fp32",
    ) -> None:
        """Load a model with `threads` threads on the first as many of `cpus`.

        Raises `TargetError` when the engine is missing or refuses the model.
        """
        reason = self.available()
        if reason is not None:
            raise TargetError(f"{self.name} cannot be used: {reason}")
        self.stop()
        self.precision = precision
        only = _ONLY_FP32 if precision == "fp32" else {}
        self._child = Child(
            self._modules[self.kind],
            environment={"OMP_NUM_THREADS": str(threads), **self._environment, **only},
            cpus=tuple(cpus)[:threads],
        )
        self.precision, self.mode = self._ask(
            ("start", str(Path(model_path).resolve()), threads, precision), START_TIMEOUT_S
        )

    def run(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """The outputs by name; raises `TargetError` when the engine fails."""
        return self._ask(("run", dict(inputs)), RUN_TIMEOUT_S)

    def time(self, inputs: Mapping[str, Tensor], repeats: int, warmup: int) -> list[float]:
        """Seconds per call; returns once the engine's threads have stopped spinning."""
        return self._ask(("time", dict(inputs), repeats, warmup), RUN_TIMEOUT_S)

    def stop(self) -> None:
        """End the engine's process."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _ask(self, message: tuple[object, ...], timeout_s: float) -> Any:
        if self._child is None:
            raise TargetError(f"{self.name} has not been started")
        try:
            return self._child.request(message, timeout_s)
        except (RemoteError, ChildError) as error:
            self.stop()
            refused = isinstance(error, RemoteError)
            raise (EngineRefused if refused else TargetError)(
                f"{self.name} failed: {error}"
            ) from error


PeerMaker = Callable[[], Peer]

_HERE = "tilewright.measure.peers."
_BUILT_IN: dict[str, tuple[str, str, dict[str, str]]] = {
    # ONNX Runtime on its CPU or CUDA provider with all graph optimisations
    "onnxruntime": (
        "onnxruntime",
        "onnxruntime",
        {_CPU: "onnxruntime_engine", CUDA: "onnxruntime_gpu_engine"},
    ),
    # OpenVINO's CPU plug-in, tuned for latency
    "openvino": ("openvino", "openvino", {_CPU: "openvino_engine"}),
    # PyTorch without its compiler, on our graph of the model: eager operators one by one
    "torch": ("torch eager", "torch", {_CPU: "torch_engine", CUDA: "torch_gpu_engine"}),
    # PyTorch with its compiler and frozen weights; compiling takes tens of seconds
    "torch_compiled": (
        "torch compiled",
        "torch",
        {_CPU: "torch_compiled_engine", CUDA: "torch_compiled_gpu_engine"},
    ),
    # JAX, on our graph of the model, which XLA compiles as a whole
    "jax": ("JAX", "jax", {CUDA: "jax_engine"}),
    # TensorRT, which times its kernels while it builds: tens of seconds
    "tensorrt": ("TensorRT", "tensorrt", {CUDA: "tensorrt_engine"}),
}
"""The engine's name in tables, its package, and what its process runs on each kind of processor."""

PEERS = Offers[PeerMaker](
    "tilewright.peers",
    kind="peer",
    built_in={
        name: partial(
            ProcessPeer,
            name=shown,
            package=package,
            modules={kind: _HERE + module for kind, module in modules.items()},
        )
        for name, (shown, package, modules) in _BUILT_IN.items()
    },
    needs=("__call__",),
)
"""What makes each peer, by name."""


def make_peer(name: str) -> Peer:
    """The peer called `name`, not started; raises UsageError for a name that is not known,
    PluginError where a package offers it that is broken."""
    return PEERS.named(name)()
