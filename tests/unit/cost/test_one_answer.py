"""Whoever asks how long a kernel takes at least gets one answer: cost's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT, measured
from helpers.fakes.opened_measurer import Opened
from helpers.records.predictor_rows import PEAKS, known_store
from tilewright.core.events import discard
from tilewright.core.records import Candidate, Placement
from tilewright.cost.demand import CLOCK_HZ, LEVELS
from tilewright.cost.floors import Peaks, bound, floor_s, roofline_s
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.plan import Lane, NetworkPlan, PlannedCall, PlannedTensor
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.insight.single_operators import default_kernel, with_number
from tilewright.insight.sweeping import swept
from tilewright.kernels.estimates import task_floor_s, work_of
from tilewright.kernels.spaces import spaces
from tilewright.models import ModelOptions
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.kernel_features import kernel_table
from tilewright.predict.modelling import Predictors
from tilewright.report.task_rows import task_reports
from tilewright.testing.implementations import PLACEMENTS, plain, single

TARGET, RESOURCES = PLACEMENT.target, PLACEMENT.resources
OPERATOR = "op:conv2d[c=64,h=28,k=3,pad=1,out=64]"
LATENCY_S = 1.0


def convolution(kernel: tuple[int, int], dtype: str = "float32", groups: int = 1) -> Workload:
    high, wide = kernel[0] // 2, kernel[1] // 2
    named = attributes(
        strides=(1, 1), padding=(high, wide, high, wide), dilation=(1, 1), groups=groups
    )
    weights = Argument(type=TensorType((64, 64 // groups, *kernel), dtype), role="constant")
    data = Argument(type=TensorType((1, 64, 28, 28), dtype))
    step = Step(operator="conv2d", inputs=(0, 1), attributes=named)
    return Workload(arguments=(data, weights), steps=(step,))


def dense(dtype: str) -> Workload:
    data = Argument(type=TensorType((128, 256), dtype))
    weights = Argument(type=TensorType((256, 192), dtype), role="constant")
    step = Step(operator="dense", inputs=(0, 1), attributes=attributes())
    return Workload(arguments=(data, weights), steps=(step,))


def lookup() -> Workload:
    table = Argument(type=TensorType((30_522, 768)), role="constant")
    step = Step(operator="gather", inputs=(0, 1), attributes=attributes(axis=0))
    return Workload(arguments=(table, Argument(type=TensorType((128,), "int64"))), steps=(step,))


WORKLOADS = {
    "direct and Winograd": convolution((3, 3)),
    "one way Winograd": convolution((1, 7)),
    "pointwise": convolution((1, 1)),
    "depthwise": convolution((3, 3), groups=64),
    "bytes": convolution((3, 3), "int8"),
    "doubles": convolution((3, 3), "float64"),
    "dense": dense("float32"),
    "dense doubles": dense("float64"),
    "lookup": lookup(),
    "elementwise": single("relu", (1, 64, 28, 28)),
    "softmax": single("softmax", (128, 256), axis=1),
}
EACH = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


def candidates(workload: Workload) -> list[Candidate]:
    """The kernel that each implementation would choose unmeasured."""
    guesses = [space.best_guess for space in spaces(workload, plain(workload), PLACEMENT)]
    return [guess[0] for guess in guesses if guess is not None]


def planned(workload: Workload, candidate: Candidate) -> PlanResult:
    """A network of this one kernel, which took `LATENCY_S`."""
    kinds = [*(argument.type for argument in workload.arguments), workload.result]
    names = [f"port{number}" for number in range(len(kinds))]
    call = PlannedCall(
        name="call",
        workload=workload,
        candidate=candidate,
        inputs=tuple(names[:-1]),
        output=names[-1],
        nodes=("node",),
    )
    plan = NetworkPlan(
        inputs=call.inputs,
        outputs=(call.output,),
        tensors={
            name: PlannedTensor(type=kind, root=name, device="d")
            for name, kind in zip(names, kinds, strict=True)
        },
        calls=(call,),
        lanes={"main": Lane(device="d", resources=RESOURCES)},
    )
    known = CallResult(alone=measured(workload, candidate, LATENCY_S))
    return PlanResult(name="tuned", plan=plan, calls={"call": known})


@pytest.fixture
def predictors(tmp_path: Path) -> Iterator[Predictors]:
    with known_store(tmp_path / "t.db") as store:
        yield Predictors(
            placement=PLACEMENT,
            store=store,
            folder=tmp_path / "models",
            cache=tmp_path / "cache",
            events=discard,
            _loaded=dict.fromkeys(("conv2d", "depthwise", "elementwise")),
        )


@EACH
def test_floor_feature_report_and_forecast_agree(
    workload: Workload, predictors: Predictors
) -> None:
    kernels = [(workload, candidate) for candidate in candidates(workload)]
    assert kernels
    features = kernel_table(kernels, PLACEMENT, PEAKS)
    forecasts = Forecaster(predictors=predictors).modelled(kernels)
    for (_, candidate), scale_s, forecast in zip(kernels, features.scale, forecasts, strict=True):
        work = work_of(workload, candidate.implementation, TARGET)
        least_s = floor_s(work, PEAKS)
        assert task_floor_s(workload, TARGET, RESOURCES, PEAKS) <= least_s
        assert scale_s == least_s
        assert (forecast.source, forecast.latency_s) == ("roofline", least_s)
        (row,) = task_reports(planned(workload, candidate), PEAKS, TARGET)
        assert row.roof_s == least_s
        assert row.bound == bound(work, PEAKS, LATENCY_S)
        longer = "compute" if work.computing_s(PEAKS) >= work.moving_s(PEAKS) else "memory"
        assert row.bound == longer


def test_a_sweep_shows_the_same_floor(predictors: Predictors) -> None:
    found = swept(
        OPERATOR,
        "pad",
        (0, 1, 2),
        predictors=predictors,
        options=ModelOptions(),
        measurers=lambda _placement, _seed: Opened(lambda _workload, _candidate: LATENCY_S),  # pyright: ignore[reportArgumentType]
    )
    for row in found.rows:
        written = with_number(OPERATOR, "pad", row.value)
        workload, candidate = default_kernel(written, ModelOptions(), PLACEMENT)
        work = work_of(workload, candidate.implementation, TARGET)
        assert row.implementation == candidate.implementation
        assert row.roof_s == floor_s(work, PEAKS)


@EACH
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_no_estimate_is_below_the_floor_by_the_rates_it_assumes(
    workload: Workload, placement: Placement
) -> None:
    """Of no setting, not only of the best ones."""
    target, resources = placement.target, placement.resources
    peaks = Peaks(
        flop_per_s=CLOCK_HZ * resources.threads * target.operations_per_cycle("float32"),
        bytes_per_s=LEVELS["memory"] * resources.threads,
        cache_bytes_per_s=LEVELS["L2"] * resources.threads,
    )
    for space in spaces(workload, plain(workload), placement):
        least_s = float(roofline_s(work_of(workload, space.spec.name, target), peaks))
        assert space.estimates_s.min() >= least_s, space.spec.name
