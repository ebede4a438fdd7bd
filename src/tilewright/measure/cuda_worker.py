"""The child process that makes CUDA code; `measure.cuda` is the other side."""

from __future__ import annotations

from tilewright.compiler.cuda.code import cuda_code
from tilewright.core.child import serve
from tilewright.core.gpus import CudaCode
from tilewright.graph.workload import parse_workload


def code(workload_text: str, target: str, compiled: bool) -> CudaCode:  # noqa: FBT001 - a message
    """A workload as CUDA code, with the compiler's report where it is to be `compiled`."""
    return cuda_code(parse_workload(workload_text), target, compiled=compiled)


if __name__ == "__main__":
    serve({"code": code})
