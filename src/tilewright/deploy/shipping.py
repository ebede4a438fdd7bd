"""Racing the contenders, and shipping the fastest that is right."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.core.budget import Budget
from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import EventSink, Note
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.records import Placement, Shipment
from tilewright.core.results import OptimizeResult
from tilewright.core.speedups import Speedup
from tilewright.deploy.racing import Finish, Race, corrected_sum
from tilewright.deploy.reuse import artifact_fingerprint, shipped_already, weights_digest
from tilewright.graph.plan import NetworkPlan
from tilewright.measure.network_timing import ONCE, Rounds, Timing
from tilewright.measure.peaks import Peaks
from tilewright.models.prepared import PreparedNetwork
from tilewright.report.task_rows import Times, explain_difference, outside_tasks, task_reports
from tilewright.search.contenders import DEFAULT, Contender, default_contender
from tilewright.store.choices import shipping_key
from tilewright.store.database import SqliteStore

_LOST = "lost:"
_OVER_BASELINE = "speedup_vs_baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What is to lie in the output folder, and what each contender took in seconds, by name: now,
    or in an earlier race that it lost; None for wrong results. `name` is the contender that ships;
    library and weights are in `place`, the output folder itself where they were there before.
    `corrected` are sums of kernels' times with the others' places in the race taken into account,
    by name of what raced."""

    network: PreparedNetwork
    plan: NetworkPlan
    place: Path
    fingerprint: str
    result: OptimizeResult
    name: str
    raced: dict[str, float | None]
    corrected: dict[str, float | None]


Reconsider = Callable[[Sequence[Finish]], Contender | None]
"""What may still challenge the winner, after a race showed the kernels in their places."""


@dataclass(slots=True, kw_only=True)
class _Entries:
    """Who may race: fingerprints by name, and the times of what lost earlier, by fingerprint."""

    placement: Placement
    weights: str
    lost: dict[str, float | None]
    marks: dict[str, str] = field(default_factory=dict[str, str])

    def admit(self, contender: Contender) -> bool:
        """Note its fingerprint; whether it is new, and did not lose earlier."""
        mark = artifact_fingerprint(
            contender.network, contender.candidates, self.placement, self.weights
        )
        new = mark not in self.marks.values()
        self.marks[contender.name] = mark
        return new and not self.lost_before(contender)

    def lost_before(self, contender: Contender) -> bool:
        """Whether it lost an earlier race."""
        return f"{_LOST}{self.marks[contender.name]}" in self.lost

    def holds(self, folder: Path, contender: Contender) -> bool:
        """Whether a folder holds it compiled."""
        return shipped_already(folder, self.marks[contender.name])

    def distinct(self, contenders: Sequence[Contender]) -> list[Contender]:
        """Those that do not equal an earlier one."""
        found: dict[str, Contender] = {}
        for contender in contenders:
            found.setdefault(self.marks[contender.name], contender)
        return list(found.values())


