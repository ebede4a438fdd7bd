"""Compiling contenders, checking each against ONNX Runtime, and timing all of them in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.core.budget import Budget
from tilewright.core.errors import ModelError, NegativeVerdict
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import Placement
from tilewright.deploy.bisecting import ROUNDING, name_culprit
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.sample import random_inputs
from tilewright.graph.tasks import TaskKey
from tilewright.kernels.plans import sequential_plan
from tilewright.measure.checking import NetworkCheck, compare_outputs
from tilewright.measure.measurers import open_networks
from tilewright.measure.network_timing import (
    ONCE,
    Rounds,
    Timing,
    network_runner,
    peer_runner,
    time_places,
    time_together,
)
from tilewright.measure.networks import NetworkRunner, ToCompile, compile_all
from tilewright.measure.peers.base import EngineRefused
from tilewright.measure.peers.known import make_peer
from tilewright.models.naming import quoted
from tilewright.search.contenders import Contender
from tilewright.search.places import Place, Places


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """A contender that gave right results: its plan, its check, its time, and the mean seconds of a
    call of each of its tasks in the running network."""

    contender: Contender
    plan: NetworkPlan
    check: NetworkCheck
    timing: Timing
    in_place_s: Mapping[TaskKey, float]

    @property
    def places(self) -> list[Place]:
        """Its kernels in their places, where their times alone are known."""
        return [
            Place(
                workload_key=key[0],
                ports=key[1],
                implementation=winner.candidate.implementation,
                calls=self.contender.network.tasks[key].count,
                alone_s=winner.measurement.latency_s,
                in_place_s=self.in_place_s[key],
            )
            for key, winner in self.contender.winners.items()
            if winner.measurement is not None and key in self.in_place_s
        ]


def corrected_sum(finish: Finish, race: Sequence[Finish]) -> float | None:
    """The sum of a contender's kernels, each corrected by its place as the others of the race had
    it; None where a time is missing, or nobody else raced."""
    if finish.contender.predicted_s is None or len(race) < 2:
        return None
    others = Places(place for other in race if other is not finish for place in other.places)
    return sum(
        place.calls
        * place.alone_s
        * others.factor(place.workload_key, place.ports, place.implementation)
        for place in finish.places
    )


@dataclass(slots=True, kw_only=True)
class Race:
    """Contenders side by side with ONNX Runtime, the reference.

    Those in default layouts must give right results, others that do not are left out with a note.
    `ready` is where a contender already lies compiled, by name, and learns of what is compiled for
    a race; the `budget` learns what its phases took.
    """

    placement: Placement
    events: EventSink
    seed: int
    max_error: float
    staging: Path
    ready: dict[str, Path] = field(default_factory=dict[str, Path])
    budget: Budget
    rounds: Rounds = ONCE

    def folder(self, contender: Contender) -> Path:
        """Where a contender's library and weights are."""
        return self.ready.get(contender.name, self.staging / contender.name)

    def run(self, contenders: Sequence[Contender]) -> tuple[list[Finish], Timing]:
        """What each right contender took, the fastest first, and what the reference took.

        Raises NegativeVerdict when the results of one in default layouts are wrong, or all are.
        """
        model = contenders[0].network.model
        inputs = random_inputs(model.graph, self.seed)
        with ExitStack() as stack:
            worker = stack.enter_context(open_networks(self.placement))
            reference = make_peer("onnxruntime")
            stack.callback(reference.stop)
            lane = lane_of(self.placement)
            plans = {
                c.name: sequential_plan(c.network.arrangement, c.candidates, lane)
                for c in contenders
            }
            self._compile(worker, contenders, plans)
            try:
                reference.start(
                    model.onnx_path, self.placement.resources.threads, self.placement.binding.cpus
                )
                expected = reference.run(inputs)
            except EngineRefused as error:
                raise ModelError(
                    f"{model.name!r} cannot be checked: {error}",
                    hint="A network is checked against ONNX Runtime and ships only where that "
                    "runs it; element types that it lacks, a MatMul in bfloat16 say, must be cast.",
                ) from error
            theirs = [expected[name] for name in model.outputs]
            checks = {c.name: self._check(worker, c, inputs, theirs) for c in contenders}
            right = [c for c in contenders if self._is_right(c, checks[c.name])]
            wrong = [c for c in contenders if c not in right]
            inexcusable = [c for c in wrong if c.usual_layouts or not right]
            if inexcusable:
                raise self._wrong(inexcusable[0], checks[inexcusable[0].name], inputs)
            self.events(Stage(name="compare", detail="in turn with ONNX Runtime"))
            with self.budget.phase("compare"):
                runners = {
                    c.name: network_runner(worker, c.name, _ordered(c, inputs)) for c in right
                }
                timings = time_together(
                    {**runners, "": peer_runner(reference, inputs)}, rounds=self.rounds
                )
                places = {
                    c.name: time_places(worker, c.name, plans[c.name], _ordered(c, inputs))
                    for c in right
                }
        finished = [
            Finish(
                contender=c,
                plan=plans[c.name],
                check=checks[c.name],
                timing=timings[c.name],
                in_place_s=places[c.name],
            )
            for c in right
        ]
        return sorted(finished, key=lambda finish: finish.timing.latency_s), timings[""]

    def _compile(
        self,
        worker: NetworkRunner,
        contenders: Sequence[Contender],
        plans: Mapping[str, NetworkPlan],
    ) -> None:
        """Compile the contenders unless that was done before, side by side, and load all."""
        with self.budget.phase("compile"):
            missing = [
                ToCompile(
                    plan=plans[c.name],
                    constants=c.network.graph.constants,
                    folder=self.staging / c.name,
                )
                for c in contenders
                if c.name not in self.ready
            ]
            if missing:
                names = ", ".join(network.folder.name for network in missing)
                kernels = sum(len(network.plan.symbols) for network in missing)
                self.events(Stage(name="compile", detail=f"{kernels} kernels: {names}"))
                with ExitStack() as stack:
                    count = min(len(missing), len(self.placement.binding.cpus))
                    more = [
                        stack.enter_context(open_networks(self.placement)) for _ in range(count - 1)
                    ]
                    compile_all([worker, *more], missing)
                self.ready |= {network.folder.name: network.folder for network in missing}
            for contender in contenders:
                order = [c.name for c in plans[contender.name].constants]
                worker.load(contender.name, self.folder(contender), order)

    def _check(
        self,
        worker: NetworkRunner,
        contender: Contender,
        inputs: Mapping[str, Array],
        theirs: Sequence[Array],
    ) -> NetworkCheck:
        ours = worker.run(contender.name, _ordered(contender, inputs))
        return compare_outputs(ours, theirs, contender.network.graph.outputs)

    def _is_right(self, contender: Contender, check: NetworkCheck) -> bool:
        if check.max_rel_error <= self.max_error:
            return True
        if contender.usual_layouts:
            return False
        self.events(
            Note(
                message=f"The contender {contender.name!r} gives wrong results "
                f"({_described(check)}); left out."
            )
        )
        return False

    def _wrong(
        self, contender: Contender, check: NetworkCheck, inputs: dict[str, Array]
    ) -> NegativeVerdict:
        """The error that names the task to blame."""
        if check.max_rel_error <= ROUNDING:
            return NegativeVerdict(
                f"the compiled network is {_described(check)}, more than the allowed "
                f"{self.max_error:g}; rounding in single precision alone may do that. Nothing was "
                "shipped.",
                hint="Raise --max-error.",
            )
        self.events(Stage(name="bisect", detail="looking for the task that is wrong"))
        network, candidates = contender.network, contender.candidates
        culprit = name_culprit(network, candidates, self.placement, inputs, self.staging)
        return NegativeVerdict(
            f"the compiled network is {_described(check)}, more than the allowed "
            f"{self.max_error:g}; {culprit}. Nothing was shipped.",
            hint="--max-error sets what is allowed; `tilewright show TASK --tir` shows a kernel.",
        )


def _described(check: NetworkCheck) -> str:
    return f"off by {check.max_rel_error:.3g} of the largest value of output {quoted(check.output)}"


def _ordered(contender: Contender, inputs: Mapping[str, Array]) -> list[Array]:
    return [inputs[name] for name in contender.network.graph.inputs]
