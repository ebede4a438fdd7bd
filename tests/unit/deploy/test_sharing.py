"""Plans that pack weights as earlier ones do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tilewright.core.records import Outcome
from tilewright.core.timings import Timing
from tilewright.deploy import sharing
from tilewright.deploy.racing import Race
from tilewright.graph.plan_result import PlanResult
from tilewright.hardware.device import local_placement
from tilewright.kernels.plans import packed_constant
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.preparation import prepare
from tilewright.store.base import Store

PLACE = local_placement(2)
NOTHING_KNOWN = cast(Store, SimpleNamespace(outcomes=lambda *_: list[Outcome]()))


@pytest.fixture(scope="module")
def networks() -> tuple[PreparedNetwork, PreparedNetwork]:
    one, four = (prepare("zoo:mlp", ModelOptions(batch=batch), PLACE) for batch in (1, 4))
    return one, four


@dataclass
class FakeRace:
    """Times plans by what they are told to take, and notes which came."""

    finished: list[PlanResult]
    times: dict[str, float]
    in_place: dict[str, float] = field(default_factory=dict[str, float])
    placement: Any = PLACE
    came: list[str] = field(default_factory=list[str])

    @property
    def winner(self) -> PlanResult:
        return self.finished[0]

    def challenge(self, entry: PlanResult) -> None:
        self.came.append(entry.name)
        timed = replace(entry, timing=timing(self.times[entry.name])).with_places(self.in_place)
        self.finished = sorted(
            [timed, *self.finished], key=lambda each: cast(Timing, each.timing).latency_s
        )


def timing(seconds: float) -> Timing:
    return Timing(rounds_s=((seconds,),))


def agreed(networks: tuple[PreparedNetwork, PreparedNetwork], race: FakeRace) -> PlanResult:
    others = sharing.OtherShapes(earlier=[networks[1].plan])
    sharing.agree(cast(Race, race), others, NOTHING_KNOWN, 1e-4)
    return race.winner


def own(network: PreparedNetwork) -> PlanResult:
    entry = PlanResult(name="tuned", plan=network.plan, timing=timing(1.0))
    return entry.with_places({call.name: 0.3 for call in network.plan.calls})


def contents(network: PreparedNetwork, entry: PlanResult) -> set[bytes]:
    known = network.graph.constants
    return {np.asarray(packed_constant(c, known)).tobytes() for c in entry.plan.constants}


def test_weights_are_packed_alike(networks: tuple[PreparedNetwork, PreparedNetwork]) -> None:
    one, four = networks
    theirs = contents(four, own(four))
    assert len(theirs - contents(one, own(one))) >= 2, "nothing differs: the test proves nothing"
    winner = agreed(networks, FakeRace([own(one)], {sharing.SHARED: 1.01}))
    assert winner.name == sharing.SHARED and contents(one, winner) == theirs
    assert winner.plan.tensors == one.plan.tensors


def test_some_are_where_all_cost_too_much(
    networks: tuple[PreparedNetwork, PreparedNetwork],
) -> None:
    one, four = networks
    first, *rest = (call.name for call in one.plan.calls)
    slow = {first: 0.9, **dict.fromkeys(rest, 0.3)}
    times = {sharing.SHARED: 1.6, f"some {sharing.SHARED}": 1.0}
    race = FakeRace([own(one)], times, in_place=slow)
    winner = agreed(networks, race)
    assert race.came == [*times] and winner.name == f"some {sharing.SHARED}"
    shared = contents(one, winner) & contents(four, own(four))
    assert len(shared) == len(contents(four, own(four))) - 1


def test_other_kernels_do_not_decide(networks: tuple[PreparedNetwork, PreparedNetwork]) -> None:
    one, four = networks
    same = dict.fromkeys((call.name for call in one.plan.calls), 0.3)
    winner = agreed(networks, FakeRace([own(one)], {sharing.SHARED: 1.2}, in_place=same))
    assert winner.name == sharing.SHARED and contents(one, winner) == contents(four, own(four))


def test_none_are_where_each_costs_too_much(
    networks: tuple[PreparedNetwork, PreparedNetwork],
) -> None:
    one, _ = networks
    slow = dict.fromkeys((call.name for call in one.plan.calls), 0.9)
    race = FakeRace([own(one)], {sharing.SHARED: 2.0}, in_place=slow)
    assert agreed(networks, race).name == "tuned" and race.came == [sharing.SHARED]


def test_nothing_to_agree_on(networks: tuple[PreparedNetwork, PreparedNetwork]) -> None:
    race = FakeRace([own(networks[1])], {})
    assert agreed(networks, race).name == "tuned" and not race.came


def test_the_first_shape_packs_as_suits_those_after_it(
    networks: tuple[PreparedNetwork, PreparedNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, four = networks
    losses = {id(one.plan): 0.01, id(four.plan): 0.001}

    def loss(_agreement: object, plan: object, *_call_and_packing: object) -> float:
        return losses[id(plan)]

    monkeypatch.setattr(sharing.Agreement, "loss", loss)
    race = FakeRace([own(one)], {sharing.SHARED: 1.0})
    others = sharing.OtherShapes(later=[four.plan])
    sharing.agree(cast(Race, race), others, NOTHING_KNOWN, 1e-4)
    assert not race.came, "it would lose more than the later one"
    losses[id(one.plan)] = 0.0001
    sharing.agree(cast(Race, race), others, NOTHING_KNOWN, 1e-4)
    assert race.came == [sharing.SHARED]
    assert contents(one, race.winner) == contents(four, own(four))


def test_the_loss_by_another_packing() -> None:
    many, one = (
        prepare("op:conv2d[c=512,h=7,out=512,k=3,pad=1]", ModelOptions(batch=batch), PLACE).plan
        for batch in (16, 1)
    )
    agreement = sharing.Agreement(many, sharing.OtherShapes(), PLACE, NOTHING_KNOWN, 1e-4)
    (call,), (other,) = many.calls, one.calls
    packs, theirs = (sharing.packing_of(each, each.candidate) for each in (call, other))
    assert agreement.loss(many, call, packs) == 0
    assert packs == theirs or 0 < agreement.loss(many, call, theirs) < 10
    assert agreement.loss(many, call, ("conv2d_direct", ((1, (3, 5, 7)),))) == inf
