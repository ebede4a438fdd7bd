"""CUDA code of workloads, made and read in a process of its own; nothing runs on a GPU."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tilewright.core.errors import ModelError
from tilewright.core.gpus import CudaCode, Gpu
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.graph.workload import Workload

WORKER = "tilewright.measure.cuda_worker"
_TIMEOUT_S = 300.0


class CudaInspector:
    """Makes CUDA code for one GPU. Use it as a context manager."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._child = Child(WORKER)

    def __enter__(self) -> Self:
        self._child.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.__exit__(kind, value, trace)

    def code(self, workload: Workload, *, compiled: bool = True) -> CudaCode:
        """A workload in TVM's default schedule; `compiled` asks NVIDIA's compiler, too.

        Raises ModelError where TVM makes no code of it.
        """
        request = ("code", workload.text, self._gpu.target, compiled)
        try:
            return self._child.request(request, _TIMEOUT_S)
        except (RemoteError, ChildError) as error:
            raise ModelError(f"no CUDA code could be made of {workload.key}: {error}") from error
