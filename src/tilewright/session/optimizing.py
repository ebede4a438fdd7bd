"""`optimize`: tune, choose, compile, check, time, ship."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import Candidate, Device, Run
from tilewright.core.results import OptimizeResult
from tilewright.hardware.environment import noise_warnings, read_environment
from tilewright.kernels.blueprint import TaskKey
from tilewright.measure.kernels import KernelMeasurer
from tilewright.models import ModelOptions
from tilewright.session.checking import KernelCheck
from tilewright.session.choices import shipping_key
from tilewright.session.interrupts import graceful_interrupt
from tilewright.session.manifest import Origin, write_manifest
from tilewright.session.preparation import PreparedNetwork, prepare
from tilewright.session.protocols import kernel_protocol
from tilewright.session.reporting import Peaks
from tilewright.session.shelf import environment_card, measured_peaks
from tilewright.session.shipping import Shipping
from tilewright.session.tuning import NetworkTuner, TuningTerms, Winner
from tilewright.store.database import SqliteStore
from tilewright.tune.budget import Budget, Spending

_BUILD_S = 0.16
_FINISH_S = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """What was asked for. `folder` is where the artifact goes."""

    model: str
    options: ModelOptions
    budget: Budget
    folder: Path
    max_error: float
    seed: int


class Optimizer:
    """One `optimize` command against a store and a device."""

    def __init__(self, device: Device, store: SqliteStore, events: EventSink) -> None:
        self._device = device
        self._store = store
        self._events = events

    def run(self, request: OptimizeRequest) -> OptimizeResult:
        """Do it; raises NegativeVerdict when no right result comes out."""
        began_s = time.monotonic()
        self._events(Stage(name="import", detail=request.model))
        network = prepare(request.model, request.options, self._device)
        self._store.add_device(self._device)
        self._store.add_workloads([task.workload for task in network.tasks.values()])
        earlier = self._store.runs(network.key, self._device.class_key)
        spending = Spending(request.budget, earlier, began_s=began_s)
        run = self._store.begin_run(
            Run(
                command="optimize",
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
            converged_before=any(r.state == "converged" for r in earlier),
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

    def carry_out(self) -> OptimizeResult:
        environment = read_environment()
        weights = sum(a.nbytes for a in self.network.graph.constants.values())
        self.spending.reserve_s = (
            _FINISH_S + 2 * _BUILD_S * len(self.network.tasks) + 3 * weights / 2e8
        )
        with KernelMeasurer(self.device, seed=self.request.seed) as measurer:
            measurer.start()
            peaks = measured_peaks(self.store, self.device, measurer)
            winners, converged = self._tune(measurer, peaks)
            spent = measurer.spent
            self.seconds |= {"build": spent.build_s, "run": spent.run_s, "verify": spent.verify_s}
        shipping = Shipping(
            network=self.network,
            device=self.device,
            store=self.store,
            events=self.events,
            folder=self.request.folder,
            seed=self.request.seed,
        )
        result = shipping.ship(winners, peaks, self.request.max_error)
        self.seconds.update(shipping.seconds)
        noise = noise_warnings(environment, read_environment())
        for message in noise:
            self.events(Note(message=message))
        result = replace(result, warnings=(*result.warnings, *noise))
        self.close_run("converged" if converged else "done")
        elapsed_s = self.spending.elapsed_s
        self.seconds["overhead"] = max(0.0, elapsed_s - sum(self.seconds.values()))
        result = replace(
            result,
            elapsed_s=elapsed_s,
            measurements=self.run.measurements,
            failures=self.run.failures,
            seconds_by_phase=dict(self.seconds),
            environment=environment_card(environment, self.device),
        )
        if shipping.plan is not None:
            write_manifest(
                self.request.folder,
                result,
                self.network,
                shipping.plan,
                self.device,
                Origin(
                    model=_absolute(self.request.model),
                    options=self.request.options,
                    fingerprint=shipping.fingerprint,
                ),
            )
        return result

    def close_run(self, state: str) -> None:
        """Keep what this run spent."""
        self.run = replace(
            self.run,
            state=state,
            spent_s=self.spending.elapsed_s,
            measurements=self.tuner.measurements if self.tuner else 0,
            failures=self.tuner.failures if self.tuner else 0,
        )
        self.store.update_run(self.run)

    def _tune(self, measurer: KernelMeasurer, peaks: Peaks) -> tuple[dict[TaskKey, Winner], bool]:
        terms = TuningTerms(
            protocol=kernel_protocol(self.device),
            seed=self.request.seed,
            run_id=self.run.id,
            events=self.events,
        )
        self.tuner = NetworkTuner(self.network, self.device, self.store, measurer, terms)
        settled = self.converged_before and self.tuner.outdated == 0
        may_measure = not self.spending.exhausted and not settled
        converged = settled
        if may_measure:
            self.events(Stage(name="tune", detail=f"{len(self.network.tasks)} tasks"))
            with graceful_interrupt() as interruption:
                converged = self.tuner.run(
                    self.spending,
                    peaks,
                    stop=interruption,
                    checkpoint=lambda: self.close_run("running"),
                )
            if interruption.requested:
                raise KeyboardInterrupt
        self.events(Stage(name="check", detail="winners against numpy"))
        winners = self.tuner.winners(
            measure=may_measure,
            checked=self._earlier_checks(),
        )
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
