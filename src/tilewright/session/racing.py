"""Compiling contenders, checking each against ONNX Runtime, and timing all of them in turn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import Device
from tilewright.graph.network import Array
from tilewright.graph.sample import random_inputs
from tilewright.kernels.blueprint import NetworkBlueprint, blueprint
from tilewright.measure.networks import NetworkWorker
from tilewright.measure.peers.known import make_peer
from tilewright.session.bisecting import ROUNDING, name_culprit
from tilewright.session.checking import NetworkCheck, compare_outputs
from tilewright.session.contenders import Contender
from tilewright.session.timing import Timing, network_runner, peer_runner, time_together


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """A contender that gave right results: its plan, its check, its time."""

    contender: Contender
    plan: NetworkBlueprint
    check: NetworkCheck
    timing: Timing


@dataclass(slots=True, kw_only=True)
class Race:
    """Contenders side by side with ONNX Runtime, the reference.

    Those in default layouts must give right results, others that do not are left out with a note.
    `ready` is where a contender already lies compiled, by name; `seconds` adds up the wall clock by
    phase.
    """

    device: Device
    events: EventSink
    seed: int
    max_error: float
    staging: Path
    ready: Mapping[str, Path] = field(default_factory=dict[str, Path])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

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
            worker = stack.enter_context(NetworkWorker(self.device))
            reference = make_peer("onnxruntime")
            stack.callback(reference.stop)
            plans = {c.name: self._compiled(worker, c) for c in contenders}
            reference.start(model.onnx_path, self.device.threads, self.device.cpus)
            expected = reference.run(inputs)
            theirs = [expected[name] for name in model.outputs]
            checks = {c.name: self._check(worker, c, inputs, theirs) for c in contenders}
            right = [c for c in contenders if self._is_right(c, checks[c.name])]
            wrong = [c for c in contenders if c not in right]
            inexcusable = [c for c in wrong if c.usual_layouts or not right]
            if inexcusable:
                raise self._wrong(inexcusable[0], checks[inexcusable[0].name], inputs)
            self.events(Stage(name="compare", detail="in turn with ONNX Runtime"))
            began_s = time.monotonic()
            runners = {c.name: network_runner(worker, c.name, _ordered(c, inputs)) for c in right}
            timings = time_together({**runners, "": peer_runner(reference, inputs)})
            self._spend("compare", began_s)
        finished = [
            Finish(contender=c, plan=plans[c.name], check=checks[c.name], timing=timings[c.name])
            for c in right
        ]
        return sorted(finished, key=lambda finish: finish.timing.latency_s), timings[""]

    def _compiled(self, worker: NetworkWorker, contender: Contender) -> NetworkBlueprint:
        """Compile a contender unless that was done before, and load it."""
        began_s = time.monotonic()
        network, folder = contender.network, self.folder(contender)
        plan = blueprint(network.arrangement, contender.candidates)
        if contender.name not in self.ready:
            detail = f"{len(network.tasks)} kernels, {contender.name}"
            self.events(Stage(name="compile", detail=detail))
            worker.compile(plan, network.graph.constants, folder)
        worker.load(contender.name, folder, [c.parameter.name for c in plan.constants])
        self._spend("compile", began_s)
        return plan

    def _check(
        self,
        worker: NetworkWorker,
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
                message=f"The contender {contender.name!r} gives wrong results (off by "
                f"{check.max_rel_error:.3g} of the largest value); left out."
            )
        )
        return False

    def _wrong(
        self, contender: Contender, check: NetworkCheck, inputs: dict[str, Array]
    ) -> NegativeVerdict:
        """The error that names the task to blame."""
        if check.max_rel_error <= ROUNDING:
            return NegativeVerdict(
                f"the compiled network is off by {check.max_rel_error:.3g} of its output's largest "
                f"value, more than the allowed {self.max_error:g}; rounding in single precision "
                "alone may do that. Nothing was shipped.",
                hint="Raise --max-error.",
            )
        self.events(Stage(name="bisect", detail="looking for the task that is wrong"))
        network, candidates = contender.network, contender.candidates
        culprit = name_culprit(network, candidates, self.device, inputs, self.staging)
        return NegativeVerdict(
            f"the compiled network is off by {check.max_rel_error:.3g} of its output's largest "
            f"value, more than the allowed {self.max_error:g}; {culprit}. Nothing was shipped.",
            hint="--max-error sets what is allowed; `tilewright show TASK --tir` shows a kernel.",
        )

    def _spend(self, phase: str, began_s: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - began_s


def _ordered(contender: Contender, inputs: Mapping[str, Array]) -> list[Array]:
    return [inputs[name] for name in contender.network.graph.inputs]
