"""Networks beside each other: who has which cores, and what is kept under which circumstance."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.core.errors import NegativeVerdict, TargetError, UsageError
from tilewright.core.neighbours import BesideResult, CallBeside
from tilewright.core.processes import ChildCrash
from tilewright.core.records import NetworkMeasurement
from tilewright.core.results import ProfileResult
from tilewright.core.timings import Burst
from tilewright.deploy import partnering
from tilewright.deploy.partnering import Company, Partner, with_partner
from tilewright.deploy.profiling import Profiler
from tilewright.hardware.features import units_of
from tilewright.measure import targeting
from tilewright.measure.circumstances import is_usual
from tilewright.measure.simulation import SimulatedNetworks
from tilewright.plan.preparation import prepare
from tilewright.store.known_candidates import SettingsName, choose_plan

FOUR = altered(PLACEMENT, access="here", threads=1, cpus=(3, 5, 6, 7))
HALVES = ("avx512bf16",)
MODEL = "op:conv2d[c=16,h=14,w=14,out=16,k=3,pad=1]"
FOUND = BesideResult(
    partner="zoo:other",
    threads=2,
    alone_s=0.010,
    beside_s=0.012,
    slowdown=1.2,
    partner_alone_s=0.004,
    partner_beside_s=0.005,
    partner_slowdown=1.25,
    spread=0.02,
    joint_gain=1 / 1.2 + 1 / 1.25,
    calls=(CallBeside(name="conv1", alone_s=1e-3, beside_s=2e-3),),
)


def test_each_has_cores_of_its_own() -> None:
    own, partner = with_partner(("zoo:other", 2), FOUR)
    assert partner is not None and with_partner(None, FOUR) == (FOUR, None)
    assert (own.binding.cpus, own.resources.threads) == ((3,), 1)
    assert partner.model == "zoo:other"
    there = partner.placement
    assert (there.binding.cpus, there.resources.threads) == ((5, 6), 2)
    assert own.key == FOUR.key, "cores change nothing of what is known alone"


def test_too_few_cores_and_other_devices_are_refused() -> None:
    with pytest.raises(TargetError, match="1 threads and 4 beside them need 5 CPUs") as caught:
        with_partner(("zoo:other", 4), FOUR)
    assert "--beside-threads" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="other cores of this machine"):
        with_partner(("zoo:other", 1), altered(FOUR, kind="cuda"))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tw.Session]:
    with tw.open(db=tmp_path / "a.db", target="simulated") as opened:
        yield opened


def profiled(session: tw.Session, partner: Partner) -> ProfileResult:
    profiler = Profiler(
        placement=session.placement, store=session.store, events=lambda _event: None, seed=0
    )
    return replace(profiler, partner=partner).run(MODEL, tw.ModelOptions(), "default")


def test_times_beside_are_kept_apart(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[NetworkMeasurement] = []
    monkeypatch.setattr(type(session.store), "add_network", lambda _self, row: rows.append(row))
    partner = Partner(model=MODEL, placement=session.placement)

    @contextmanager
    def opened(given: Partner, *_more: Any) -> Iterator[Company]:
        yield Company(partner=given, name="other1x2", player=lambda _files: [])

    monkeypatch.setattr(partnering, "company", opened)
    monkeypatch.setattr(Company, "beside", lambda *_a: FOUND)
    found = profiled(session, partner)
    assert found.beside == FOUND
    alone, beside = rows
    assert alone.latency_s == found.network_latency_s and is_usual(alone.device_class)
    assert (beside.latency_s, beside.network_key) == (0.012, alone.network_key)
    assert beside.device_class == f"{alone.device_class}+beside=other1x2"
    assert not is_usual(beside.device_class)
    shown = str(found)
    for told in ("zoo:other", "1.20, 1.25", "1.63", "conv1", "2.00"):
        assert told in shown, told


@pytest.mark.parametrize("settings", ["default", "best", "shipped"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_said_of_the_network_goes_for_its_partner(
    session: tw.Session, precision: Any, settings: SettingsName
) -> None:
    """It is compiled as it would be by itself; the shapes are the network's own."""
    said = tw.ModelOptions(precision=precision, shapes={"other": (4, 4)}, seed=3)
    placement = altered(PLACEMENT, features=HALVES, units=units_of(HALVES, 64))
    partner = Partner(model=MODEL, placement=placement)
    network, plan = partnering.opened(partner, said, settings, 1e-6, session.store)
    assert network.precision == precision
    allowed = replace(placement, precision=precision)
    alone = prepare(MODEL, tw.ModelOptions(precision=precision, seed=3), allowed)
    assert network.key == alone.key
    usual = "default" if settings == "default" else "best"
    assert plan == choose_plan(alone, session.store, allowed, usual, 1e-6)


