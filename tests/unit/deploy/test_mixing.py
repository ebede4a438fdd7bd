"""Choosing types anew by what compiled networks show, with races that are made up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import log10
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tilewright
from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from helpers.fakes.prepared_network import prepared, two_convolutions
from tilewright.core.budget import parse_budget
from tilewright.core.errors import NegativeVerdict, UsageError
from tilewright.core.noise import RoundingNoise
from tilewright.core.records import NetworkCheck
from tilewright.core.solutions import PICOSECONDS
from tilewright.deploy.mixing import Mixing
from tilewright.graph.plan_result import PlanResult
from tilewright.hardware.features import units_of
from tilewright.models import ModelOptions
from tilewright.plan.mixture import Mixture
from tilewright.plan.preparation import in_one_half
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
    mixture: Any = None
    counted: float = 0.8
    takes_s: list[float] = field(default_factory=lambda: [0.009, 0.008, 0.007])

    def __post_init__(self) -> None:
        fast, slow = (
            SimpleNamespace(noise=self.counted, cost_ps=round(seconds * PICOSECONDS))
            for seconds in (0.001, self.takes_s[0])
        )
        self.graph = SimpleNamespace(front=SimpleNamespace(points=[fast, slow], chosen=slow))

    def run(self, plans: Any) -> None:
        if self.wrong:
            self.checks["tuned"] = check(self.shows[0], 1e-6)
            raise NegativeVerdict("wrong")
        self._enter("chosen")

    def challenge(self, again: Any) -> None:
        self._enter(again.name)

    def mixed_again(self, scale: float, name: str, below_s: float) -> Any:
        seconds = self.takes_s[len(self.scales) + 1]
        if seconds >= below_s:
            return None
        self.scales.append(scale)
        self.graph.front.chosen.cost_ps = round(seconds * PICOSECONDS)
        return SimpleNamespace(name=name)

    def _enter(self, name: str) -> None:
        self.checks[name] = check(self.shows.pop(0))
        self.proposals.append(SimpleNamespace(name=name, plan=None))


def mixing() -> Mixing:
    noise = RoundingNoise(
        outputs=("y",), signals=(1.0,), largest=(1.0,), elements=(1,), tensors={}, calls={}
    )
    return Mixing(
        network=cast("Any", None), inputs=cast("Any", None), noise_s=0.0,
        request=request(least_sqnr_db=40.0), mixture=Mixture(noise=noise, allowed=(1.0,)),
    )  # fmt: skip


def raced(found: Mixing, played: Played) -> list[float]:
    found.race(cast("Any", played), [], cast("Any", played))
    return played.scales


def test_a_network_without_room_is_taken() -> None:
    assert raced(mixing(), Played([40.1])) == []


def test_noise_beyond_what_is_allowed_is_corrected() -> None:
    found, played = mixing(), Played([37.0, 40.1])
    assert raced(found, played) == [pytest.approx(10**0.3 / 0.8)]
    assert found.corrections == 1 and set(played.checks) == {"chosen", "chosen 2"}


def test_it_is_corrected_twice_at_most() -> None:
    assert len(raced(mixing(), Played([30.0, 31.0, 32.0]))) == 2


@pytest.mark.parametrize("shown_db", [41.0, 45.0])
def test_room_that_is_left_is_used(shown_db: float) -> None:
    found, played = mixing(), Played([shown_db, 40.1])
    assert raced(found, played) == [pytest.approx(10 ** (4.0 - shown_db / 10.0) / 0.8)]
    assert found.corrections == 1


def test_the_fastest_of_all_needs_no_more_room() -> None:
    fastest = Played([45.0])
    fastest.graph.front.chosen = fastest.graph.front.points[0]
    assert raced(mixing(), fastest) == []


def test_several_outputs_are_corrected_by_the_sum_that_is_counted() -> None:
    assert raced(mixing(), Played([43.0, 40.1], counted=1.6)) == [pytest.approx(10**-0.3 / 1.6)]


def test_room_is_left_where_that_is_not_faster() -> None:
    found = mixing()
    assert raced(found, Played([42.0], takes_s=[0.009, 0.00895])) == []
    assert found.corrections == 0
    too_noisy = Played([42.0, 39.0], takes_s=[0.009, 0.008, 0.009])
    assert len(raced(mixing(), too_noisy)) == 1, "what is within the error already is as fast"


def test_single_precision_that_is_not_enough_is_told() -> None:
    played = Played([35.0], wrong=True)
    played.graph = None
    with pytest.raises(NegativeVerdict, match=r"single precision, 1e-06 .*35 dB.* the 40 dB"):
        raced(mixing(), played)


def test_what_is_used_of_what_is_allowed() -> None:
    assert request(least_sqnr_db=40.0).used(check(43.0)) == pytest.approx(10**-0.3)
    assert request().used(check(10.0, 5e-3)) == pytest.approx(0.25)
    assert request().allows(check(-300.0, 5e-3)) and not request().allows(check(90.0, 0.02))
    assert request(least_sqnr_db=40.0).allows(check(40.0, 0.5))


def test_nothing_is_chosen_without_a_check() -> None:
    with pytest.raises(UsageError, match="is chosen by `optimize`"):
        tilewright.compile("zoo:mlp", options=ModelOptions(precision="auto"))


def test_of_all_in_one_half_type_its_own_noise_and_types_are_told() -> None:
    """No point of the front is what ships, and nothing was corrected for it."""
    features = ("avx512bf16",)
    on = altered(PLACEMENT, features=features, units=units_of(features, 64))
    network = prepared(two_convolutions())
    halves = in_one_half(network, replace(on, precision="bfloat16"))
    names = [call.name for call in network.fused.calls]
    noise = RoundingNoise(
        outputs=("y",), signals=(1.0,), largest=(1.0,), elements=(1,), tensors={},
        calls={name: (1e-5,) for name in names},
    )  # fmt: skip
    found = mixing()
    found.network, found.mixture = network, Mixture(noise=noise, allowed=(1e-4,), scale=2.0)
    found.inputs = cast("Any", SimpleNamespace(given=False))
    point = SimpleNamespace(cost_ps=10, assignment={})
    front = SimpleNamespace(points=[point], chosen=point)
    problem = SimpleNamespace(choices_of=lambda _: {})
    graph = SimpleNamespace(front=front, problem=problem)
    search: Any = SimpleNamespace(proposals=[], mixture=None, graph=graph)
    marks: list[list[bool]] = []
    for name in ("chosen", "bfloat16"):
        winner = PlanResult(name=name, plan=halves.plan, check=check(43.0))
        told = found.report(winner, search, on.target)
        marks.append([each.chosen for each in told.front])
    assert marks == [[True], [False]]
    assert told.correction == 1.0 and told.used == pytest.approx(10**-0.3)
    assert told.predicted_sqnr_db == pytest.approx(10.0 * log10(1.0 / 3e-5))
    assert [layer.multiplied for layer in told.layers] == 3 * ["bfloat16"]
    assert [layer.stored for layer in told.layers] == ["bfloat16", "bfloat16", "float32"]
    assert {layer.unit for layer in told.layers} == set(features)
