"""Racing plans, planning again by what the race showed, and shipping the fastest that is right."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.core.budget import Budget
from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import EventSink, Note
from tilewright.core.records import Placement, ShippedPlan
from tilewright.core.results import OptimizeResult
from tilewright.core.timings import Speedup, Timing
from tilewright.cost.floors import Peaks
from tilewright.deploy.racing import Race
from tilewright.deploy.reuse import artifact_fingerprint, shipped_already, weights_digest
from tilewright.graph.plan_fields import plan_fields
from tilewright.graph.plan_result import PlanResult
from tilewright.measure.network_timing import ONCE, Rounds
from tilewright.models.prepared import PreparedNetwork
from tilewright.report.task_rows import explain_difference, outside_tasks, seen_peaks, task_reports
from tilewright.search.in_network import corrected_sum
from tilewright.search.winners import DEFAULT, in_default_settings
from tilewright.store.base import Store
from tilewright.store.shipped_plans import shipping_key

_LOST = "lost:"
_OVER_BASELINE = "speedup_vs_baseline"


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What came of a race: the plans that are right, the fastest first, and the time of the
    reference beside the last of them; None where it was not timed, and `untimed` says why.

    `marks` are the fingerprints of all plans that were to race, by name; plans with one fingerprint
    are one. `lost` are seconds of what lost an earlier race, by fingerprint; None for wrong
    results.
    """

    finished: tuple[PlanResult, ...]
    reference: Timing | None
    marks: Mapping[str, str]
    lost: Mapping[str, float | None]
    untimed: str = ""

    @property
    def winner(self) -> PlanResult:
        """What ships."""
        return self.finished[0]

    @property
    def usual(self) -> PlanResult | None:
        """The default settings where they raced, or another plan that is the same."""
        mark = self.marks[DEFAULT]
        return next((f for f in self.finished if self.marks[f.name] == mark), None)

    @property
    def fingerprint(self) -> str:
        """That of what ships."""
        return self.marks[self.winner.name]

    @property
    def raced_s(self) -> dict[str, float | None]:
        """What each plan took, by name: now, or in an earlier race that it lost."""
        times = {self.marks[f.name]: _timed(f).latency_s for f in self.finished}
        return {name: times.get(mark, self.lost.get(mark)) for name, mark in self.marks.items()}

    @property
    def corrected_s(self) -> dict[str, float | None]:
        """Sums of kernels' times with the others' places in the race taken into account."""
        sums = {self.marks[f.name]: corrected_sum(f, self.finished) for f in self.finished}
        return {name: sums.get(mark) for name, mark in self.marks.items()}


def _timed(result: PlanResult) -> Timing:
    """The timing of a plan that raced."""
    assert result.timing is not None
    return result.timing


def _beside(result: OptimizeResult, ours: Timing, reference: Timing | None) -> OptimizeResult:
    """The answer with what the reference took, where it was timed."""
    if reference is None:
        text = f"ONNX Runtime was not timed on the device: {result.reference_untimed}."
        return replace(result, warnings=(*result.warnings, text))
    over_reference = ours.speedup_over(reference)
    return replace(
        result,
        reference_latency_s=reference.latency_s,
        speedup_vs_reference=over_reference.value,
        speedup_vs_reference_low=over_reference.low,
        speedup_vs_reference_high=over_reference.high,
        reference_spread=reference.spread,
        reference_variation=reference.variation,
    )


@dataclass(slots=True, kw_only=True)
class _Entries:
    """Who may race: fingerprints by name, and the times of what lost earlier, by fingerprint."""

    network: PreparedNetwork
    placement: Placement
    lost: dict[str, float | None]
    marks: dict[str, str] = field(default_factory=dict[str, str])
    weights: str = ""

    def admit(self, entry: PlanResult) -> bool:
        """Note its fingerprint; whether it is new, and did not lose earlier."""
        self.weights = self.weights or weights_digest(self.network.graph.constants)
        mark = artifact_fingerprint(self.network, entry.plan, self.placement, self.weights)
        new = mark not in self.marks.values()
        self.marks[entry.name] = mark
        return new and not self.lost_before(entry)

    def lost_before(self, entry: PlanResult) -> bool:
        """Whether it lost an earlier race."""
        return self.marks[entry.name] in self.lost

    def holds(self, folder: Path, entry: PlanResult) -> bool:
        """Whether a folder holds it compiled."""
        return shipped_already(folder, self.marks[entry.name])

    def distinct(self, entries: Sequence[PlanResult]) -> list[PlanResult]:
        """Those that do not equal an earlier one."""
        found: dict[str, PlanResult] = {}
        for entry in entries:
            found.setdefault(self.marks[entry.name], entry)
        return list(found.values())


