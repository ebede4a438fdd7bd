"""Choosing types anew by what compiled networks show, with races that are made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tilewright
from tilewright.core.budget import parse_budget
from tilewright.core.errors import NegativeVerdict, UsageError
from tilewright.core.records import NetworkCheck
from tilewright.deploy.mixing import Mixing
from tilewright.models import ModelOptions
from tilewright.search.levels import OptimizeRequest


def request(**named: Any) -> OptimizeRequest:
    return OptimizeRequest(
        model="m", options=ModelOptions(precision="auto"), budget=parse_budget(0),
        folder=Path("o"), max_error=0.01, seed=0, **named,
    )  # fmt: skip


def check(sqnr_db: float, rel: float = 1e-3) -> NetworkCheck:
    return NetworkCheck(max_abs_error=rel, max_rel_error=rel, sqnr_db=sqnr_db)


@dataclass
class Played:
    """A race in which each plan that is chosen shows the next of some ratios."""

    shows: list[float]
    checks: dict[str, NetworkCheck] = field(default_factory=dict[str, NetworkCheck])
    scales: list[float] = field(default_factory=list[float])
    proposals: list[Any] = field(default_factory=list[Any])
    graph: Any = None
    wrong: bool = False

    def __post_init__(self) -> None:
        points = ["fast", "slow"]
        self.graph = SimpleNamespace(front=SimpleNamespace(points=points, chosen="slow"))

    def run(self, plans: Any) -> None:
        if self.wrong:
            self.checks["tuned"] = check(self.shows[0], 1e-6)
            raise NegativeVerdict("wrong")
        self._enter("chosen")

    def challenge(self, again: Any) -> None:
        self._enter(again.name)

    def mixed_again(self, scale: float, name: str) -> Any:
        self.scales.append(scale)
        return SimpleNamespace(name=name)

    def _enter(self, name: str) -> None:
        self.checks[name] = check(self.shows.pop(0))
        self.proposals.append(SimpleNamespace(name=name, plan=None))


def mixing(predicted: float, monkeypatch: pytest.MonkeyPatch) -> Mixing:
    made = object.__new__(Mixing)
    made.request, made.corrections = request(least_sqnr_db=40.0), 0
    monkeypatch.setattr(Mixing, "predicted", lambda *_: predicted)
    return made


def raced(found: Mixing, played: Played) -> list[float]:
    found.race(cast("Any", played), [], cast("Any", played))
    return played.scales


def test_a_network_that_is_as_predicted_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert raced(mixing(0.8, monkeypatch), Played([41.0])) == []


def test_noise_beyond_what_is_allowed_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    found, played = mixing(0.8, monkeypatch), Played([37.0, 40.5])
    assert raced(found, played) == [pytest.approx(10**0.3 / 0.8)]
    assert found.corrections == 1 and set(played.checks) == {"chosen", "chosen 2"}


def test_it_is_corrected_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(raced(mixing(0.8, monkeypatch), Played([30.0, 31.0, 32.0]))) == 2


def test_room_that_is_left_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found, played = mixing(0.8, monkeypatch), Played([45.0, 40.1])
    assert raced(found, played) == [pytest.approx(10**-0.5 / 0.8)]
    fastest = Played([45.0])
    fastest.graph.front.chosen = fastest.graph.front.points[0]
    assert raced(mixing(0.8, monkeypatch), fastest) == []


def test_single_precision_that_is_not_enough_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played([35.0], wrong=True)
    played.graph = None
    with pytest.raises(NegativeVerdict, match=r"single precision, 1e-06 .*35 dB.* the 40 dB"):
        raced(mixing(0.8, monkeypatch), played)


def test_what_is_used_of_what_is_allowed() -> None:
    assert request(least_sqnr_db=40.0).used(check(43.0)) == pytest.approx(10**-0.3)
    assert request().used(check(10.0, 5e-3)) == pytest.approx(0.25)
    assert request().allows(check(-300.0, 5e-3)) and not request().allows(check(90.0, 0.02))
    assert request(least_sqnr_db=40.0).allows(check(40.0, 0.5))


def test_nothing_is_chosen_without_a_check() -> None:
    with pytest.raises(UsageError, match="is chosen by `optimize`"):
        tilewright.compile("zoo:mlp", options=ModelOptions(precision="auto"))
