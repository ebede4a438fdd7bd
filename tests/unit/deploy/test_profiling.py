"""Profiles of networks on a simulated device, which takes milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from helpers.fakes.measuring import failed
from tilewright.core.errors import NegativeVerdict, UsageError
from tilewright.core.events import Event, Note, Stage, discard
from tilewright.core.handoffs import ASSUMED
from tilewright.core.neighbours import BesideResult
from tilewright.core.records import EnergyUse, Measurement, NetworkMeasurement, Placement
from tilewright.core.results import ProfileResult
from tilewright.core.targets import Binding
from tilewright.deploy import profiling
from tilewright.deploy.opening import open_model
from tilewright.deploy.partnering import Partner
from tilewright.deploy.profiling import Profiler
from tilewright.hardware.meters import Meter
from tilewright.kernels.spaces import ranked_defaults
from tilewright.measure import contention, handoffs
from tilewright.measure.resident import MemoryPeak
from tilewright.measure.simulation import SimulatedMeasurer, SimulatedNetworks
from tilewright.predict.modelling import predictors_of
from tilewright.store.known_candidates import choose_plan
from tilewright.store.known_handoffs import known_handoff

MODEL = "op:conv2d[c=16,h=14,w=14,out=16,k=3,pad=1]"
ENERGY = EnergyUse(method="made up", energy_j=0.5, power_w=2.0)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tw.Session]:
    with tw.open(db=tmp_path / "a.db", target="simulated") as opened:
        yield opened


def profiled(
    session: tw.Session, events: list[Event] | None = None, model: str = MODEL, **changed: Any
) -> ProfileResult:
    told: list[Event] = [] if events is None else events
    profiler = Profiler(
        placement=session.placement, store=session.store, events=told.append, seed=0
    )
    return replace(profiler, **changed).run(model, tw.ModelOptions(), "default")


def kept(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> list[NetworkMeasurement]:
    """What is written of networks."""
    rows: list[NetworkMeasurement] = []
    monkeypatch.setattr(type(session.store), "add_network", lambda _self, row: rows.append(row))
    return rows


def test_every_task_and_the_network_are_timed(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, events = kept(session, monkeypatch), list[Event]()
    found = profiled(session, events)
    assert found.tasks and all(task.latency_s and task.in_place_s for task in found.tasks)
    assert found.network_latency_s >= sum(
        t.in_place_s * t.count for t in found.tasks if t.in_place_s
    )
    assert found.energy is None
    memory = found.memory
    assert memory is not None and memory.measured_bytes is None and "--memory" in memory.reason
    assert memory.planned_bytes >= memory.weight_bytes + memory.interface_bytes > 0
    (row,) = rows
    assert (row.latency_s, row.model) == (found.network_latency_s, MODEL)
    assert (row.memory_method, row.measured_bytes, row.energy) == ("", None, None)
    assert row.planned_bytes == memory.planned_bytes and row.versions and row.created_at > 0
    stages = [event.name for event in events if isinstance(event, Stage)]
    assert stages == ["import", "time", "compile"]


def test_kernels_are_measured_with_their_own_repeats(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocols: list[Any] = []
    whole = SimulatedMeasurer.measure

    def watched(self: Any, workload: Any, candidates: Any, protocol: Any, **named: Any) -> Any:
        protocols.append(protocol)
        return whole(self, workload, candidates, protocol, **named)

    monkeypatch.setattr(SimulatedMeasurer, "measure", watched)
    profiled(session)
    assert {(p.warmup, p.repeats) for p in protocols} == {(5, 15)}
    rows = session.measurements()
    assert rows.height == len(protocols), "every task was kept"


def test_memory_is_measured_where_that_is_wanted(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, events = kept(session, monkeypatch), list[Event]()
    peak = MemoryPeak(bytes=1 << 20, method="made up", reason="")
    monkeypatch.setattr(SimulatedNetworks, "memory_peak", lambda *_a, **_n: peak)
    memory = profiled(session, events, memory=True).memory
    assert memory is not None
    assert (memory.measured_bytes, memory.method, memory.reason) == (1 << 20, "made up", "")
    assert (rows[0].measured_bytes, rows[0].memory_method) == (1 << 20, "made up")
    assert "memory" in [event.name for event in events if isinstance(event, Stage)]
    nothing = MemoryPeak(bytes=None, method="made up", reason="not here")
    monkeypatch.setattr(SimulatedNetworks, "memory_peak", lambda *_a, **_n: nothing)
    memory = profiled(session, memory=True).memory
    assert memory is not None and memory.measured_bytes is None and memory.reason == "not here"
    assert (rows[1].measured_bytes, rows[1].memory_method) == (None, "")


def test_energy_is_read_while_the_network_runs(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, asked = kept(session, monkeypatch), list[float]()
    meter: Any = type("Toy", (), {"method": "made up"})()

    def measured(given: Meter, run: Any) -> EnergyUse:
        assert given is meter
        asked.append(run(0.001))
        return ENERGY

    monkeypatch.setattr(profiling, "measure_energy", measured)
    monkeypatch.setattr(profiling.targeting, "require_here", lambda _placement: None)
    monkeypatch.setattr(SimulatedNetworks, "repeat", lambda *_a, **_n: 3, raising=False)
    assert profiled(session, meter=meter).energy == ENERGY
    assert asked == [3] and rows[0].energy == ENERGY


def test_a_meter_of_this_machine_reads_no_other(session: tw.Session) -> None:
    meter: Any = type("Toy", (), {"method": "made up"})()
    with pytest.raises(UsageError, match="--power"):
        profiled(session, meter=meter)


def test_a_task_that_cannot_be_timed_is_named(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashed(_self: Any, workload: Any, candidates: Any, *_a: Any, **_n: Any) -> Any:
        return [failed(workload, candidates[0], "crash", message="it fell\nover")]

    monkeypatch.setattr(SimulatedMeasurer, "measure", crashed)
    with pytest.raises(NegativeVerdict, match=r"could not be timed, crash: it fell$"):
        profiled(session)


def test_what_there_is_to_say_about_weights_is_said(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, _ = open_model(MODEL, tw.ModelOptions(), session.placement)
    network = replace(network, model=replace(network.model, remark="they are random"))
    monkeypatch.setattr(profiling.opening, "open_model", lambda *_a, **_n: (network, None))
    events: list[Event] = []
    profiled(session, events)
    assert Note(message="they are random") in events


def test_the_fastest_other_implementation_that_is_known_is_told(session: tw.Session) -> None:
    (task,) = profiled(session).tasks
    assert (task.rival, task.rival_s) == ("", None)
    (known,) = session.store.outcomes(task.key, session.placement.key)
    assert isinstance(known, Measurement)
    (plain,) = open_model(MODEL, tw.ModelOptions(), session.placement)[0].tasks.values()
    others = (c for c, _ in ranked_defaults(plain.workload, plain.forms, session.placement))
    other = next(c for c in others if c.implementation != task.implementation)
    session.store.add([replace(known, candidate=other, samples_s=(1.0,))])
    (task,) = profiled(session).tasks
    assert (task.rival, task.rival_s) == (other.implementation, 1.0)


def test_an_artifact_is_profiled_as_it_was_compiled(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, nothing = open_model(MODEL, tw.ModelOptions(), session.placement)
    assert nothing is None
    plan = choose_plan(network, session.store, session.placement, "default")
    artifact: Any = type("Opened", (), {"plan": lambda *_: plan})()
    refused: list[Any] = []
    monkeypatch.setattr(profiling.opening, "open_model", lambda *_a, **_n: (network, artifact))
    monkeypatch.setattr(profiling, "choose_plan", lambda *given: refused.append(given))
    found = profiled(session)
    assert [task.key for task in found.tasks] == [t.workload.key for t in plan.tasks.values()]
    assert not refused


def test_beside_a_partner_scales_of_the_machine_are_kept(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, _ = open_model(MODEL, tw.ModelOptions(), session.placement)
    plan = choose_plan(network, session.store, session.placement, "default")
    monkeypatch.setattr(profiling.partnering, "opened", lambda *_a: (network, plan))
    monkeypatch.setattr(profiling.partnering, "company", lambda *_a: nullcontext(Company()))
    measured: list[tuple[int, ...]] = []

    def scale(placement: Placement) -> float:
        measured.append(placement.binding.cpus)
        return 4e10

    monkeypatch.setattr(contention, "measured_contention", scale)
    monkeypatch.setattr(handoffs, "in_this_process", lambda _placement: True)
    monkeypatch.setattr(handoffs, "lane_handoffs", lambda _placement: [7e-7] * 5)
    own = replace(session.placement, binding=Binding(cpus=(3,)))
    partner = Partner(model=MODEL, placement=replace(own, binding=Binding(cpus=(5,))))
    found = profiled(
        session, placement=own, partner=partner, part_handoffs=lambda _placement: [4e-4] * 5
    )
    assert found.beside == BESIDE and measured == [(3, 5)], "not on both one's cores"
    known = predictors_of(session.placement, session.store, discard)
    assert known.contention_bytes_per_s == 4e10
    kept = [known_handoff(session.store, own, kind).seconds for kind in ASSUMED]
    assert kept == [7e-7, 4e-4]
    profiled(session)
    assert len(measured) == 1, "it was measured without a partner"


BESIDE = BesideResult(
    partner=MODEL,
    threads=1,
    alone_s=1.0,
    beside_s=1.5,
    slowdown=1.5,
    partner_alone_s=1.0,
    partner_beside_s=1.5,
    partner_slowdown=1.5,
    spread=0.0,
    joint_gain=1.33,
    calls=(),
)


class Company:
    """Stands for a partner that is compiled and loaded."""

    name = "made up"

    def beside(self, *_arguments: object) -> BesideResult:
        return BESIDE
