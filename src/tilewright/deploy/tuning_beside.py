"""`tune --beside`: versions of kernels for what runs on other cores meanwhile.

    search    every candidate of every task, while the partner runs
    second look at the best ones   alone    on one core    beside
        direct   #1                 46 µs     88 µs         61 µs     fastest alone
        direct   #2                 48 µs     90 µs         52 µs     fastest beside

Times beside a partner are kept under a device class of their own, `CLASS+beside=PARTNERxN`, those
of the second look by itself and on one core where such times always are. So planners find both:
which kernel is the fastest there, and what it takes alone (`plan.beside_versions`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.core.budget import Budget
from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.neighbours import BestFor, KernelVersion, TaskVersions, VersionsResult
from tilewright.core.records import Candidate, Measurement, Placement, Run
from tilewright.core.signals import graceful_interrupt
from tilewright.core.timings import speedup_apart
from tilewright.cost.floors import Peaks
from tilewright.deploy import opening, partnering
from tilewright.deploy.optimizing import CONVERGED
from tilewright.deploy.partnering import Company
from tilewright.graph.tasks import Task
from tilewright.kernels.base import MIXED
from tilewright.kernels.estimates import kernel_stream
from tilewright.kernels.stored_settings import refusals
from tilewright.measure import targeting
from tilewright.measure.base import Measurer
from tilewright.measure.beside import Player
from tilewright.measure.checking import check_kernel
from tilewright.measure.circumstances import Circumstances, kernel_protocol
from tilewright.measure.kernels import AccompaniedMeasurer, on_cpus
from tilewright.measure.named_neighbours import NEIGHBOURS, NONE, neighbour_of
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.search.context import Counts, SearchContext
from tilewright.search.levels import OptimizeRequest
from tilewright.search.tuners.registry import DEFAULT
from tilewright.search.tuning import NetworkTuner
from tilewright.store.base import Store
from tilewright.store.known_candidates import known_outcomes, ranked

_SECOND_LOOK_SHARE = 0.35
"""Part of the budget that is kept for looking at the best versions again."""
_BEST_BESIDE = 3
"""Versions that get a second look beside those that are known to be best alone and on one core."""
_PARTNER_S = 600.0
"""How long a partner runs at most while one batch of kernels is timed."""

AccompaniedBy = Callable[..., Measurer]
"""Opens what times kernels beside a partner: a placement, how the partner runs, its name, a
seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to run beside: a MODEL or an artifact on so many threads; `name` is how it was asked
    for. What short names stand for is in single precision."""

    name: str
    model: str
    threads: int
    short: bool = False


def work_of(text: str, threads: int | None) -> Work:
    """What `--beside` and `--beside-threads` ask for: `stream`, `computex2`, an `op:…` text, of
    which `x2` also tells threads, another MODEL, or an artifact. Raises UsageError for a name that
    is none, and for two different numbers of threads."""
    operator = text.startswith("op:")
    if not operator and (any(mark in text for mark in ":/.") or Path(text).exists()):
        return Work(name=text, model=text, threads=threads or 1)
    if text == NONE:
        raise UsageError(f"{NONE!r} is no partner.", hint="Leave out --beside.")
    model, told = neighbour_of(text, wanted=True)
    if text in (model, *NEIGHBOURS):
        told = threads or told
    elif threads not in (None, told):
        raise UsageError(
            f"{text!r} is on {told} threads, and --beside-threads says {threads}.",
            hint="Leave out one of them.",
        )
    return Work(name=text, model=model, threads=told, short=not operator)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where the kernels of one command are timed: on all its threads, on one core (None where that
    is the same), and on all of them beside the partner."""

    alone: SearchContext
    one: SearchContext | None
    beside: SearchContext

    @property
    def quiet(self) -> list[SearchContext]:
        """Those where nothing runs beside."""
        return [each for each in (self.alone, self.one) if each is not None]

    @property
    def every(self) -> list[SearchContext]:
        return [*self.quiet, self.beside]


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideTuner:
    """`tune --beside` against a store and a device."""

    placement: Placement
    store: Store
    events: EventSink
    accompanied: AccompaniedBy = AccompaniedMeasurer

    def run(self, request: OptimizeRequest, work: Work) -> VersionsResult:
        """Search settings of each task while the partner runs, look again at the best ones, check
        the winners, and keep all of it.

        Nothing is compiled but kernels and the partner. Raises UsageError for what is no model, for
        a choice of types over the graph, and where kernels do not run on CPUs of this machine;
        TargetError for too few cores; NegativeVerdict where the partner crashes, hangs or ends
        early: what was measured until then stays.
        """
        budget = Budget(request.budget)
        options = request.options
        if options.precision == MIXED:
            raise UsageError(
                "beside a partner kernels are tuned in one precision.",
                hint="Leave out --precision auto.",
            )
        own, partner = partnering.with_partner((work.model, work.threads), self.placement)
        assert partner is not None, "one was asked for"
        self.events(Stage(name="import", detail=request.model))
        with budget.phase("import"):
            allowed = targeting.allowing(own, options)
            network, artifact = opening.open_model(request.model, options, allowed)
            if artifact is not None:
                raise UsageError(
                    "an artifact is compiled, and has no settings to search.",
                    hint="Give the model that it was made from.",
                )
            theirs = replace(options, precision=ModelOptions().precision) if work.short else options
            other = partnering.opened(partner, theirs, "best", request.max_error, self.store)
        own = replace(allowed, precision=network.precision)
        self.events(Stage(name="beside", detail=work.name))
        with partnering.company(partner, *other, request.seed, most_s=_PARTNER_S) as company:
            return _Tuning(
                tuner=self,
                request=request,
                work=work,
                network=network,
                own=own,
                there=Circumstances(usual=own, partner=company.name).placement,
                budget=budget,
            ).carry_out(company)