def test_the_allowed_error_goes_for_the_partner(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, float]] = []

    def chosen(network: Any, store: Any, at: Any, settings: SettingsName, error: float) -> Any:
        given.append((settings, error))
        return choose_plan(network, store, at, settings, error)

    monkeypatch.setattr(partnering, "choose_plan", chosen)
    monkeypatch.setattr(partnering, "company", lambda *_a: pytest.fail("it was not prepared"))
    monkeypatch.setattr(targeting, "open_measurer", lambda *_a, **_n: pytest.fail("timed"))
    partner = Partner(model=MODEL, placement=session.placement)
    profiler = Profiler(
        placement=session.placement,
        store=session.store,
        events=lambda _event: None,
        seed=0,
        max_error=0.25,
        partner=partner,
    )
    with pytest.raises(pytest.fail.Exception, match="timed"):
        profiler.run(MODEL, tw.ModelOptions(), "default")
    assert given == [("default", 0.25)]


def test_a_precision_that_the_partner_cannot_have_is_refused(session: tw.Session) -> None:
    said = tw.ModelOptions(precision="bfloat16")
    partner = Partner(model=MODEL, placement=PLACEMENT)
    with pytest.raises(TargetError, match="no products of bfloat16"):
        partnering.opened(partner, said, "best", 1e-3, session.store)


def test_a_partner_that_is_no_model_is_refused_before_anything_is_timed(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measuring(*_a: Any, **_n: Any) -> None:
        pytest.fail("something was timed")

    monkeypatch.setattr(targeting, "open_measurer", measuring)
    with pytest.raises(UsageError, match="no network 'nothing'"):
        profiled(session, Partner(model="zoo:nothing", placement=session.placement))


@pytest.mark.parametrize(
    ("fault", "said"),
    [(ChildCrash(-11, ""), "SIGSEGV"), (NegativeVerdict("the partner hangs"), "partner hangs")],
)
def test_a_partner_that_crashes_or_hangs_leaves_nothing(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch, fault: Exception, said: str
) -> None:
    rows: list[NetworkMeasurement] = []
    monkeypatch.setattr(type(session.store), "add_network", lambda _self, row: rows.append(row))
    partner = Partner(model=MODEL, placement=session.placement)

    def crashing(_files: tuple[Path, Path]) -> list[Burst]:
        raise fault

    @contextmanager
    def opened(given: Partner, *_more: Any) -> Iterator[Company]:
        yield Company(partner=given, name="other1x2", player=crashing)

    def kept_running(_self: Any, _name: str, _inputs: Any, files: Any, **_n: Any) -> list[Burst]:
        files[1].touch()
        while files[0].exists():
            time.sleep(1e-3)
        return [Burst(0.0, 1.0, 1, 1.0)]

    monkeypatch.setattr(SimulatedNetworks, "keep_running", kept_running, raising=False)
    monkeypatch.setattr(partnering, "_WINDOW_S", 0.01)
    monkeypatch.setattr(partnering, "company", opened)
    with pytest.raises(NegativeVerdict, match=f"beside op:conv2d.*: .*{said}"):
        profiled(session, partner)
    assert rows == []
