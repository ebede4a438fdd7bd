"""Compiling the chosen network, believing it, timing it beside the reference, and shipping it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.core.errors import NegativeVerdict, OutputError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.records import Candidate, Device, Measurement, Shipment
from tilewright.core.results import OptimizeResult
from tilewright.graph.network import Array
from tilewright.graph.sample import random_inputs
from tilewright.kernels.blueprint import NetworkBlueprint, TaskKey, blueprint
from tilewright.measure.networks import NetworkWorker
from tilewright.measure.peers.known import make_peer
from tilewright.session.bisecting import name_culprit
from tilewright.session.checking import NetworkCheck, compare_outputs
from tilewright.session.choices import defaults, shipping_key
from tilewright.session.manifest import LIBRARY, WEIGHTS
from tilewright.session.preparation import PreparedNetwork
from tilewright.session.reporting import Peaks, explain_difference, task_reports
from tilewright.session.reuse import artifact_fingerprint, shipped_already
from tilewright.session.timing import Timing, network_runner, peer_runner, time_together
from tilewright.session.winners import Winner
from tilewright.store.database import SqliteStore

_TUNED, _DEFAULT, _REFERENCE = "tuned", "default", "reference"


@dataclass(slots=True, kw_only=True)
class Shipping:
    """Turns winners into an artifact in `folder`; nothing there changes before all checks pass.

    `seconds` adds up the wall clock by phase; `plan` is what was shipped, under `fingerprint`.
    Where the folder already holds the very network, it is checked and timed again, not compiled,
    and the default settings keep their earlier time.
    """

    network: PreparedNetwork
    device: Device
    store: SqliteStore
    events: EventSink
    folder: Path
    seed: int
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    plan: NetworkBlueprint | None = None
    lost: dict[str, float | None] = field(default_factory=dict[str, float | None])
    fingerprint: str = ""

    def ship(
        self, winners: Mapping[TaskKey, Winner], peaks: Peaks, max_error: float
    ) -> OptimizeResult:
        """Compile, check against ONNX Runtime, time in turn, write the artifact."""
        candidates = {
            _TUNED: {key: winner.candidate for key, winner in winners.items()},
            _DEFAULT: defaults(self.network, self.device),
        }
        self.fingerprint = artifact_fingerprint(self.network, candidates[_TUNED], self.device)
        if self._lost_before():
            candidates[_TUNED] = candidates[_DEFAULT]
            self.fingerprint = artifact_fingerprint(self.network, candidates[_TUNED], self.device)
        ready = shipped_already(self.folder, self.fingerprint)
        only = ready or candidates[_TUNED] == candidates[_DEFAULT]
        names = [_TUNED] if only else [_TUNED, _DEFAULT]
        inputs = random_inputs(self.network.model.graph, self.seed)
        ordered = [inputs[name] for name in self.network.graph.inputs]
        with ExitStack() as stack:
            staging = stack.enter_context(_staging(self.folder))
            worker = stack.enter_context(NetworkWorker(self.device))
            reference = make_peer("onnxruntime")
            stack.callback(reference.stop)
            plans = {
                name: self._compile(worker, name, candidates[name], staging / name, ready)
                for name in names
            }
            for name in names:
                source = self.folder if ready else staging / name
                worker.load(name, source, [c.parameter.name for c in plans[name].constants])
            reference.start(self.network.model.onnx_path, self.device.threads, self.device.cpus)
            expected = reference.run(inputs)
            theirs = [expected[name] for name in self.network.model.outputs]
            checks = {
                _TUNED: self._believe(worker, candidates[_TUNED], (ordered, theirs), max_error)
            }
            if _DEFAULT in names:
                check = self._compared(worker, _DEFAULT, (ordered, theirs))
                if check.max_rel_error <= max_error:
                    checks[_DEFAULT] = check
                else:
                    names.remove(_DEFAULT)
                    self.events(Note(message="The default settings give wrong results; left out."))
            self.events(Stage(name="compare", detail="in turn with ONNX Runtime"))
            began_s = time.monotonic()
            runners = {name: network_runner(worker, name, ordered) for name in names}
            runners[_REFERENCE] = peer_runner(reference, inputs)
            timings = time_together(runners)
            self._spend("compare", began_s)
            shipped = min(names, key=lambda name: timings[name].latency_s)
            if not ready:
                _move(staging / shipped, self.folder)
        if shipped == _DEFAULT:
            self.lost[f"lost:{self.fingerprint}"] = timings[_TUNED].latency_s
            self.fingerprint = artifact_fingerprint(self.network, candidates[_DEFAULT], self.device)
            self.events(Note(message="The default settings ran faster and were shipped."))
        return self._finish(
            winners, candidates[shipped], checks[shipped], timings, (shipped, plans[shipped], peaks)
        )

    def _compile(
        self,
        worker: NetworkWorker,
        name: str,
        chosen: Mapping[TaskKey, Candidate],
        folder: Path,
        ready: bool,
    ) -> NetworkBlueprint:
        began_s = time.monotonic()
        plan = blueprint(self.network.arrangement, chosen)
        if not ready:
            self.events(Stage(name="compile", detail=f"{len(self.network.tasks)} kernels, {name}"))
            worker.compile(plan, self.network.graph.constants, folder)
        self._spend("compile", began_s)
        return plan

    def _lost_before(self) -> bool:
        """Whether this very network was slower than the default settings in an earlier run; then
        the race is not run again, so that a repeated command ships the same."""
        shipment = self.store.shipment(self.network.key, self.device.class_key)
        if shipment is not None:
            self.lost = {k: v for k, v in shipment.numbers.items() if k.startswith("lost:")}
        return f"lost:{self.fingerprint}" in self.lost

    def _compared(
        self, worker: NetworkWorker, name: str, data: tuple[list[Array], list[Array]]
    ) -> NetworkCheck:
        ordered, theirs = data
        return compare_outputs(worker.run(name, ordered), theirs, self.network.graph.outputs)

    def _believe(
        self,
        worker: NetworkWorker,
        chosen: Mapping[TaskKey, Candidate],
        data: tuple[list[Array], list[Array]],
        max_error: float,
    ) -> NetworkCheck:
        ordered, _ = data
        check = self._compared(worker, _TUNED, data)
        if check.max_rel_error <= max_error:
            return check
        self.events(Stage(name="bisect", detail="looking for the task that is wrong"))
        inputs = dict(zip(self.network.graph.inputs, ordered, strict=True))
        culprit = name_culprit(self.network, chosen, self.device, inputs, self.folder)
        raise NegativeVerdict(
            f"the compiled network is off by {check.max_rel_error:.3g} of its output's largest "
            f"value, more than the allowed {max_error:g}; {culprit}. Nothing was shipped.",
            hint="--max-error sets what is allowed; `tilewright show TASK --tir` shows a kernel.",
        )

    def _spend(self, phase: str, began_s: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - began_s

    def _finish(
        self,
        winners: Mapping[TaskKey, Winner],
        chosen: Mapping[TaskKey, Candidate],
        check: NetworkCheck,
        timings: Mapping[str, Timing],
        shipped: tuple[str, NetworkBlueprint, Peaks],
    ) -> OptimizeResult:
        name, plan, peaks = shipped
        measured: dict[TaskKey, Measurement] = {}
        for key, winner in winners.items():
            best = chosen[key] == winner.candidate
            measurement = winner.measurement if best else winner.default
            if measurement is not None:
                measured[key] = measurement
        checks = {
            key: w.check
            for key, w in winners.items()
            if w.check is not None and chosen[key] == w.candidate
        }
        network_s = timings[name].latency_s
        rows = task_reports(self.network.tasks, chosen, measured, checks, peaks, network_s)
        tasks_s = sum((row.latency_s or 0.0) * row.count for row in rows)
        complete = all(row.latency_s is not None for row in rows)
        ours, theirs = timings[name], timings[_REFERENCE]
        if _DEFAULT in timings:
            baseline = timings[_DEFAULT].latency_s
        else:
            same = chosen == defaults(self.network, self.device)
            baseline = self._earlier_baseline() or (ours.latency_s if same else None)
        calls = len(self.network.arrangement.calls)
        result = OptimizeResult(
            model=self.network.model.name,
            target=self.device.target,
            threads=self.device.threads,
            latency_s=ours.latency_s,
            baseline_latency_s=baseline,
            reference_latency_s=theirs.latency_s,
            speedup_vs_reference=theirs.latency_s / ours.latency_s,
            max_abs_error=check.max_abs_error,
            max_rel_error=check.max_rel_error,
            tasks=rows,
            measurements=0,
            failures=0,
            elapsed_s=0.0,
            artifact=str(self.folder),
            latency_spread=ours.spread,
            reference_spread=theirs.spread,
            tasks_latency_s=tasks_s if complete else 0.0,
            peak_flop_per_s=peaks.flop_per_s,
            peak_bytes_per_s=peaks.bytes_per_s,
            planned_memory_bytes=self.network.arrangement.memory.arena_bytes,
            weight_bytes=sum(a.nbytes for a in self.network.graph.constants.values()),
            network_key=self.network.key,
            explanation=explain_difference(ours.latency_s, tasks_s, calls) if complete else "",
        )
        self.plan = plan
        self._record(winners, chosen, result)
        return result

    def _earlier_baseline(self) -> float | None:
        shipment = self.store.shipment(self.network.key, self.device.class_key)
        return None if shipment is None else shipment.numbers.get("baseline_latency_s")

    def _record(
        self,
        winners: Mapping[TaskKey, Winner],
        chosen: Mapping[TaskKey, Candidate],
        result: OptimizeResult,
    ) -> None:
        numbers: dict[str, float | None] = {
            **self.lost,
            "baseline_latency_s": result.baseline_latency_s,
            "reference_latency_s": result.reference_latency_s,
            "max_rel_error": result.max_rel_error,
        }
        for key, winner in winners.items():
            if winner.check is not None and winner.candidate == chosen[key]:
                numbers[f"error:{shipping_key(key)}"] = winner.check.error
                numbers[f"bound:{shipping_key(key)}"] = winner.check.bound
        assignment = {shipping_key(key): candidate for key, candidate in chosen.items()}
        text = canonical_json({k: [c.implementation, c.settings] for k, c in assignment.items()})
        self.store.ship(
            Shipment(
                network_key=self.network.key,
                device_class=self.device.class_key,
                model=result.model,
                assignment=assignment,
                latency_s=result.latency_s,
                artifact_hash=digest(text),
                numbers=numbers,
                created_at=time.time(),
            )
        )


@contextmanager
def _staging(folder: Path) -> Generator[Path]:
    """A folder inside the output folder that is gone afterwards, whatever happens."""
    staging = folder / ".staging"
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
    except OSError as error:
        raise OutputError(
            f"cannot write to {folder}: {error.strerror}", hint="Choose another --out folder."
        ) from error
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _move(source: Path, folder: Path) -> None:
    try:
        for name in (LIBRARY, WEIGHTS):
            (source / name).replace(folder / name)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror}") from error