@dataclass(slots=True, kw_only=True)
class Shipping:
    """Turns contenders into an artifact for `folder`, made in `staging`; `folder` does not change.

    The `budget` learns what its phases took. Where the folder already holds one of the contenders,
    that one is not compiled again; what lost an earlier race does not run another one, so that a
    repeated command ships the same, and the default settings keep their earlier time.
    """

    placement: Placement
    store: SqliteStore
    events: EventSink
    folder: Path
    staging: Path
    seed: int
    budget: Budget
    rounds: Rounds = ONCE

    def ship(
        self,
        contenders: Sequence[Contender],
        peaks: Peaks,
        max_error: float,
        reconsider: Reconsider = lambda _: None,
    ) -> Shipped:
        """Compile, check against ONNX Runtime, time in turn.

        The first contender has the default layouts. Contenders that have them must give right
        results, others that do not are left out. What `reconsider` comes up with races the winner.
        """
        usual = default_contender(contenders[0], self.placement, max_error)
        entries = self._entries([*contenders, usual])
        fresh = entries.distinct([c for c in contenders if not entries.lost_before(c)])
        entered = entries.distinct([*fresh, usual])
        ready = {c.name: self.folder for c in entered if entries.holds(self.folder, c)}
        if fresh and [c.name for c in fresh] == list(ready):
            entered = fresh
        race = Race(
            placement=self.placement,
            events=self.events,
            seed=self.seed,
            max_error=max_error,
            staging=self.staging,
            ready=dict(ready),
            budget=self.budget,
            rounds=self.rounds,
        )
        finished, reference = race.run(entered)
        challenger = reconsider(finished)
        if challenger is not None and entries.admit(challenger):
            finished, reference = self._challenge(race, finished, challenger, reference)
        place = race.folder(finished[0].contender)
        return self._shipped(finished, reference, entries, peaks, place)

    def _entries(self, contenders: Sequence[Contender]) -> _Entries:
        network = contenders[0].network
        shipment = self.store.shipment(network.key, self.placement.key)
        numbers: Mapping[str, float | None] = shipment.numbers if shipment is not None else {}
        entries = _Entries(
            placement=self.placement,
            weights=weights_digest(network.graph.constants),
            lost={name: value for name, value in numbers.items() if name.startswith(_LOST)},
        )
        for contender in contenders:
            entries.admit(contender)
        return entries

    def _shipped(
        self,
        finished: Sequence[Finish],
        reference: Timing,
        entries: _Entries,
        peaks: Peaks,
        place: Path,
    ) -> Shipped:
        """Keep what came of the race."""
        first, marks = finished[0], entries.marks
        name = first.contender.name
        times = {marks[f.contender.name]: f.timing.latency_s for f in finished}
        sums = {marks[f.contender.name]: corrected_sum(f, finished) for f in finished}
        lost = dict(entries.lost)
        for other in finished[1:]:
            if other.contender.name != DEFAULT:
                lost[f"{_LOST}{marks[other.contender.name]}"] = other.timing.latency_s
        if name == DEFAULT and len(finished) > 1:
            self.events(Note(message="The default settings ran faster and were shipped."))
        result = self._result(finished, reference, peaks, same=marks[name] == marks[DEFAULT])
        self._record(first.contender, lost, result)
        return Shipped(
            network=first.contender.network,
            plan=first.plan,
            place=place,
            fingerprint=marks[name],
            result=result,
            name=name,
            raced={
                each: times.get(mark, lost.get(f"{_LOST}{mark}")) for each, mark in marks.items()
            },
            corrected={each: sums.get(mark) for each, mark in marks.items()},
        )

    def _challenge(
        self, race: Race, finished: list[Finish], challenger: Contender, reference: Timing
    ) -> tuple[list[Finish], Timing]:
        """The winner against one more contender, with the default settings beside them for the
        speed-up over these; the others follow with the times they had."""
        usual = [f.contender for f in finished[1:] if f.contender.name == DEFAULT]
        try:
            again, anew = race.run([finished[0].contender, challenger, *usual])
        except NegativeVerdict as error:
            self.events(Note(message=f"{challenger.name} is left out: {error.message}"))
            return finished, reference
        names = {finish.contender.name for finish in again}
        return [*again, *(f for f in finished if f.contender.name not in names)], anew

    def _result(
        self, finished: Sequence[Finish], reference: Timing, peaks: Peaks, *, same: bool
    ) -> OptimizeResult:
        """The answer about the fastest; `same` says that it has the default settings."""
        first = finished[0]
        network, ours, check = first.contender.network, first.timing, first.check
        winners = first.contender.winners
        rows = task_reports(
            network.tasks,
            first.contender.candidates,
            Times(
                alone={k: w.measurement for k, w in winners.items() if w.measurement is not None},
                in_place_s=first.in_place_s,
                network_s=ours.latency_s,
            ),
            {k: w.check for k, w in winners.items() if w.check is not None},
            peaks,
        )
        rest_s, rest_share = outside_tasks(rows, ours.latency_s)
        tasks_s = sum((row.latency_s or 0.0) * row.count for row in rows)
        complete = all(row.latency_s is not None for row in rows)
        baseline_s, over_baseline = self._baseline(finished, same=same)
        over_reference = ours.speedup_over(reference)
        calls = len(network.arrangement.calls)
        return OptimizeResult(
            model=network.model.name,
            target=self.placement.tvm_target,
            threads=self.placement.resources.threads,
            latency_s=ours.latency_s,
            baseline_latency_s=baseline_s,
            reference_latency_s=reference.latency_s,
            speedup_vs_reference=over_reference.value,
            speedup_vs_reference_low=over_reference.low,
            speedup_vs_reference_high=over_reference.high,
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
            reference_spread=reference.spread,
            latency_variation=ours.variation,
            reference_variation=reference.variation,
            tasks_latency_s=tasks_s if complete else 0.0,
            peak_flop_per_s=peaks.flop_per_s,
            peak_bytes_per_s=peaks.bytes_per_s,
            planned_memory_bytes=network.arrangement.memory.arena_bytes,
            weight_bytes=sum(a.nbytes for a in network.graph.constants.values()),
            network_key=network.key,
            explanation=(
                explain_difference(ours.latency_s, tasks_s, calls, rows) if complete else ""
            ),
            rest_s=rest_s,
            rest_share=rest_share,
        )

    def _baseline(
        self, finished: Sequence[Finish], *, same: bool
    ) -> tuple[float | None, Speedup | None]:
        """The time of the default settings, and the speed-up of what ships over them; both from an
        earlier race where only what it shipped was timed again."""
        network, ours = finished[0].contender.network, finished[0].timing
        if same:
            return ours.latency_s, Speedup(value=1.0, low=1.0, high=1.0)
        for finish in finished:
            if finish.contender.name == DEFAULT:
                return finish.timing.latency_s, ours.speedup_over(finish.timing)
        shipment = self.store.shipment(network.key, self.placement.key)
        numbers: Mapping[str, float | None] = shipment.numbers if shipment is not None else {}
        latency_s, value = numbers.get("baseline_latency_s"), numbers.get(_OVER_BASELINE)
        if latency_s is None or value is None:
            return latency_s, Speedup(value=latency_s / ours.latency_s) if latency_s else None
        low, high = numbers.get(f"{_OVER_BASELINE}_low"), numbers.get(f"{_OVER_BASELINE}_high")
        return latency_s, Speedup(value=value, low=low, high=high)

    def _record(
        self, shipped: Contender, lost: dict[str, float | None], result: OptimizeResult
    ) -> None:
        numbers: dict[str, float | None] = {
            **lost,
            "baseline_latency_s": result.baseline_latency_s,
            _OVER_BASELINE: result.speedup_vs_baseline,
            f"{_OVER_BASELINE}_low": result.speedup_vs_baseline_low,
            f"{_OVER_BASELINE}_high": result.speedup_vs_baseline_high,
            "reference_latency_s": result.reference_latency_s,
            "max_rel_error": result.max_rel_error,
        }
        for key, winner in shipped.winners.items():
            if winner.check is not None:
                numbers[f"error:{shipping_key(key)}"] = winner.check.error
                numbers[f"bound:{shipping_key(key)}"] = winner.check.bound
        assignment = {shipping_key(key): c for key, c in shipped.candidates.items()}
        text = canonical_json({k: [c.implementation, c.settings] for k, c in assignment.items()})
        self.store.ship(
            Shipment(
                network_key=shipped.network.key,
                device_class=self.placement.device.class_key,
                resources=self.placement.resources,
                model=result.model,
                assignment=assignment,
                latency_s=result.latency_s,
                artifact_hash=digest(text),
                numbers=numbers,
                created_at=time.time(),
                plan=shipped.network.plan,
            )
        )
