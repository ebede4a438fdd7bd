"""Racing plans: compiling them, checking each against ONNX Runtime, timing all of them in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.core.budget import Budget
from tilewright.core.errors import ModelError, NegativeVerdict, quoted
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import NetworkCheck, Placement
from tilewright.core.timings import Timing
from tilewright.deploy import bisecting, hashes, opening
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array
from tilewright.graph.plan_result import PlanResult
from tilewright.hardware.probe import allotted_cpus
from tilewright.kernels.base import HALF, MIXED, SINGLE
from tilewright.kernels.halves import half_lanes
from tilewright.measure import checking, network_timing, targeting
from tilewright.measure.networks import NetworkRunner, ToCompile, compile_all
from tilewright.measure.peers.base import EngineRefused, make_peer
from tilewright.measure.reference import REFERENCE, Reference, open_reference
from tilewright.models.loaded import PreparedNetwork
from tilewright.search.layout_costs import corrected_sum
from tilewright.search.levels import OptimizeRequest
from tilewright.search.winners import DEFAULT, in_default_settings

_SINGLE_HINT = "Raise --max-error, or leave --precision out."
LOST = "lost:"
"""Before the fingerprint, the name of a figure that is kept of what lost a race."""


def timing_of(result: PlanResult) -> Timing:
    """The timing of a plan that raced."""
    assert result.timing is not None
    return result.timing


@dataclass(slots=True, kw_only=True)
class Race:
    """Plans of a network side by side with ONNX Runtime, the reference.

    Those in default layouts must give right results, others that do not are left out with a note.
    Plans are compiled into `staging`, but for one that the folder of the `request` already holds;
    that folder does not change. What lost an earlier race, by the `figures` of what shipped last,
    does not run another one, so that a repeated command ships the same, and the default settings
    keep their earlier time. The `budget` learns what its phases took.

    Outputs are compared on the inputs that are `judged`, on random ones where there are none;
    `checks` has what came out of each plan, by name, of wrong ones, too.

    `finished` are the plans that are right, the fastest first, and `reference` is the time of the
    reference beside the last of them; None where it was not timed, and `untimed` says why. `marks`
    are the fingerprints of all plans that were to race, by name; plans with one fingerprint are
    one.
    """

    network: PreparedNetwork
    placement: Placement
    events: EventSink
    request: OptimizeRequest
    staging: Path
    figures: Mapping[str, float | None]
    budget: Budget
    rounds: network_timing.Rounds = network_timing.ONCE
    judged: Sequence[Mapping[str, Array]] = ()
    checks: dict[str, NetworkCheck] = field(default_factory=dict[str, NetworkCheck])
    finished: Sequence[PlanResult] = ()
    reference: Timing | None = None
    untimed: str = ""
    marks: dict[str, str] = field(default_factory=dict[str, str])
    _ready: dict[str, Path] = field(default_factory=dict[str, Path])
    _weights: str = ""

    def run(self, plans: Sequence[PlanResult]) -> None:
        """Compile, check against ONNX Runtime, time in turn, with our default settings beside them.

        The first plan has the default layouts. Raises NegativeVerdict when the results of one
        in default layouts are wrong, or all are.
        """
        usual = in_default_settings(plans[0], self.placement, self.request.max_error)
        raced_before = {entry.name for entry in (*plans, usual) if not self._admit(entry)}
        fresh = self._distinct([c for c in plans if c.name not in raced_before])
        entered = self._distinct([*fresh, usual])
        folder = self.request.folder
        ready = [c.name for c in entered if opening.shipped_already(folder, self.marks[c.name])]
        if fresh and [c.name for c in fresh] == ready:
            entered = fresh
        self._ready = dict.fromkeys(ready, folder)
        self.finished, self.reference = self._raced(entered)

    def challenge(self, challenger: PlanResult) -> None:
        """Race the winner against one more plan, with the default settings beside them for the
        speed-up over these; the others follow with the times they had."""
        known = set(self.marks.values())
        if not self._admit(challenger) or self.marks[challenger.name] in known:
            return
        try:
            again, self.reference = self._raced(
                [self.winner, challenger, *(f for f in self.finished[1:] if f is self.usual)]
            )
        except NegativeVerdict as error:
            self.events(Note(message=f"{challenger.name} is left out: {error.message}"))
            return
        names = {finish.name for finish in again}
        self.finished = [*again, *(f for f in self.finished if f.name not in names)]

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
    def folder(self) -> Path:
        """Where the winner's library and weights are."""
        return self._folder(self.winner)

    @property
    def lost(self) -> dict[str, float | None]:
        """Seconds of what lost an earlier race, by fingerprint; None for wrong results."""
        return {
            name.removeprefix(LOST): value
            for name, value in self.figures.items()
            if name.startswith(LOST)
        }

    @property
    def raced_s(self) -> dict[str, float | None]:
        """What each plan took, by name: now, or in an earlier race that it lost."""
        known = self.lost | {self.marks[f.name]: timing_of(f).latency_s for f in self.finished}
        return {name: known.get(mark) for name, mark in self.marks.items()}

    @property
    def corrected_s(self) -> dict[str, float | None]:
        """Sums of kernels' times with the others' places in the race taken into account."""
        sums = {self.marks[f.name]: corrected_sum(f, self.finished) for f in self.finished}
        return {name: sums.get(mark) for name, mark in self.marks.items()}

    def _folder(self, entry: PlanResult) -> Path:
        return self._ready.get(entry.name, self.staging / entry.name)

    def _admit(self, entry: PlanResult) -> bool:
        """Note its fingerprint; whether it did not lose an earlier race."""
        self._weights = self._weights or hashes.weights_digest(self.network.graph.constants)
        mark = hashes.artifact_fingerprint(self.network, entry.plan, self.placement, self._weights)
        self.marks[entry.name] = mark
        return mark not in self.lost

    def _distinct(self, entries: Sequence[PlanResult]) -> list[PlanResult]:
        """Those that do not equal an earlier one."""
        found: dict[str, PlanResult] = {}
        for entry in entries:
            found.setdefault(self.marks[entry.name], entry)
        return list(found.values())

    def _raced(self, entries: Sequence[PlanResult]) -> tuple[list[PlanResult], Timing | None]:
        """What each right plan took, the fastest first, with its calls in their places, and what
        the reference took; None where it cannot be timed."""
        model = self.network.model
        inputs = self.judged or [random_inputs(model.graph, self.request.seed)]
        ordered = [[each[name] for name in self.network.graph.inputs] for each in inputs]
        with ExitStack() as stack:
            worker = stack.enter_context(targeting.open_networks(self.placement))
            own = make_peer(REFERENCE)
            self._compile(worker, entries)
            try:
                reference = open_reference(
                    stack, own, worker, self.placement, model.onnx_path, inputs
                )
            except EngineRefused as error:
                raise ModelError(
                    f"{model.name!r} cannot be checked: {error}",
                    hint="A network ships only after it was compared with ONNX Runtime, which must "
                    "therefore be able to run it. Cast element types that it does not support, for "
                    "example those of a MatMul in bfloat16.",
                ) from error
            theirs = [[each[name] for name in model.outputs] for each in reference.expected]
            names = self.network.graph.outputs
            ours = {e.name: [worker.run(e.name, each) for each in ordered] for e in entries}
            checks = {
                name: checking.compare_runs(each, theirs, names) for name, each in ours.items()
            }
            self.checks |= checks
            checked = [replace(entry, check=checks[entry.name]) for entry in entries]
            right = [e for e in checked if self._is_right(e, checks[e.name])]
            others = [entry for entry in checked if entry not in right]
            inexcusable = [e for e in others if self._in_default_layouts(e) or not right]
            if not inexcusable:
                return self._timed(worker, right, reference, inputs[0])
        wrong = inexcusable[0]
        showing = checking.worst_run(ours[wrong.name], theirs, names)
        raise self._wrong(wrong, checks[wrong.name], inputs[showing])

    def _timed(
        self,
        worker: NetworkRunner,
        right: Sequence[PlanResult],
        reference: Reference,
        inputs: Mapping[str, Array],
    ) -> tuple[list[PlanResult], Timing | None]:
        """Time right plans in turn, and the reference with them where it can be."""
        ordered = [inputs[name] for name in self.network.graph.inputs]
        peer, self.untimed = reference.timed, reference.untimed
        self.events(
            Stage(name="compare", detail="in turn" if peer is None else "in turn with ONNX Runtime")
        )
        with self.budget.phase("compare"):
            runners = {
                e.name: network_timing.network_runner(worker, e.name, ordered) for e in right
            }
            if peer is not None:
                runners[""] = network_timing.peer_runner(peer, inputs)
            timings = network_timing.time_together(runners, rounds=self.rounds)
            finished = [
                replace(e, timing=timings[e.name]).with_places(
                    network_timing.time_places(worker, e.name, e.plan, ordered)
                )
                for e in right
            ]
        return sorted(finished, key=lambda e: timings[e.name].latency_s), timings.get("")

    def _in_default_layouts(self, entry: PlanResult) -> bool:
        return entry.name != HALF and entry.plan.tensors == self.network.plan.tensors

    def _compile(self, worker: NetworkRunner, entries: Sequence[PlanResult]) -> None:
        """Compile the plans unless that was done before, side by side, and load all."""
        constants = self.network.graph.constants
        with self.budget.phase("compile"):
            missing = [
                ToCompile(plan=entry.plan, constants=constants, folder=self.staging / entry.name)
                for entry in entries
                if entry.name not in self._ready
            ]
            if missing:
                names = ", ".join(network.folder.name for network in missing)
                kernels = sum(len(network.plan.symbols) for network in missing)
                self.events(Stage(name="compile", detail=f"{kernels} kernels: {names}"))
                cpus = len(self.placement.binding.cpus), len(allotted_cpus())
                with ExitStack() as stack:
                    more = [
                        stack.enter_context(targeting.open_networks(self.placement))
                        for _ in range(min(len(missing), *cpus) - 1)
                    ]
                    compile_all([worker, *more], missing)
                self._ready |= {network.folder.name: network.folder for network in missing}
            for entry in entries:
                worker.load(entry.name, self._folder(entry), entry.plan.constant_names)

    def _is_right(self, entry: PlanResult, check: NetworkCheck) -> bool:
        right = self.request.allows(check)
        if not right and not self._in_default_layouts(entry):
            off = _described(check)
            found = "is beyond the error" if entry.name == HALF else "gives wrong results"
            message = f"The plan {entry.name!r} {found} ({off}); it is left out."
            self.events(Note(message=message))
        return right

    def _wrong(
        self, entry: PlanResult, check: NetworkCheck, inputs: Mapping[str, Array]
    ) -> NegativeVerdict:
        """The error that names the task to blame."""
        off = f"the compiled network is {_described(check)}, {self.request.limit}"
        precision = self.placement.precision
        model = self.network.model
        kind = bisecting.coarsest_rounding(
            model.graph, precision, put_on_codes=model.quantized is not None
        )
        if check.max_rel_error <= bisecting.ROUNDING[kind]:
            hint = "Raise --max-error."
            if precision not in SINGLE:
                mixed = precision != MIXED and half_lanes(self.placement.target)
                hint = mixed_hint(self.request) if mixed else _SINGLE_HINT
            return NegativeVerdict(
                f"{off}; rounding in {kind} can cause this. Nothing was shipped.", hint=hint
            )
        self.events(Stage(name="bisect", detail="looking for the task that is wrong"))
        constants = self.network.graph.constants
        culprit = bisecting.name_culprit(
            entry.plan, constants, self.placement, inputs, self.staging
        )
        return NegativeVerdict(
            f"{off}; {culprit}. Nothing was shipped.",
            hint="--max-error sets what is allowed; `tilewright show TASK --tir` shows a kernel.",
        )


