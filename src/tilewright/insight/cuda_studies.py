"""`study padding` on a GPU: an operator along one of its numbers, in the default settings of its
kernels. What changes in a kernel is told everywhere; time and power where its card is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.errors import TargetError
from tilewright.core.events import Note, Stage
from tilewright.core.predictions import SweepResult, SweepRow
from tilewright.core.records import Failure, Measurement
from tilewright.cost.floors import Work
from tilewright.hardware.gpus import CudaCode
from tilewright.hardware.meters.registry import meter_of
from tilewright.insight.cuda_explaining import CudaExplainer
from tilewright.insight.cuda_facts import Facts, roofline_of_gpu_s
from tilewright.insight.single_operators import measured
from tilewright.insight.sweeping import sweep_steps
from tilewright.kernels.base import TakesWorkspace
from tilewright.kernels.registry import implementation
from tilewright.measure.circumstances import Circumstances
from tilewright.measure.cuda_inspector import CudaInspector
from tilewright.measure.targeting import open_measurer_under, usable_placement
from tilewright.predict.kernel_features import Kernel
from tilewright.store.base import Store

_SHOWN = (
    *("grid_blocks", "block_threads", "waves", "tail", "registers", "shared_bytes"),
    *("comparisons", "guarded_share", "loads", "sectors_per_load", "kernels"),
)
"""In this order, those that change."""
_MOST_FACTS = 8


def swept_on_gpu(
    operator: str,
    parameter: str,
    values: tuple[int, ...],
    *,
    explainer: CudaExplainer,
    store: Callable[[], Store],
) -> SweepResult:
    """The operator at each value; a note says why nothing was measured where nothing could be.

    Raises UsageError for what is no single operator or has no such number.
    """
    steps = sweep_steps(operator, parameter, values)
    kernels = [explainer.kernel(text) for text in steps.values()]
    facts = _facts_of(kernels, explainer)
    outcomes = _outcomes(kernels, explainer, store)
    changing = _changing(facts)
    return SweepResult(
        operator=operator,
        parameter=parameter,
        rows=tuple(
            replace(
                _row(step, kernel, outcome, explainer),
                predicted_s=_number(told["modelled_s"]),
                facts={name: _number(told.get(name)) for name in changing},
            )
            for step, kernel, told, outcome in zip(steps, kernels, facts, outcomes, strict=True)
        ),
        layout=explainer.layout,
    )


def _facts_of(kernels: Sequence[Kernel], explainer: CudaExplainer) -> list[Facts]:
    with CudaInspector(explainer.placement) as inspector:
        codes: list[CudaCode] = []
        for kernel in kernels:
            explainer.events(Stage(name="compile", detail=kernel[0].key))
            codes.append(inspector.code(*kernel))
    reasons = {code.reason for code in codes if code.reason}
    for reason in sorted(reasons):
        explainer.events(Note(message=f"registers are not known: {reason}"))
    return [explainer.facts(*both) for both in zip(kernels, codes, strict=True)]


def _outcomes(
    kernels: Sequence[Kernel], explainer: CudaExplainer, store: Callable[[], Store]
) -> Sequence[Measurement | Failure | None]:
    try:
        circumstances = Circumstances(usual=usable_placement(explainer.placement, explainer.events))
        meter = meter_of("auto", explainer.placement.target)
        opened = open_measurer_under(circumstances, explainer.options.seed, meter)
    except TargetError as error:
        explainer.events(Note(message=f"Nothing was measured: {error}"))
        return [None] * len(kernels)
    with opened as measurer:
        return measured(kernels, circumstances.placement, measurer, store(), explainer.events)


def _changing(facts: Sequence[Facts]) -> list[str]:
    """The names of shown facts that are not alike at all values."""
    told = {name: [_number(fact.get(name)) for fact in facts] for name in _SHOWN}
    return [name for name, column in told.items() if np.ptp(column) > 0][:_MOST_FACTS]


def _number(value: float | str | None) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _row(
    step: int, kernel: Kernel, outcome: Measurement | Failure | None, explainer: CudaExplainer
) -> SweepRow:
    """What is known of a kernel but for its facts."""
    workload, candidate = kernel
    if isinstance(outcome, Failure):
        explainer.events(Note(message=f"{workload.key}: {outcome.kind}: {outcome.message}"))
    timed = outcome if isinstance(outcome, Measurement) else None
    energy = timed.energy if timed is not None else None
    work = Work(flop=workload.flop, memory_bytes=workload.bytes)
    return SweepRow(
        value=step,
        latency_s=timed.latency_s if timed is not None else None,
        predicted_s=0.0,
        roof_s=roofline_of_gpu_s(work, explainer.gpu),
        implementation=candidate.implementation,
        facts={},
        power_w=energy.power_w if energy is not None else None,
        memory_bytes=memory_bytes(kernel, explainer),
    )


def memory_bytes(kernel: Kernel, explainer: CudaExplainer) -> int:
    """Bytes of device memory: all tensors, and what the kernel takes besides."""
    workload, candidate = kernel
    spec, on = implementation(candidate.implementation), explainer.placement
    own = 0
    if isinstance(spec, TakesWorkspace):
        own = sum(spec.workspaces(workload, candidate, on.target, on.resources).shared)
    tensors = sum(argument.type.bytes for argument in workload.arguments)
    return tensors + workload.result.bytes + own