@dataclass(slots=True, kw_only=True)
class _Tuning:
    tuner: BesideTuner
    request: OptimizeRequest
    work: Work
    network: PreparedNetwork
    own: Placement
    there: Placement
    budget: Budget
    settled: bool = False
    counts: Counts = field(default_factory=Counts)
    run: Run = field(init=False)

    def carry_out(self, company: Company) -> VersionsResult:
        """Measure within the budget, and tell what is known then."""
        store, tasks = self.tuner.store, self.network.tasks
        for place in (self.own, self.there):
            store.add_device(place.device)
        store.add_workloads([task.workload for task in tasks.values()])
        earlier = store.runs(self.network.key, self.there.key)
        self.settled = any(run.state == CONVERGED for run in earlier)
        self.budget.charge(earlier)
        self.run = store.begin_run(
            Run(
                command="tune",
                model=self.request.model,
                network_key=self.network.key,
                device_class=self.there.device.class_key,
                resources=self.there.resources,
                seed=self.request.seed,
                state="running",
                created_at=time.time(),
            )
        )
        try:
            with self._places(company.player) as places:
                converged = self._searched(places.beside)
                found = self._looked_at(places)
        except BaseException:
            self._keep_run("interrupted")
            raise
        self._keep_run(CONVERGED if converged else "done")
        return VersionsResult(
            model=self.request.model,
            partner=self.work.name,
            threads=self.own.resources.threads,
            partner_threads=self.work.threads,
            device_class=self.there.device.class_key,
            tasks=tuple(each for each in found if each.versions),
            unmeasured=tuple(each.task for each in found if not each.versions),
            converged=converged,
            measurements=self.counts.measurements,
            failures=self.counts.failures,
            elapsed_s=self.budget.elapsed_s,
        )

    @contextmanager
    def _places(self, player: Player) -> Generator[_Places]:
        """What measures in each circumstance; nothing of it runs while another one does."""
        seed, own = self.request.seed, self.own
        with ExitStack() as opened:
            alone = opened.enter_context(targeting.open_measurer(own, seed=seed))
            peaks = targeting.measured_peaks(self.tuner.store, own, alone)
            alone.rest()
            one = None
            if own.resources.threads > 1:
                place = on_cpus(own, own.binding.cpus[:1])
                measurer = opened.enter_context(targeting.open_measurer(place, seed=seed))
                one = self._context(place, measurer, peaks)
            beside = opened.enter_context(
                self.tuner.accompanied(self.there, player, name=self.work.name, seed=seed)
            )
            yield _Places(
                alone=self._context(own, alone, peaks),
                one=one,
                beside=self._context(self.there, beside, peaks),
            )

    def _context(self, place: Placement, measurer: Measurer, peaks: Peaks) -> SearchContext:
        return SearchContext.of(
            self.request,
            (place, measurer, peaks),
            store=self.tuner.store,
            events=self.tuner.events,
            budget=self.budget,
            protocol=kernel_protocol(self.own),
            run_id=self.run.id,
            checkpoint=lambda: self._keep_run("running"),
            counts=self.counts,
        )

    def _searched(self, context: SearchContext) -> bool:
        """Search beside the partner; whether all tasks converged. The fastest settings that are
        known by themselves are tried first, as those of any other device are."""
        with self.budget.phase("recall"):
            tuner = NetworkTuner(self.network.tasks, context)
        if self.settled and not tuner.outdated and self.request.tuner == DEFAULT:
            return True
        if self.budget.exhausted:
            return False
        self.tuner.events(Stage(name="tune", detail=f"{len(tuner.tasks)} tasks"))
        with graceful_interrupt() as asked, self.budget.phase("search", keep=_SECOND_LOOK_SHARE):
            context.stop = asked
            converged = tuner.run()
            if asked():
                raise KeyboardInterrupt
        context.measurer.rest()
        return converged

    def _looked_at(self, places: _Places) -> list[TaskVersions]:
        """Each task's versions, those that take longest looked at again as far as the budget
        goes."""
        found: dict[str, TaskVersions] = {}
        tasks = sorted(self.network.tasks.values(), key=lambda task: -self._seconds(task))
        self.tuner.events(Stage(name="time", detail="the best versions alone and beside"))
        with self.budget.phase("second look"):
            for task in tasks:
                found[task.name] = self._versions(task, places)
                self._keep_run("running")
        return [found[task.name] for task in self.network.tasks.values()]

    def _seconds(self, task: Task) -> float:
        known = self._ranked(task, self.there)
        return task.count * known[0].latency_s if known else 0.0

    def _ranked(self, task: Task, place: Placement) -> list[Measurement]:
        return ranked(known_outcomes(task, self.tuner.store, place))

    def _versions(self, task: Task, places: _Places) -> TaskVersions:
        """What is best of a task's versions, by a second look where there is budget for it."""
        finalists = self._finalists(task, places)
        for context in places.every:
            asked = _takes(task, finalists, context.placement)
            if asked and not self.budget.exhausted:
                most = min(len(asked), self.budget.remaining_count)
                context.measure(task, asked[: int(most)])
                context.measurer.rest()
        if not self.budget.nothing:
            wrong = self._wrong(task, places, finalists)
            finalists = [each for each in finalists if each not in wrong]
        return self._told(task, [self._known(task, finalists, c.placement) for c in places.every])

    def _finalists(self, task: Task, places: _Places) -> list[Candidate]:
        """The versions that were fastest in each circumstance, and the default one."""
        best = self._ranked(task, self.there)[:_BEST_BESIDE]
        for context in places.quiet:
            best += self._ranked(task, context.placement)[:1]
        usual = list(places.alone.defaults(task))[:1]
        return _takes(task, [each.candidate for each in best] + usual, self.own)

    def _known(
        self, task: Task, finalists: Sequence[Candidate], place: Placement
    ) -> dict[Candidate, Measurement]:
        """What is known of the finalists in one circumstance, the fastest first."""
        known = self._ranked(task, place)
        return {each.candidate: each for each in known if each.candidate in finalists}

    def _wrong(
        self, task: Task, places: _Places, finalists: Sequence[Candidate]
    ) -> list[Candidate]:
        """What numpy says is wrong of the versions that are fastest beside, up to the first that is
        right; kept as failures in each circumstance, for it is the same kernel in all."""
        wrong: list[Candidate] = []
        for candidate in self._known(task, finalists, self.there):
            measurer, seed = places.alone.measurer, self.request.seed
            failure = check_kernel(measurer, task.workload, candidate, seed).failure
            if failure is None:
                break
            wrong.append(candidate)
            for context in places.every:
                where = context.placement
                context.keep(
                    replace(
                        failure,
                        device_class=where.device.class_key,
                        resources=where.resources,
                        binding=where.binding,
                        created_at=time.time(),
                    )
                )
            said = f"{task.name} by {candidate.implementation}: {failure.headline}"
            self.tuner.events(Note(message=said))
        return wrong

    def _told(self, task: Task, known: Sequence[dict[Candidate, Measurement]]) -> TaskVersions:
        """The versions that are best for something."""
        alone, *on_one, beside = known
        one = on_one[0] if on_one else alone
        named: tuple[tuple[BestFor, dict[Candidate, Measurement]], ...] = (
            ("alone", alone), ("one core", one), ("beside", beside),
        )  # fmt: skip
        best: dict[Candidate, list[BestFor]] = {}
        for name, times in named:
            if times:
                best.setdefault(next(iter(times)), []).append(name)
        every = list(dict.fromkeys([*best, *alone, *beside]))
        moved = {each: self._moved_bytes(task, each) for each in every}
        if every:
            best.setdefault(min(every, key=lambda each: moved[each]), []).append("least moved")
        gain = None
        if alone and beside and (usual := beside.get(next(iter(alone)))) is not None:
            first = next(iter(beside.values()))
            gain = speedup_apart(ours=first.samples_s, theirs=usual.samples_s)
        return TaskVersions(
            task=task.name,
            key=task.workload.key,
            count=task.count,
            versions=tuple(
                KernelVersion(
                    implementation=candidate.implementation,
                    settings=dict(candidate.settings),
                    best=tuple(names),
                    alone_s=_seconds_of(alone, candidate),
                    one_core_s=_seconds_of(one, candidate),
                    beside_s=_seconds_of(beside, candidate),
                    moved_bytes=moved[candidate],
                )
                for candidate, names in best.items()
            ),
            gain=gain.value if gain else None,
            gain_low=gain.low if gain else None,
            gain_high=gain.high if gain else None,
        )

    def _moved_bytes(self, task: Task, candidate: Candidate) -> int:
        target, threads = self.own.target, self.own.resources.threads
        return round(kernel_stream(task.workload, candidate, target, threads))

    def _keep_run(self, state: str) -> None:
        """Keep what this run spent."""
        self.run = replace(
            self.run,
            state=state,
            spent_s=self.budget.elapsed_s,
            measurements=self.counts.measurements,
            failures=self.counts.failures,
        )
        self.tuner.store.update_run(self.run)


def _takes(task: Task, candidates: Sequence[Candidate], place: Placement) -> list[Candidate]:
    """Those that can compute a task at a placement, each once."""
    asked = list(dict.fromkeys(candidates))
    why = refusals(task.workload, asked, place.target, place.resources)
    return [each for each, refused in zip(asked, why, strict=True) if not refused]


def _seconds_of(known: dict[Candidate, Measurement], candidate: Candidate) -> float | None:
    found = known.get(candidate)
    return None if found is None else found.latency_s
