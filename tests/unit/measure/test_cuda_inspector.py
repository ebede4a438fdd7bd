"""What goes wrong in the process that makes CUDA code."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.core.errors import ModelError
from tilewright.core.processes import Child, ChildCrash, ChildTimeout, RemoteError
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.target import parse_gpu
from tilewright.measure.kernels import CudaInspector

RELU = Workload(
    arguments=(Argument(type=TensorType((4, 4))),),
    steps=(Step(operator="relu", inputs=(0,), attributes=()),),
)


@pytest.mark.parametrize(
    "error",
    [
        ChildCrash(-11, "Segmentation fault"),
        ChildTimeout("no answer within 300 s"),
        RemoteError("InternalError", "no GPU schedule rule applies"),
    ],
)
def test_a_worker_that_fails_costs_an_error_that_names_the_operator(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_child: Child, _message: Any, _timeout_s: float) -> Any:
        raise error

    monkeypatch.setattr(Child, "request", fail)
    inspector = CudaInspector(parse_gpu("cuda -arch=sm_90"))
    with inspector, pytest.raises(ModelError, match="no CUDA code") as caught:
        inspector.code(RELU)
    assert RELU.key in str(caught.value)
