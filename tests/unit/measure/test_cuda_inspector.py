"""What goes wrong in the process that makes CUDA code."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.core.errors import ModelError
from tilewright.core.forms import PLAIN
from tilewright.core.processes import Child, ChildCrash, ChildTimeout, RemoteError
from tilewright.core.records import Candidate
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.measure.cuda_inspector import CudaInspector
from tilewright.measure.targeting import placement_of

RELU = Workload(
    arguments=(Argument(type=TensorType((4, 4))),),
    steps=(Step(operator="relu", inputs=(0,), attributes=()),),
)
DEFAULT = Candidate(implementation="cuda_default", settings=(), forms=(PLAIN, PLAIN))


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
    inspector = CudaInspector(placement_of("cuda -arch=sm_90", None, None))
    with inspector, pytest.raises(ModelError, match="no CUDA code") as caught:
        inspector.code(RELU, DEFAULT)
    assert RELU.key in str(caught.value)
