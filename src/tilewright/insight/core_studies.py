"""`study cores`: from how many cores on more do not pay, over a grid of cores, neighbours and
controls of the machine.

    cores                1      2      4      8        what takes at most 5 % longer than the best
    measured           800 µs 410 µs                   2 of 1 and 2
    told from one core        430 µs 250 µs 240 µs     2 of 1 and 2, 4 of all

What this machine has cores for is measured, the rest is told from the time on one core: by the
curve of the kernel (`predict.enough_cores_told`) and by what neighbours stream
(`cost.enough_cores`). A task's kernel on a number of cores is the default one that is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import exp, hypot, log
from pathlib import Path

from tilewright.core.budget import Budget, Limit
from tilewright.core.errors import NegativeVerdict, TargetError, UsageError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.output_files import write_text
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.core.sufficient_cores import CoresResult, CoresRow, SufficientCores, TimeOnCores
from tilewright.core.targets import Binding
from tilewright.cost.enough_cores import OnCores, enough_cores
from tilewright.graph.tasks import Task
from tilewright.hardware.holding import Held, checked, holding, usable_cpus
from tilewright.insight.core_design import CoresDesign, neighbour_of
from tilewright.insight.single_operators import default_kernel, main_task
from tilewright.kernels.estimates import kernel_stream
from tilewright.kernels.plans import default_settings
from tilewright.measure.core_grid import ALONE, CoreGrid, Neighbour, Point
from tilewright.measure.targeting import in_this_process
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.collected import Estimate
from tilewright.predict.core_counts import CoreForecaster, core_forecaster
from tilewright.predict.core_curves import MOST_CORES
from tilewright.predict.enough_cores_told import told_on_cores
from tilewright.predict.kernel_features import Kernel
from tilewright.store.base import Store

PAGE = "study-cores.html"

Grids = Callable[..., AbstractContextManager[CoreGrid]]
"""Opens what measures: a placement, numbers of cores, neighbours, a seed."""


@dataclass(frozen=True, kw_only=True)
class _Studied:
    """A task with its kernel for each number of cores, and its time on one as predicted."""

    name: str
    task: Task
    kernels: Mapping[int, Kernel]
    told: Estimate


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What was measured while controls were held: seconds by task and point, and those of each
    neighbour alone."""

    times_s: dict[str, Mapping[Point, float]]
    neighbours_s: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class CoresStudy:
    """One study against a store and a device; what is measured is not kept in the store."""

    placement: Placement
    store: Store
    events: EventSink
    grids: Grids = CoreGrid
    holds: Callable[..., AbstractContextManager[None]] = holding

    def run(
        self,
        model: str,
        options: ModelOptions,
        design: CoresDesign,
        limit: Limit,
        out: Path | None = None,
    ) -> CoresResult:
        """Measure within a limit, the task that takes longest first, and predict the rest; with a
        limit of nothing all is predicted. Each setting of the controls has an equal part of it.
        A page of figures is written to the folder `out`.

        Raises what loading a model raises, UsageError where kernels do not run on CPUs of this
        machine and for controls where nothing is measured, TargetError for controls that cannot be
        set, and where this process has no number of cores that was asked for, NegativeVerdict where
        a neighbour cannot be timed.
        """
        self._check(design, limit)
        self.events(Stage(name="import", detail=model))
        forecaster = core_forecaster(self.placement, self.store, self.events)
        counts = design.grid(self._there)
        tasks = self._tasks(model, options, counts, forecaster)
        neighbours = self._neighbours(design, options, forecaster)
        budget, rows, late = Budget(limit), list[CoresRow](), dict[str, None]()
        for number, held in enumerate(design.held):
            with budget.keeping(1 - 1 / (len(design.held) - number)):
                found = self._measured(tasks, [*neighbours], counts, (held, options.seed), budget)
            teller = _Teller(
                tasks=tasks, counts=counts, found=found, neighbours=neighbours,
                forecaster=forecaster, there=self._there,
            )  # fmt: skip
            rows += teller.rows(design, "+".join(each.text for each in held))
            if not limit.nothing:
                late |= dict.fromkeys(e.name for e in tasks if e.name not in found.times_s)
        if max(counts) > MOST_CORES:
            said = f"beyond {MOST_CORES} cores no kernel was measured: curves are extrapolated"
            self.events(Note(message=said))
        result = CoresResult(
            model=model,
            machine_cores=self._there,
            cores=counts,
            rows=tuple(rows),
            unmeasured=tuple(late),
        )
        if out is not None:
            write_page(out, result)
        return result

    @property
    def _there(self) -> int:
        return self.placement.resources.threads

    def _check(self, design: CoresDesign, limit: Limit) -> None:
        if not in_this_process(self.placement):
            raise UsageError("cores are those of this machine's CPU.", hint="Leave out --target.")
        if limit.nothing:
            if any(design.held):
                raise UsageError(
                    "no prediction knows a clock or another control: they are measured.",
                    hint="Give a --budget, such as 2m, or leave out the control.",
                )
            return
        if design.cores and min(design.cores) > self._there:
            raise TargetError(
                f"none of --cores {','.join(map(str, design.cores))} can be measured: this process "
                f"has {self._there}",
                hint="Add numbers up to that one, or --budget 0 to have all predicted.",
            )
        cpus = self.placement.binding.cpus
        for held in design.held:
            checked(held, cpus)
            left = len(usable_cpus(held, cpus))
            if left < min(self._there, len(cpus)):
                raise TargetError(
                    f"without SMT {left} of {self._there} CPUs are left",
                    hint=f"Give --threads {left}.",
                )

    def _tasks(
        self,
        model: str,
        options: ModelOptions,
        counts: Sequence[int],
        forecaster: CoreForecaster,
    ) -> list[_Studied]:
        """The tasks of a model, the one that takes longest first; of an operator its own alone."""
        if model.startswith("op:"):
            named = [(model, main_task(model, options, self.placement))]
        else:
            tasks = prepare_outline(model, options, self.placement).tasks.values()
            named = [(task.name, task) for task in tasks]
        chosen = {n: default_settings(forecaster.placement(n)) for n in counts}
        kernels = [
            {n: (task.workload, choose(task.workload, task.forms)) for n, choose in chosen.items()}
            for _, task in named
        ]
        told = forecaster.kernels([each[1] for each in kernels], [1])[1]
        found = [
            _Studied(name=name, task=task, kernels=own, told=estimate)
            for (name, task), own, estimate in zip(named, kernels, told, strict=True)
        ]
        return sorted(found, key=lambda each: -each.task.count * each.told.latency_s)

    def _neighbours(
        self, design: CoresDesign, options: ModelOptions, forecaster: CoreForecaster
    ) -> dict[Neighbour, float]:
        """The neighbours, each with the seconds that a call of it is predicted to take."""
        found: dict[Neighbour, float] = {}
        for name in design.beside:
            operator, cores = neighbour_of(name)
            if operator:
                own = replace(options, batch=None, shapes={}, precision="float32")
                place = replace(forecaster.placement(cores), precision="float32")
                kernel = default_kernel(operator, own, place)
                (told,) = forecaster.kernels([kernel], [cores])[cores]
                found[Neighbour(name=name, kernel=kernel, cores=cores)] = told.latency_s
        return found

    def _measured(
        self,
        tasks: Sequence[_Studied],
        neighbours: Sequence[Neighbour],
        counts: Sequence[int],
        setting: tuple[Sequence[Held], int],
        budget: Budget,
    ) -> _Measured:
        """Times of tasks until the budget is spent, with controls held and operands of a seed; the
        first one is timed even where neighbours took all of it. A task that cannot be timed is left
        out, with a note."""
        held, seed = setting
        cpus = self.placement.binding.cpus
        here = [count for count in counts if count <= self._there]
        if budget.exhausted:
            return _Measured(times_s={}, neighbours_s={})
        place = replace(self.placement, binding=Binding(cpus=usable_cpus(held, cpus)))
        with self.holds(held, cpus), self.grids(place, here, neighbours, seed=seed) as grid:
            found = _Measured(times_s={}, neighbours_s=_neighbours_s(grid))
            for number, each in enumerate(tasks):
                if number and budget.exhausted:
                    break
                self.events(Stage(name="time", detail=f"{each.name} on {len(grid.points)} points"))
                try:
                    found.times_s[each.name] = grid.times_s({n: each.kernels[n] for n in here})
                except (ChildError, RemoteError) as error:
                    self.events(Note(message=f"{each.name} could not be timed: {error}"))
                    _neighbours_s(grid)  # their processes may have ended with it
                budget.measured(len(grid.points))
        return found


