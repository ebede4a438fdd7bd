"""Compiling plans, checking each against ONNX Runtime, and timing all of them in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.core.budget import Budget
from tilewright.core.errors import ModelError, NegativeVerdict
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import NetworkCheck, Placement
from tilewright.core.timings import Timing
from tilewright.deploy.bisecting import ROUNDING, name_culprit
from tilewright.graph.network import Array
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.sample import random_inputs
from tilewright.hardware.topology import allotted_cpus
from tilewright.measure.checking import compare_outputs
from tilewright.measure.measurers import open_networks
from tilewright.measure.network_timing import (
    ONCE,
    Rounds,
    network_runner,
    peer_runner,
    time_places,
    time_together,
)
from tilewright.measure.networks import NetworkRunner, ToCompile, compile_all
from tilewright.measure.peers.base import EngineRefused
from tilewright.measure.peers.known import make_peer
from tilewright.measure.reference import REFERENCE, Reference, open_reference
from tilewright.models.naming import quoted
from tilewright.models.prepared import PreparedNetwork


@dataclass(slots=True, kw_only=True)
class Race:
    """Plans of a network side by side with ONNX Runtime, the reference.

    Those in default layouts must give right results, others that do not are left out with a note.
    `ready` is where a plan already lies compiled, by name, and learns of what is compiled for a
    race; the `budget` learns what its phases took. `untimed` says why the reference has no time.
    """

    network: PreparedNetwork
    placement: Placement
    events: EventSink
    seed: int
    max_error: float
    staging: Path
    ready: dict[str, Path] = field(default_factory=dict[str, Path])
    budget: Budget
    rounds: Rounds = ONCE
    untimed: str = ""

    def folder(self, entry: PlanResult) -> Path:
        """Where a plan's library and weights are."""
        return self.ready.get(entry.name, self.staging / entry.name)

    def run(self, entries: Sequence[PlanResult]) -> tuple[list[PlanResult], Timing | None]:
        """What each right plan took, the fastest first, with its calls in their places, and what
        the reference took; None where it cannot be timed, and `untimed` says why.

        Raises NegativeVerdict when the results of one in default layouts are wrong, or all are.
        """
        model = self.network.model
        inputs = random_inputs(model.graph, self.seed)
        ordered = [inputs[name] for name in self.network.graph.inputs]
        with ExitStack() as stack:
            worker = stack.enter_context(open_networks(self.placement))
            own = make_peer(REFERENCE)
            self._compile(worker, entries)
            try:
                reference = open_reference(
                    stack, own, worker, self.placement, model.onnx_path, inputs
                )
            except EngineRefused as error:
                raise ModelError(
                    f"{model.name!r} cannot be checked: {error}",
                    hint="A network is checked against ONNX Runtime and ships only where that "
                    "runs it; element types that it lacks, a MatMul in bfloat16 say, must be cast.",
                ) from error
            theirs = [reference.expected[name] for name in model.outputs]
            outputs = self.network.graph.outputs
            checked = [
                replace(e, check=compare_outputs(worker.run(e.name, ordered), theirs, outputs))
                for e in entries
            ]
            right = [entry for entry in checked if self._is_right(entry)]
            wrong = [entry for entry in checked if entry not in right]
            inexcusable = [e for e in wrong if self.has_usual_layouts(e) or not right]
            if not inexcusable:
                return self._timed(worker, right, reference, inputs)
        raise self._wrong(inexcusable[0], inputs)

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
        beside = "in turn" if peer is None else "in turn with ONNX Runtime"
        self.events(Stage(name="compare", detail=beside))
        with self.budget.phase("compare"):
            runners = {e.name: network_runner(worker, e.name, ordered) for e in right}
            if peer is not None:
                runners[""] = peer_runner(peer, inputs)
            timings = time_together(runners, rounds=self.rounds)
            finished = [
                replace(e, timing=timings[e.name]).with_places(
                    time_places(worker, e.name, e.plan, ordered)
                )
                for e in right
            ]
        fastest = sorted(finished, key=lambda e: timings[e.name].latency_s)
        return fastest, timings.get("")

    def has_usual_layouts(self, entry: PlanResult) -> bool:
        """Whether all tensors of a plan lie in their default layouts."""
        return entry.plan.tensors == self.network.plan.tensors

    def _compile(self, worker: NetworkRunner, entries: Sequence[PlanResult]) -> None:
        """Compile the plans unless that was done before, side by side, and load all."""
        with self.budget.phase("compile"):
            missing = [
                ToCompile(
                    plan=entry.plan,
                    constants=self.network.graph.constants,
                    folder=self.staging / entry.name,
                )
                for entry in entries
                if entry.name not in self.ready
            ]
            if missing:
                names = ", ".join(network.folder.name for network in missing)
                kernels = sum(len(network.plan.symbols) for network in missing)
                self.events(Stage(name="compile", detail=f"{kernels} kernels: {names}"))
                with ExitStack() as stack:
                    cpus = len(self.placement.binding.cpus), len(allotted_cpus())
                    count = min(len(missing), *cpus)
                    more = [
                        stack.enter_context(open_networks(self.placement)) for _ in range(count - 1)
                    ]
                    compile_all([worker, *more], missing)
                self.ready |= {network.folder.name: network.folder for network in missing}
            for entry in entries:
                worker.load(entry.name, self.folder(entry), entry.plan.constant_names)

    def _is_right(self, entry: PlanResult) -> bool:
        assert entry.check is not None
        if entry.check.max_rel_error <= self.max_error:
            return True
        if self.has_usual_layouts(entry):
            return False
        self.events(
            Note(
                message=f"The plan {entry.name!r} gives wrong results "
                f"({_described(entry.check)}); left out."
            )
        )
        return False

    def _wrong(self, entry: PlanResult, inputs: Mapping[str, Array]) -> NegativeVerdict:
        """The error that names the task to blame."""
        assert entry.check is not None
        if entry.check.max_rel_error <= ROUNDING:
            return NegativeVerdict(
                f"the compiled network is {_described(entry.check)}, more than the allowed "
                f"{self.max_error:g}; rounding in single precision alone may do that. Nothing was "
                "shipped.",
                hint="Raise --max-error.",
            )
        self.events(Stage(name="bisect", detail="looking for the task that is wrong"))
        constants = self.network.graph.constants
        culprit = name_culprit(entry.plan, constants, self.placement, inputs, self.staging)
        return NegativeVerdict(
            f"the compiled network is {_described(entry.check)}, more than the allowed "
            f"{self.max_error:g}; {culprit}. Nothing was shipped.",
            hint="--max-error sets what is allowed; `tilewright show TASK --tir` shows a kernel.",
        )


def _described(check: NetworkCheck) -> str:
    return f"off by {check.max_rel_error:.3g} of the largest value of output {quoted(check.output)}"
