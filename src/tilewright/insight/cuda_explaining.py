"""`explain` of a CUDA target: what is known of an operator's kernels before any of them runs, from
their launch and their compiler's report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log

from tilewright.core.errors import UsageError, close_matches
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.forms import IMAGE_LAYOUTS, PLAIN, Form
from tilewright.core.predictions import ExplainResult, FactDifference, TurningPoint
from tilewright.core.records import Candidate, Placement
from tilewright.cost.floors import Work
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaCode, CudaKernel, Gpu, gpu_of_target
from tilewright.insight.cuda_facts import (
    Facts,
    code_facts,
    kernel_facts,
    main_kernel,
    roofline_of_gpu_s,
    waves,
    with_report,
)
from tilewright.insight.single_operators import along, main_task, numbers_of
from tilewright.kernels.estimates import estimate_s, facts
from tilewright.kernels.registry import implementation, ports_in
from tilewright.kernels.spaces import MAX_ERROR, ranked_defaults
from tilewright.measure.cuda_inspector import CudaInspector
from tilewright.measure.targeting import placement_of
from tilewright.models import ModelOptions
from tilewright.predict.collected import family_of
from tilewright.predict.kernel_features import Kernel

_ALIKE = 1e-9
_LEAST_STEP = 1.02
"""A wave that begins is a turning point where a FLOP then takes so much longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A value along a sweep: the rule that applies, whole waves, and what a FLOP costs in units of
    its sweep."""

    rule: str
    waves: int
    cost: float
    value: int = 0


@dataclass(frozen=True, kw_only=True)
class CudaExplainer:
    """Explains operators in the default settings of an implementation for GPUs, the one with the
    least estimate unless one is named, with their images in a `layout`: NCHW or NHWC."""

    placement: Placement
    gpu: Gpu
    events: EventSink
    options: ModelOptions
    implementation: str = ""
    layout: str = "NCHW"

    def explain(
        self, name: str, versus: str | None = None, *, confirm: bool = False
    ) -> ExplainResult:
        """An `op:…` text, and in what it differs from another one.

        Turning points are values of the operator's numbers from which on its blocks need a wave
        more, or another implementation or schedule rule applies, as far as the GPU's
        multiprocessors are known.
        Raises UsageError for other texts, for turning points that are to be confirmed, and for an
        implementation that does not apply; ModelError where TVM makes no code.
        """
        if confirm:
            raise UsageError("--confirm is for CPUs; study padding measures along a number")
        kernels = [self.kernel(text) for text in (name, *([versus] if versus else []))]
        with CudaInspector(self.placement) as inspector:
            self.events(Stage(name="compile", detail=name))
            codes = [inspector.code(*kernel) for kernel in kernels]
            points = self._turning_points(name, main_kernel(codes[0]), inspector)
        if codes[0].reason:
            self.events(Note(message=f"registers and spills are not known: {codes[0].reason}"))
        times_s = [
            roofline_of_gpu_s(Work(flop=w.flop, memory_bytes=w.bytes), self.gpu) for w, _ in kernels
        ]
        facts = [self.facts(*both) for both in zip(kernels, codes, strict=True)]
        return ExplainResult(
            name=name,
            family=family_of(kernels[0][0]),
            latency_s=times_s[0],
            source="roofline",
            factors=(),
            turning_points=points,
            facts=facts[0],
            ratio=_ratio(times_s),
            differences=_differences(facts),
            functions=tuple(
                {"function": kernel.name, **kernel_facts(kernel, self.gpu)}
                for kernel in codes[0].kernels
            ),
            reason=codes[0].reason,
        )

    def kernel(self, name: str) -> Kernel:
        """The fused subgraph of an `op:…` text, and how it is computed; raises UsageError for any
        other text, for an implementation that is not there, and for a layout that none takes."""
        if not name.startswith("op:"):
            raise UsageError(
                f"{name!r} is no operator: for a CUDA target only single operators are explained",
                hint="tilewright explain 'op:conv2d[c=64,h=56,k=3,pad=1,out=64]' --target "
                "'cuda -model=H100'",
            )
        task = main_task(name, self.options, self.placement)
        found = ranked_defaults(
            task.workload,
            self._forms(name, task),
            self.placement,
            inf if self.implementation else MAX_ERROR,
        )
        known = {candidate.implementation: candidate for candidate, _ in found}
        wanted = self.implementation or found[0][0].implementation
        if wanted not in known:
            raise UsageError(
                f"no implementation called {wanted!r} computes {name} on a GPU",
                hint=close_matches(wanted, known),
            )
        return task.workload, known[wanted]

    def _forms(self, name: str, task: Task) -> tuple[Form, ...]:
        """The forms of an operator's ports with as many of its images as possible in the layout."""
        form, on = IMAGE_LAYOUTS[self.layout], self.placement
        if form == PLAIN:
            return task.forms
        found = ports_in(form, task.workload, on.target, on.resources)
        if found is None:
            raise UsageError(
                f"no kernel for GPUs computes {name} in {self.layout}",
                hint="Convolutions, pooling and elementwise operators are computed so, of images "
                "of several channels and pixels.",
            )
        return found

    def facts(self, kernel: Kernel, code: CudaCode) -> Facts:
        """Those of the code, the settings, and the time by which settings are ranked."""
        workload, candidate = kernel
        told: Facts = {}
        if candidate.settings:
            told["settings"] = " ".join(f"{name}={value}" for name, value in candidate.settings)
        on = self.placement
        told["modelled_s"] = estimate_s(workload, candidate, on.target, on.resources)
        return {**code_facts(code, self.gpu), **told}

    def _turning_points(
        self, name: str, kernel: CudaKernel, inspector: CudaInspector
    ) -> tuple[TurningPoint, ...]:
        """Where waves begin or rules change along each number of the operator, from half to twice
        of it, the largest steps first. Registers are those that an implementation estimates, of one
        without settings those of the operator itself."""
        if self.gpu.multiprocessors is None:
            self.events(
                Note(message="waves are not known: the target names no GPU, so its size is unknown")
            )
            return ()
        found: list[TurningPoint] = []
        for parameter, value in numbers_of(name, batch=True).items():
            self.events(Stage(name="sweep", detail=parameter))
            points = list(self._sweep(name, parameter, value, kernel, inspector))
            found += _begun(parameter, points)
        return tuple(sorted(found, key=lambda point: -abs(log(point.ratio))))

    def _sweep(
        self, name: str, parameter: str, value: int, kernel: CudaKernel, inspector: CudaInspector
    ) -> Iterator[_Point]:
        """The operator along one number; values of which there is no operator or no code are left
        out. A launch follows from settings; of kernels without any, code is made."""

        def made(text: str) -> _Point | None:
            workload, candidate = self.kernel(text)
            if not workload.flop:
                return None
            if candidate.settings:
                return self._modelled(workload, candidate)
            code = inspector.code(workload, candidate, compiled=False)
            found = main_kernel(code)
            count = waves(with_report(found, kernel.report), self.gpu)
            if count is None:
                return None
            cost = ceil(count) * (found.loads + found.stores) / workload.flop
            return _Point(rule=code.rule, waves=ceil(count), cost=cost)

        found = along(name, parameter, value, made)
        return (replace(point, value=step) for step, point in found.items() if point is not None)

    def _modelled(self, workload: Workload, candidate: Candidate) -> _Point:
        """A kernel by the facts of its settings."""
        spec, on = implementation(candidate.implementation), self.placement
        told = facts(
            *(spec, workload, on.target, on.resources, candidate.forms), [dict(candidate.settings)]
        )
        return _Point(
            rule=spec.name,
            waves=ceil(told["waves"][0]),
            cost=float(told["estimate_s"][0]) / workload.flop,
        )