@dataclass(slots=True, kw_only=True)
class Shipping:
    """Turns plans of a network into an artifact for `folder`, made in `staging`; `folder` does not
    change.

    The `budget` learns what its phases took. Where the folder already holds one of the plans, that
    one is not compiled again; what lost an earlier race does not run another one, so that a
    repeated command ships the same, and the default settings keep their earlier time.
    """

    network: PreparedNetwork
    placement: Placement
    store: Store
    events: EventSink
    folder: Path
    staging: Path
    seed: int
    budget: Budget
    max_error: float
    rounds: Rounds = ONCE
    _race: Race = field(init=False)
    _entries: _Entries = field(init=False)

    def __post_init__(self) -> None:
        self._race = Race(
            network=self.network,
            placement=self.placement,
            events=self.events,
            seed=self.seed,
            max_error=self.max_error,
            staging=self.staging,
            budget=self.budget,
            rounds=self.rounds,
        )
        self._entries = _Entries(
            network=self.network,
            placement=self.placement,
            lost={
                name.removeprefix(_LOST): value
                for name, value in self._numbers.items()
                if name.startswith(_LOST)
            },
        )

    @property
    def _numbers(self) -> Mapping[str, float | None]:
        """Figures of what shipped last."""
        shipped = self.store.shipped(self.network.key, self.placement.key)
        return shipped.numbers if shipped is not None else {}

    def race(self, plans: Sequence[PlanResult]) -> Ranking:
        """Compile, check against ONNX Runtime, time in turn, with our default settings beside them.

        The first plan has the default layouts. Plans that have them must give right
        results, others that do not are left out.
        """
        usual = in_default_settings(plans[0], self.placement, self.max_error)
        entries = self._entries
        for entry in (*plans, usual):
            entries.admit(entry)
        fresh = entries.distinct([p for p in plans if not entries.lost_before(p)])
        entered = entries.distinct([*fresh, usual])
        ready = {c.name: self.folder for c in entered if entries.holds(self.folder, c)}
        if fresh and [c.name for c in fresh] == list(ready):
            entered = fresh
        self._race.ready = dict(ready)
        return self._ranking(*self._race.run(entered))

    def challenge(self, ranking: Ranking, challenger: PlanResult) -> Ranking:
        """The winner of a race against one more plan, with the default settings beside them for
        the speed-up over these; the others follow with the times they had."""
        if not self._entries.admit(challenger):
            return self._ranking(list(ranking.finished), ranking.reference)
        usual = [f for f in ranking.finished[1:] if f is ranking.usual]
        try:
            again, reference = self._race.run([ranking.winner, challenger, *usual])
        except NegativeVerdict as error:
            self.events(Note(message=f"{challenger.name} is left out: {error.message}"))
            return self._ranking(list(ranking.finished), ranking.reference)
        names = {finish.name for finish in again}
        others = [f for f in ranking.finished if f.name not in names]
        return self._ranking([*again, *others], reference)

    def ship(self, ranking: Ranking, peaks: Peaks) -> tuple[Path, OptimizeResult]:
        """Keep what came of a race: where library and weights of the winner are, and the answer."""
        if ranking.winner.name == DEFAULT and len(ranking.finished) > 1:
            self.events(Note(message="The default settings ran faster and were shipped."))
        result = self._result(ranking, peaks)
        self._record(ranking, result)
        return self._race.folder(ranking.winner), result

    def _ranking(self, finished: list[PlanResult], reference: Timing | None) -> Ranking:
        entries = self._entries
        return Ranking(
            finished=tuple(finished),
            reference=reference,
            untimed=self._race.untimed,
            marks=dict(entries.marks),
            lost=dict(entries.lost),
        )

    def _result(self, ranking: Ranking, peaks: Peaks) -> OptimizeResult:
        """The answer about the fastest."""
        first, network = ranking.winner, self.network
        ours, check = _timed(first), first.check
        assert check is not None
        peaks = seen_peaks(first, peaks, self.placement.target)
        rows = task_reports(first, peaks, self.placement.target)
        rest_s, rest_share = outside_tasks(rows, ours.latency_s)
        tasks_s = sum((row.latency_s or 0.0) * row.count for row in rows)
        complete = all(row.latency_s is not None for row in rows)
        baseline_s, over_baseline = self._baseline(ranking)
        calls = len(first.plan.calls)
        result = OptimizeResult(
            model=network.model.name,
            target=self.placement.tvm_target,
            threads=self.placement.resources.threads,
            latency_s=ours.latency_s,
            baseline_latency_s=baseline_s,
            reference_latency_s=None,
            speedup_vs_reference=None,
            reference_untimed=ranking.untimed,
            speedup_vs_baseline=over_baseline.value if over_baseline else None,
            speedup_vs_baseline_low=over_baseline.low if over_baseline else None,
            speedup_vs_baseline_high=over_baseline.high if over_baseline else None,
            max_abs_error=check.max_abs_error,
            max_rel_error=check.max_rel_error,
            tasks=rows,
            measurements=0,
            failures=0,
            elapsed_s=0.0,
            artifact=str(self.folder),
            latency_spread=ours.spread,
            latency_variation=ours.variation,
            tasks_latency_s=tasks_s if complete else 0.0,
            peak_flop_per_s=peaks.flop_per_s,
            peak_bytes_per_s=peaks.bytes_per_s,
            planned_memory_bytes=first.plan.arena_bytes,
            weight_bytes=network.weight_bytes,
            network_key=network.key,
            explanation=(
                explain_difference(ours.latency_s, tasks_s, calls, rows) if complete else ""
            ),
            rest_s=rest_s,
            rest_share=rest_share,
        )
        return _beside(result, ours, ranking.reference)

    def _baseline(self, ranking: Ranking) -> tuple[float | None, Speedup | None]:
        """The time of the default settings, and the speed-up of what ships over them; both from an
        earlier race where only what it shipped was timed again."""
        ours = _timed(ranking.winner)
        if ranking.fingerprint == ranking.marks[DEFAULT]:
            return ours.latency_s, Speedup(value=1.0, low=1.0, high=1.0)
        if ranking.usual is not None:
            usual = _timed(ranking.usual)
            return usual.latency_s, ours.speedup_over(usual)
        numbers = self._numbers
        latency_s, value = numbers.get("baseline_latency_s"), numbers.get(_OVER_BASELINE)
        if latency_s is None or value is None:
            return latency_s, Speedup(value=latency_s / ours.latency_s) if latency_s else None
        low, high = numbers.get(f"{_OVER_BASELINE}_low"), numbers.get(f"{_OVER_BASELINE}_high")
        return latency_s, Speedup(value=value, low=low, high=high)

    def _record(self, ranking: Ranking, result: OptimizeResult) -> None:
        winner = ranking.winner
        lost = dict(ranking.lost)
        for other in ranking.finished[1:]:
            if other is not ranking.usual:
                lost[ranking.marks[other.name]] = _timed(other).latency_s
        numbers: dict[str, float | None] = {
            **{f"{_LOST}{mark}": value for mark, value in lost.items()},
            "baseline_latency_s": result.baseline_latency_s,
            _OVER_BASELINE: result.speedup_vs_baseline,
            f"{_OVER_BASELINE}_low": result.speedup_vs_baseline_low,
            f"{_OVER_BASELINE}_high": result.speedup_vs_baseline_high,
            "reference_latency_s": result.reference_latency_s,
            "max_rel_error": result.max_rel_error,
        }
        for key in winner.plan.tasks:
            check = winner.task(key).check
            if check is not None:
                numbers[f"error:{shipping_key(key)}"] = check.error
                numbers[f"bound:{shipping_key(key)}"] = check.bound
        self.store.ship(
            ShippedPlan(
                network_key=self.network.key,
                device_class=self.placement.device.class_key,
                resources=self.placement.resources,
                model=result.model,
                plan=plan_fields(winner.plan),
                latency_s=result.latency_s,
                numbers=numbers,
                created_at=time.time(),
            )
        )