def _neighbours_s(grid: CoreGrid) -> Mapping[str, float]:
    """Seconds of each neighbour alone, which run from now on when they are wanted."""
    try:
        return grid.neighbours_s()
    except (ChildError, RemoteError) as error:
        raise NegativeVerdict(f"a neighbour could not be timed: {error}") from error


@dataclass(frozen=True, kw_only=True)
class _Teller:
    """Tells turning points from what was measured of tasks under one setting of the controls."""

    tasks: Sequence[_Studied]
    counts: Sequence[int]
    found: _Measured
    neighbours: Mapping[Neighbour, float]
    forecaster: CoreForecaster
    there: int

    def rows(self, design: CoresDesign, held: str) -> Iterator[CoresRow]:
        """A row for each task beside each neighbour; where controls were held only of those that
        were measured."""
        starts = [self._alone(each) for each in self.tasks]
        predictors = self.forecaster.forecaster.predictors
        kernels = [each.kernels[1] for each in self.tasks]
        alone_s = [start.latency_s for _, start in starts]
        told = told_on_cores(kernels, alone_s, self.counts, predictors)
        rates = {each.name: self._streamed(each) for each in self.neighbours}
        for each, (source, start), curve in zip(self.tasks, starts, told, strict=True):
            if held and source != "measured":
                continue
            for name in design.beside:
                beside = name if name in rates else ALONE
                others = rates.get(name, 0.0)
                times = self._measured_of(each, beside)
                fits = beside != ALONE and 1 in times
                known = curve.fitted(1, others, times[1]) if fits else curve
                yield CoresRow(
                    task=each.name,
                    count=each.task.count,
                    implementation=each.kernels[1][1].implementation,
                    beside=name,
                    held=held,
                    source=source,
                    times=self._times(known, others, times, start),
                    points=tuple(self._point(known, others, times, g) for g in design.gains),
                    contention_bytes_per_s=None if known is curve else known.scale,
                )

    def _alone(self, each: _Studied) -> tuple[str, Estimate]:
        """What the time on one core is known from, and that time."""
        measured_s = self._measured_of(each, ALONE).get(1)
        if measured_s is None:
            return each.told.source, each.told
        return "measured", replace(
            each.told, latency_s=measured_s, low_s=measured_s, high_s=measured_s
        )

    def _measured_of(self, each: _Studied, beside: str) -> dict[int, float]:
        taken = self.found.times_s.get(each.name, {})
        return {count: time_s for (count, name), time_s in taken.items() if name == beside}

    def _streamed(self, neighbour: Neighbour) -> float:
        """Bytes per second of a neighbour."""
        target = self.forecaster.forecaster.predictors.placement.target
        time_s = self.found.neighbours_s.get(neighbour.name, self.neighbours[neighbour])
        return kernel_stream(*neighbour.kernel, target, neighbour.cores) / time_s

    def _times(
        self, known: OnCores, others: float, measured: Mapping[int, float], start: Estimate
    ) -> tuple[TimeOnCores, ...]:
        below, above = log(start.latency_s / start.low_s), log(start.high_s / start.latency_s)
        return tuple(
            TimeOnCores(
                cores=cores,
                predicted_s=time_s,
                low_s=time_s / exp(hypot(below, log(known.reach[cores]))),
                high_s=time_s * exp(hypot(above, log(known.reach[cores]))),
                measured_s=measured.get(cores),
                extrapolated=cores > self.there,
            )
            for cores, time_s in known.beside(others).items()
        )

    def _point(
        self, known: OnCores, others: float, measured: Mapping[int, float], gain: float
    ) -> SufficientCores:
        found = told = steps = None
        if len(measured) > 1:
            found, told = enough_cores(measured, gain), known.only(measured).enough(others, gain)
            places = sorted(measured)
            steps = places.index(told) - places.index(found)
        low, high = known.between(others, gain)
        return SufficientCores(
            gain=gain,
            measured=found,
            told=told,
            steps=steps,
            predicted=known.enough(others, gain),
            low=low,
            high=high,
            extrapolated=max(self.counts) > self.there,
        )


def write_page(folder: Path, result: CoresResult) -> None:
    """Write tables and charts as `study-cores.html` into a folder."""
    from tilewright.report.html import render_cores

    write_text(folder / PAGE, render_cores(result))
