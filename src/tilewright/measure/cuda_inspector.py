"""CUDA code of kernels, made and read in a process of its own; nothing runs on a GPU."""

from __future__ import annotations

from tilewright.core.errors import ModelError
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaCode
from tilewright.measure.kernels import WORKER

_TIMEOUT_S = 300.0


class CudaInspector(Child):
    """Makes and reads CUDA code for one GPU, in a process of its own; nothing runs on a GPU. Use it
    as a context manager."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(WORKER)
        self._placement = placement

    def code(self, workload: Workload, candidate: Candidate, *, compiled: bool = True) -> CudaCode:
        """A candidate's code; `compiled` asks NVIDIA's compiler, too.

        Raises ModelError where TVM makes no code of it.
        """
        message = ("code", workload.text, candidate, self._placement, compiled)
        try:
            return self.request(message, _TIMEOUT_S)
        except (RemoteError, ChildError) as error:
            raise ModelError(f"no CUDA code could be made of {workload.key}: {error}") from error