def cuda_explainer(
    target: str,
    tracker: str | None,
    events: EventSink,
    options: ModelOptions,
    name: str = "",
    *,
    layout: str = "NCHW",
) -> CudaExplainer:
    """What explains operators for the GPU that a target means, here or described, by the
    implementation of that name where there is one, with images in a layout.

    Raises TargetError for a target that is not known, UsageError for a tracker, which goes with
    other targets, and for an unknown layout.
    """
    if layout not in IMAGE_LAYOUTS:
        raise UsageError(
            f"no layout of images is called {layout!r}", hint=close_matches(layout, IMAGE_LAYOUTS)
        )
    placement = placement_of(target, tracker, None)
    return CudaExplainer(
        placement=placement,
        gpu=gpu_of_target(placement.target),
        events=events,
        options=options,
        implementation=name,
        layout=layout,
    )


def _differences(facts: Sequence[Facts]) -> tuple[FactDifference, ...]:
    """Facts that differ, the largest ratios first and texts before all."""
    if len(facts) < 2:
        return ()
    first, second = facts
    names = [fact for fact in {**first, **second} if _differ(first.get(fact), second.get(fact))]
    return tuple(
        FactDifference(fact=fact, first=first.get(fact), second=second.get(fact), share=None)
        for fact in sorted(names, key=lambda fact: -_gap(first.get(fact), second.get(fact)))
    )


def _begun(parameter: str, points: Sequence[_Point]) -> Iterator[TurningPoint]:
    """The steps at which another rule applies, or whole waves become more and a FLOP dearer."""
    for before, after in zip(points, points[1:], strict=False):
        ratio = after.cost / before.cost
        changed = after.rule != before.rule
        if changed or (after.waves > before.waves and ratio >= _LEAST_STEP):
            yield TurningPoint(
                parameter=parameter,
                value=after.value,
                fact=f"waves, {before.rule} to {after.rule}" if changed else "waves",
                before=before.waves,
                after=after.waves,
                ratio=ratio,
            )


def _ratio(times_s: Sequence[float | None]) -> float | None:
    known = [seconds for seconds in times_s if seconds]
    return known[0] / known[1] if len(known) == 2 else None


def _differ(first: float | str | None, second: float | str | None) -> bool:
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        return abs(first - second) > _ALIKE * max(abs(first), abs(second))
    return first != second


def _gap(first: float | str | None, second: float | str | None) -> float:
    """How far apart two values are, as a ratio of at least 1; infinite where one is 0 or no
    number."""
    numbers = [value for value in (first, second) if isinstance(value, (int, float))]
    low, high = (min(numbers), max(numbers)) if len(numbers) == 2 else (0.0, 1.0)
    return high / low if low > 0 else float("inf")