def fastest_of(races: Sequence[Race]) -> Race:
    """The race whose winner is the fastest, all of them timed in turn. They are of networks that
    take the same inputs."""
    if len(races) == 1:
        return races[0]
    first = races[0]
    given = (first.judged or [random_inputs(first.network.model.graph, first.request.seed)])[0]
    with targeting.open_networks(first.placement) as worker:
        runners: dict[str, network_timing.Runner] = {}
        for number, race in enumerate(races):
            name, plan = str(number), race.winner.plan
            worker.load(name, race.folder, plan.constant_names)
            ordered = [given[each] for each in race.network.graph.inputs]
            runners[name] = network_timing.network_runner(worker, name, ordered)
        timings = network_timing.time_together(runners, rounds=first.rounds)
    return races[min(range(len(races)), key=lambda number: timings[str(number)].latency_s)]


def mixed_hint(request: OptimizeRequest) -> str:
    """What to do where one type for everything has a larger error than a request allows."""
    return (
        f"`--precision auto --max-error {request.asked}` looks for the fastest mixture within that "
        "error: what makes most of the noise stays in single precision. Or raise --max-error, or "
        "leave --precision out."
    )


def _described(check: NetworkCheck) -> str:
    off = f"off by {check.max_rel_error:.3g} of the largest value of output {quoted(check.output)}"
    return off if check.sqnr_db is None else f"{off}, {check.sqnr_db:.4g} dB"
