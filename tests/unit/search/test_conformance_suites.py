"""The suites for other packages: each check fails for what it is there to find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.fakes.tuning import MadeUp
from tilewright.core.forms import PLAIN, blocked
from tilewright.cost.demand import Demand
from tilewright.kernels.base import Knob
from tilewright.kernels.registry import applicable
from tilewright.search.tuners.base import NumberTuner, TuningTask
from tilewright.search.tuners.registry import TUNERS
from tilewright.search.tuners.unguided import RandomTuner
from tilewright.testing import implementations as specs
from tilewright.testing import tuners as suite
from tilewright.testing.landscapes import smooth


class Repeats(RandomTuner):
    def ask(self, count):
        return [self.space.candidate(1)]


class Careless(NumberTuner):
    """Takes numbers in order, valid or not."""

    def propose(self, count):
        return [n for n in range(self.space.range_length) if n not in self.known.seen][:count]


class TooMany(RandomTuner):
    def ask(self, count):
        return super().ask(count + 1)


class GivesUp(RandomTuner):
    def ask(self, count):
        return super().ask(count) if not self.known.failed else []


class Forgets(RandomTuner):
    """Does not mark what was told, only what it asked."""

    def tell(self, outcomes):
        seen = set(self.known.seen)
        super().tell(outcomes)
        self.known.seen = seen


class Strict(RandomTuner):
    def tell(self, outcomes):
        for outcome in outcomes:
            assert self.space.number(outcome.candidate) is not None
        super().tell(outcomes)


class Unseeded(RandomTuner):
    def __init__(self, task):
        super().__init__(task)
        self.rng = np.random.default_rng()


class Unguided(RandomTuner):
    def __init__(self, task):
        super().__init__(TuningTask(space=task.space, seed=task.seed))


class Lists(RandomTuner):
    def propose(self, count):
        return [n for n in range(self.space.range_length) if self.space.valid(n)][:count]


class Crashes(RandomTuner):
    """Needs at least two settings."""

    def propose(self, count):
        assert self.space.range_length > 1
        return super().propose(count)


class Optimist(RandomTuner):
    """Thinks that there are no estimates."""

    def propose(self, count):
        assert self.space.estimates_s([0]) is None
        return super().propose(count)


class WaitsForFullBatches(RandomTuner):
    def propose(self, count):
        found = super().propose(count)
        return found if len(found) == count else []


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (suite.check_exhausts_small_spaces, Careless),
        (suite.check_exhausts_small_spaces, TooMany),
        (suite.check_exhausts_small_spaces, WaitsForFullBatches),
        (suite.check_asked_without_being_told, Repeats),
        (suite.check_failures_only, GivesUp),
        (suite.check_failures_among_times, GivesUp),
        (suite.check_single_setting, Crashes),
        (suite.check_more_asked_than_left, WaitsForFullBatches),
        (suite.check_told_before_asked, Forgets),
        (suite.check_foreign_outcomes, Strict),
        (suite.check_same_seed_same_search, Unseeded),
        (suite.check_guesses_first, Unguided),
        (suite.check_large_spaces, Lists),
        (suite.check_with_estimates, Optimist),
    ],
)
def test_tuners_that_break_a_promise_are_found(check, bad) -> None:
    check(RandomTuner)
    with pytest.raises(AssertionError):
        check(bad)


def test_the_class_runs_every_check() -> None:
    methods = [name for name in dir(suite.TunerConformance) if name.startswith("test_")]
    assert sorted(methods) == sorted(
        check.__name__.replace("check_", "test_") for check in suite.CHECKS
    )
    suite.check_tuner(RandomTuner)


def test_the_smooth_landscape_is_what_it_says() -> None:
    hill = smooth()
    assert hill.space.listed is not None
    times = [hill.times(dict(hill.space.candidate(int(n)).settings)) for n in hill.space.listed]
    assert hill.best_s == min(t for t in times if t is not None) == 1e-4
    assert times.count(1e-4) == 1
    assert hill.regret(RandomTuner, len(times)) == 0.0


def test_all_tuners_are_in_the_documentation() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "tuners.md"
    text = page.read_text()
    for name in TUNERS.usable():
        listed = name if not name.startswith("xgb_rank_") else "xgb_rank_knob"
        assert f"`{listed}`" in text, name


RELU = specs.single("relu", (1, 16, 8, 8))
CONV = specs.single(
    "conv2d", (1, 16, 9, 9), (32, 16, 3, 3), constants=(1,),
    strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1,
)  # fmt: skip


def names_of(workload) -> list[str]:
    return [
        spec.name
        for spec in applicable(workload, specs.PLACEMENTS[0].target, specs.PLACEMENTS[0].resources)
    ]


@pytest.mark.parametrize("name", names_of(RELU))
def test_our_elementwise_specs(name: str) -> None:
    (spec,) = [
        s
        for s in applicable(RELU, specs.PLACEMENTS[0].target, specs.PLACEMENTS[0].resources)
        if s.name == name
    ]
    specs.check_spec(spec, RELU)


@pytest.mark.parametrize("name", names_of(CONV))
def test_our_convolution_specs(name: str) -> None:
    (spec,) = [
        s
        for s in applicable(CONV, specs.PLACEMENTS[0].target, specs.PLACEMENTS[0].resources)
        if s.name == name
    ]
    specs.check_spec(spec, CONV)


def good(**changes: Callable) -> MadeUp:
    """A spec that keeps everything, with some of its methods replaced."""
    spec = MadeUp("made_up", {"a": (1, 2, 4), "b": ("x", "y")}, lambda s: 1e-4 * int(s["a"]))
    for name, change in changes.items():
        setattr(spec, name, change)
    return spec


def demanding(cycles: float = 1e5, **details) -> Callable:
    def demand(workload, target, resources, forms, settings):
        told = {name: column(settings) for name, column in details.items()}
        return Demand(pieces=1, cycles=cycles, launches=0, details=told)

    return demand


def test_a_good_spec_passes() -> None:
    specs.check_spec(good(), CONV_FREE)


CONV_FREE = specs.single("relu", (4, 4))
PLACEMENT = specs.PLACEMENTS[0]


@pytest.mark.parametrize(
    ("message", "check", "changes"),
    [
        ("does not apply", specs.check_space, {"applies": lambda *_: False}),
        ("one name", specs.check_space, {"knobs": lambda *_: (Knob(name="a", values=(1,)),) * 2}),
        ("no values", specs.check_space, {"knobs": lambda *_: (Knob(name="a", values=()),)}),
        ("twice", specs.check_space, {"knobs": lambda *_: (Knob(name="a", values=(1, 1)),)}),
        ("no setting", specs.check_space, {"valid": lambda *_: False}),
        ("no Demand", specs.check_demand, {"demand": lambda *_: {"estimate_s": np.ones(1)}}),
        ("not positive", specs.check_demand, {"demand": demanding(cycles=0.0)}),
        ("one entry", specs.check_demand, {"demand": demanding(more=lambda _: np.ones(2))}),
        (
            "not finite",
            specs.check_demand,
            {"demand": demanding(more=lambda s: np.full(len(s), np.nan))},
        ),
        (
            "depends on the others",
            specs.check_demand,
            {"demand": demanding(more=lambda s: np.arange(len(s)) + 1.0 * len(s))},
        ),
        ("error bound", specs.check_promises, {"error_bound": lambda _: 0.0}),
        ("cannot lie in", specs.check_promises, {"port_forms": lambda *_: ((blocked(3),) * 2,)}),
        ("twice", specs.check_promises, {"port_forms": lambda *_: ((PLAIN,) * 2,) * 2}),
        ("no layouts", specs.check_promises, {"port_forms": lambda *_: ()}),
        ("1 layouts for", specs.check_promises, {"port_forms": lambda *_: ((PLAIN,),)}),
    ],
)
def test_specs_that_break_a_promise_are_found(message: str, check, changes) -> None:
    check(good(), CONV_FREE, PLACEMENT)
    with pytest.raises(AssertionError, match=message):
        check(good(**changes), CONV_FREE, PLACEMENT)


def test_knobs_that_change_are_found() -> None:
    calls = iter(range(99))
    spec = good(knobs=lambda *_: (Knob(name="a", values=(1, 2, 10 + next(calls))),))
    with pytest.raises(AssertionError, match="knobs differ"):
        specs.check_space(spec, CONV_FREE, PLACEMENT)


def test_packing_in_another_shape_is_found() -> None:
    spec = good(packed_shapes=lambda *_: {1: (3, 3)}, pack=lambda w, c, constants: constants)
    workload = specs.single("add", (4, 4), (4, 4), constants=(1,))
    specs.check_packing(good(), workload, PLACEMENT)
    with pytest.raises(AssertionError, match=r"not \(3, 3\)"):
        specs.check_packing(spec, workload, PLACEMENT)


def test_a_spec_that_is_not_installed_is_found() -> None:
    with pytest.raises(AssertionError, match="no entry point"):
        specs.check_installed(good(), CONV_FREE, PLACEMENT)


def test_a_large_spec_is_not_listed() -> None:
    knobs = tuple(Knob(name=name, values=tuple(range(1000))) for name in "abc")
    looks = 0

    def valid(workload, target, resources, forms, settings) -> bool:
        nonlocal looks
        looks += 1
        return settings["a"] != settings["b"]

    specs.check_spec(good(knobs=lambda *_: knobs, valid=valid, demand=demanding()), CONV_FREE)
    assert looks < 10_000
