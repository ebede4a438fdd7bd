"""`optimize`: tune, choose, compile, check, time, ship."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import Candidate, Device, Run
from tilewright.core.results import OptimizeResult
from tilewright.hardware.environment import noise_warnings, read_environment
from tilewright.hardware.remote import remote_place
from tilewright.kernels.blueprint import TaskKey
from tilewright.measure.base import Measurer
from tilewright.models import ModelOptions
from tilewright.session.checking import KernelCheck
from tilewright.session.choices import shipping_key
from tilewright.session.contenders import TUNED, Contender
from tilewright.session.interrupts import graceful_interrupt
from tilewright.session.levels import Level, bare_tasks
from tilewright.session.manifest import Origin, write_manifest
from tilewright.session.measuring import open_measurer
from tilewright.session.preparation import PreparedNetwork, prepare
from tilewright.session.protocols import kernel_protocol
from tilewright.session.reporting import Peaks
from tilewright.session.shelf import environment_card, measured_peaks
from tilewright.session.shipping import Shipped, Shipping
from tilewright.session.tasks_only import tasks_only
from tilewright.session.tuning import NetworkTuner, TuningTerms
from tilewright.session.winners import Referee, Winner, measured_last
from tilewright.store.database import SqliteStore
from tilewright.tune.budget import Budget, Spending
from tilewright.tune.tuners import DEFAULT, tuner_factory

_BUILD_S = 0.16
_FINISH_S = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """What was asked for. `folder` is where the artifact goes; `command` is the verb."""

    model: str
    options: ModelOptions
    budget: Budget
    folder: Path
    max_error: float
    seed: int
    tuner: str = DEFAULT
    level: Level = "subgraph"
    command: str = "optimize"


class Optimizer:
    """One `optimize` command against a store and a device."""

    def __init__(self, device: Device, store: SqliteStore, events: EventSink) -> None:
        self._device = device
        self._store = store
        self._events = events

    def run(self, request: OptimizeRequest) -> OptimizeResult:
        """Do it; raises NegativeVerdict when no right result comes out."""
        began_s = time.monotonic()
        tuner_factory(request.tuner)
        self._events(Stage(name="import", detail=request.model))
        network = prepare(request.model, request.options, self._device)
        self._store.add_device(self._device)
        searched = dict(network.tasks)
        if request.level == "op":
            searched |= bare_tasks(network.tasks)
        self._store.add_workloads([task.workload for task in searched.values()])
        earlier = self._store.runs(network.key, self._device.class_key)
        spending = Spending(request.budget, earlier, began_s=began_s)
        run = self._store.begin_run(
            Run(
                command=request.command,
                model=network.model.name,
                network_key=network.key,
                device_class=self._device.class_key,
                seed=request.seed,
                state="running",
                created_at=time.time(),
            )
        )
        work = _Work(
            request=request,
            network=network,
            device=self._device,
            store=self._store,
            events=self._events,
            spending=spending,
            run=run,
            seconds={"import": spending.elapsed_s},
            converged_before=request.level == "subgraph"
            and request.tuner == DEFAULT
            and any(r.state == "converged" for r in earlier),
        )
        try:
            return work.carry_out()
        except BaseException:
            work.close_run("interrupted")
            raise


@dataclass(slots=True, kw_only=True)
class _Work:
    request: OptimizeRequest
    network: PreparedNetwork
    device: Device
    store: SqliteStore
    events: EventSink
    spending: Spending
    run: Run
    seconds: dict[str, float]
    converged_before: bool
    tuner: NetworkTuner | None = None
    referee: Referee | None = None

    def carry_out(self) -> OptimizeResult:
        environment = read_environment()
        weights = sum(a.nbytes for a in self.network.graph.constants.values())
        self.spending.reserve_s = (
            _FINISH_S + 2 * _BUILD_S * len(self.network.tasks) + 3 * weights / 2e8
        )
        with open_measurer(self.device, seed=self.request.seed) as measurer:
            with self._timed("start"):
                measurer.start()
                peaks = measured_peaks(self.store, self.device, measurer)
            winners, converged = self._tune(measurer, peaks)
        shipped: Shipped | None = None
        if remote_place(self.device) is None:
            shipped = self._ship(winners, peaks)
            result = shipped.result
        else:
            result = tasks_only(self.network, winners, peaks, self.device)
        noise = noise_warnings(environment, read_environment())
        for message in noise:
            self.events(Note(message=message))
        result = replace(result, warnings=(*result.warnings, *noise))
        of_network = converged and self.request.level == "subgraph"
        self.close_run("converged" if of_network else "done")
        elapsed_s = self.spending.elapsed_s
        self.seconds["overhead"] = max(0.0, elapsed_s - sum(self.seconds.values()))
        result = replace(
            result,
            elapsed_s=elapsed_s,
            measurements=self.run.measurements,
            failures=self.run.failures,
            tuner=self.request.tuner,
            level=self.request.level,
            curve=self.tuner.curve if self.tuner else (),
            searches=self.tuner.searches() if self.tuner else (),
            seconds_by_phase=dict(self.seconds),
            environment=environment_card(environment, self.device),
        )
        if shipped is not None:
            write_manifest(
                self.request.folder,
                result,
                shipped.network,
                shipped.plan,
                self.device,
                Origin(
                    model=_absolute(self.request.model),
                    options=self.request.options,
                    fingerprint=shipped.fingerprint,
                    layouts=shipped.network.plan,
                ),
            )
        return result

    def _ship(self, winners: Mapping[TaskKey, Winner], peaks: Peaks) -> Shipped:
        shipping = Shipping(
            device=self.device,
            store=self.store,
            events=self.events,
            folder=self.request.folder,
            seed=self.request.seed,
        )
        tuned = Contender(name=TUNED, network=self.network, winners=winners)
        shipped = shipping.ship([tuned], peaks, self.request.max_error)
        self.seconds.update(shipping.seconds)
        return shipped

    def close_run(self, state: str) -> None:
        """Keep what this run spent."""
        self.run = replace(
            self.run,
            state=state,
            spent_s=self.spending.elapsed_s,
            measurements=sum(part.measurements for part in self._counting()),
            failures=sum(part.failures for part in self._counting()),
        )
        self.store.update_run(self.run)

    def _counting(self) -> list[NetworkTuner | Referee]:
        return [part for part in (self.tuner, self.referee) if part is not None]

    @contextmanager
    def _timed(self, phase: str) -> Generator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - began_s

    def _tune(self, measurer: Measurer, peaks: Peaks) -> tuple[dict[TaskKey, Winner], bool]:
        """Search, then pick winners. The time of each goes to `seconds` by what it was spent on:
        `search` is what the loop took beyond building, running and the tuners' thinking."""
        terms = TuningTerms(
            protocol=kernel_protocol(self.device),
            seed=self.request.seed,
            run_id=self.run.id,
            events=self.events,
            tuner=self.request.tuner,
            level=self.request.level,
        )
        with self._timed("recall"):
            tuner = NetworkTuner(self.network.tasks, self.device, self.store, measurer, terms)
        self.tuner = tuner
        settled = self.converged_before and tuner.outdated == 0
        may_measure = not self.spending.exhausted and not settled
        converged = settled
        if may_measure:
            self.events(Stage(name="tune", detail=f"{len(tuner.tasks)} tasks"))
            before, began_s = replace(measurer.spent), time.monotonic()
            self.spending.reserve_count = measured_last(
                self.request.level, len(self.network.tasks), self.spending
            )
            with graceful_interrupt() as interruption:
                converged = tuner.run(
                    self.spending,
                    peaks,
                    stop=interruption,
                    checkpoint=lambda: self.close_run("running"),
                )
            self.spending.reserve_count = 0
            if interruption.requested:
                raise KeyboardInterrupt
            loop = {
                "build": measurer.spent.build_s - before.build_s,
                "run": measurer.spent.run_s - before.run_s,
                "model": tuner.model_s,
            }
            loop["search"] = max(0.0, time.monotonic() - began_s - sum(loop.values()))
            self.seconds |= loop
        self.events(Stage(name="check", detail="winners against numpy"))
        self.referee = Referee(tuner, self.device, self.store, measurer, terms)
        with self._timed("verify"):
            winners = self.referee.winners(
                spending=self.spending if may_measure else None, checked=self._earlier_checks()
            )
        self.seconds["finalists"] = self.referee.again_s
        self.seconds["verify"] -= self.referee.again_s
        return winners, converged

    def _earlier_checks(self) -> Mapping[TaskKey, tuple[Candidate, KernelCheck]]:
        """Checks that an earlier shipment of this network already made."""
        shipment = self.store.shipment(self.network.key, self.device.class_key)
        if shipment is None or (self.tuner and self.tuner.outdated):
            return {}
        found: dict[TaskKey, tuple[Candidate, KernelCheck]] = {}
        for key in self.network.tasks:
            name = shipping_key(key)
            bound = shipment.numbers.get(f"bound:{name}")
            if name in shipment.assignment and bound is not None:
                error = shipment.numbers.get(f"error:{name}")
                check = KernelCheck(error=error, bound=bound)
                found[key] = (shipment.assignment[name], check)
        return found


def _absolute(model: str) -> str:
    """A path as an absolute one, so that the artifact finds its model from anywhere."""
    return str(Path(model).resolve()) if model.endswith(".onnx") else model
