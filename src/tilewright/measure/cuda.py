"""CUDA code of workloads, made and read in a process of its own; nothing runs on a GPU."""

from __future__ import annotations

from tilewright.core.errors import ModelError
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaCode, Gpu
from tilewright.measure.kernels import WORKER

_TIMEOUT_S = 300.0


class CudaInspector(Child):
    """Makes CUDA code for one GPU. Use it as a context manager."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(WORKER)
        self._gpu = gpu

    def code(self, workload: Workload, *, compiled: bool = True) -> CudaCode:
        """A workload in TVM's default schedule; `compiled` asks NVIDIA's compiler, too.

        Raises ModelError where TVM makes no code of it.
        """
        try:
            return self.request(("code", workload.text, self._gpu.target, compiled), _TIMEOUT_S)
        except (RemoteError, ChildError) as error:
            raise ModelError(f"no CUDA code could be made of {workload.key}: {error}") from error
