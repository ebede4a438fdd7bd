"""The tuner on landscapes whose optimum is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.measuring import failed, measured
from helpers.fakes.tuning import FORMS, workload
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.records import Candidate, Settings
from tilewright.kernels.knobs import Knob
from tilewright.kernels.search_space import SearchSpace
from tilewright.search.tuners.base import TuningTask
from tilewright.search.tuners.neighbourhood import NeighbourhoodTuner
from tilewright.testing.landscapes import part

TASK = workload()
KNOBS = {
    "a": tuple(range(1, 13)),
    "b": (1, 2, 4, 8, 16, 32),
    "c": ("rows", "columns"),
    "d": tuple(range(6)),
}


def bowl(s: Settings) -> float:
    """Best at a=9, b=4, rows, d=1; knobs interact a little."""
    a, b, d = int(s["a"]), float(np.log2(int(s["b"]))), int(s["d"])
    away = (a - 9) ** 2 / 20 + (b - 2) ** 2 / 3 + (d - 1) ** 2 / 10 + 0.02 * abs(a - 9) * b
    return 1e-4 * (1.0 + away + (0.3 if s["c"] == "columns" else 0.0))


def misled(s: Settings) -> float:
    """An estimate with the optimum elsewhere, right in its tendency for some knobs only."""
    return 1e-4 * (1.0 + abs(int(s["a"]) - 5) / 10 + abs(int(s["d"]) - 1) / 10)


def made_up(name: str, values: dict[str, tuple], estimate: Callable | None = None):
    knobs = [Knob(name=key, values=offered) for key, offered in values.items()]
    return part(name, knobs, estimate=estimate)


def tuner(*parts, seed: int = 0) -> NeighbourhoodTuner:
    return NeighbourhoodTuner(TuningTask(space=SearchSpace(parts), seed=seed))


def truth(candidate: Candidate) -> float:
    return bowl(dict(candidate.settings))


def search(search_with: NeighbourhoodTuner, batches: int, batch: int = 8) -> list[Candidate]:
    asked: list[Candidate] = []
    for _ in range(batches):
        candidates = search_with.ask(batch)
        asked += candidates
        search_with.tell([measured(TASK, c, truth(c)) for c in candidates])
    return asked


def test_it_never_repeats_and_ends() -> None:
    search_with = tuner(made_up("one", {"a": (1, 2, 3), "b": (4, 5)}, misled_constant))
    asked: list[Candidate] = []
    while candidates := search_with.ask(4):
        asked += candidates
    assert len(asked) == len(set(asked)) == 6
    assert search_with.ask(4) == []


def misled_constant(_: Settings) -> float:
    return 1e-4


def test_it_finds_the_optimum_with_far_fewer_measurements_than_chance() -> None:
    search_with = tuner(made_up("one", KNOBS, misled))
    asked = search(search_with, 12)
    assert len(set(asked)) == len(asked) == 96
    times = np.sort([bowl(dict(zip(KNOBS, v, strict=True))) for v in every_setting()])
    found = min(truth(c) for c in asked)
    # chance needs 1/9 of the space for a place among the best nine in expectation
    assert found <= times[1]


def every_setting() -> list[tuple]:
    from itertools import product

    return list(product(*KNOBS.values()))


def test_the_first_proposals_are_the_best_guesses() -> None:
    first = tuner(made_up("one", KNOBS, bowl)).ask(8)
    times = np.sort([bowl(dict(zip(KNOBS, v, strict=True))) for v in every_setting()])
    assert truth(first[0]) == times[0]
    assert all(truth(c) <= times[32] for c in first)


def test_what_was_told_is_not_asked_again() -> None:
    first = tuner(made_up("one", KNOBS, misled)).ask(20)
    again = tuner()
    again.tell([measured(TASK, c, truth(c)) for c in first[:10]])
    again.tell([failed(TASK, c) for c in first[10:]])
    assert not set(again.ask(40)) & set(first)


def test_foreign_outcomes_are_ignored() -> None:
    one = made_up("one", KNOBS, misled)
    search_with, untouched = tuner(one), tuner(one)
    own = untouched.ask(1)[0]
    strangers = [
        Candidate(implementation="other", settings=own.settings, forms=FORMS),
        Candidate(implementation="one", settings=own.settings, forms=(PLAIN, blocked(8))),
        Candidate(implementation="one", settings=(("a", 99),), forms=FORMS),
    ]
    search_with.tell([measured(TASK, c, 1e-9) for c in strangers])
    assert search_with.ask(1) == [own]


def test_it_survives_failures_only() -> None:
    search_with = tuner(made_up("one", {"a": tuple(range(20)), "b": (1, 2)}, misled_constant))
    asked: list[Candidate] = []
    while candidates := search_with.ask(8):
        asked += candidates
        search_with.tell([failed(TASK, c) for c in candidates])
    assert len(set(asked)) == len(asked) == 40


def test_two_implementations_with_different_knobs() -> None:
    slow = made_up("slow", {"k": tuple(range(30))}, lambda s: 1e-4)
    search_with = tuner(slow, made_up("one", KNOBS, misled))
    asked: list[Candidate] = []
    for _ in range(12):
        candidates = search_with.ask(8)
        asked += candidates
        search_with.tell(
            [measured(TASK, c, truth(c) if c.implementation == "one" else 1.0) for c in candidates]
        )
    assert len(set(asked)) == len(asked)
    best = min((c for c in asked if c.implementation == "one"), key=truth)
    assert truth(best) < 1.1e-4
    assert sum(c.implementation == "slow" for c in asked) < len(asked) / 2


def test_a_newer_measurement_may_be_slower() -> None:
    search_with = tuner(made_up("one", {"a": (1, 2)}, misled_constant))
    (first,) = search_with.ask(1)
    search_with.tell([measured(TASK, first, 1e-4), measured(TASK, first, 2e-4)])
    assert len(search_with.ask(5)) == 1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 3))
def test_batches_of_any_size(counts: list[int], seed: int) -> None:
    search_with = tuner(made_up("one", KNOBS, misled), seed=seed)
    asked: list[Candidate] = []
    for count in counts:
        candidates = search_with.ask(count)
        assert 0 < len(candidates) <= count
        asked += candidates
        outcomes = [
            failed(TASK, c) if i % 3 == 2 else measured(TASK, c, truth(c))
            for i, c in enumerate(candidates)
        ]
        search_with.tell(outcomes)
    assert len(set(asked)) == len(asked)


def test_without_estimates_the_order_is_random_and_the_search_still_works() -> None:
    silent = made_up("one", KNOBS)
    assert tuner(silent, seed=1).ask(8) != tuner(silent, seed=2).ask(8)
    found = min(truth(candidate) for candidate in search(tuner(silent), 12))
    assert found < 1.1e-4


def test_a_large_space_is_ranked_by_a_sample() -> None:
    values = {name: tuple(range(1, 301)) for name in "abc"}

    def away(s: Settings) -> float:
        return 1e-4 * (1.0 + sum(abs(int(s[name]) - 150) for name in "abc") / 50)

    search_with = tuner(made_up("one", values, away))
    first = search_with.ask(8)
    assert max(away(dict(c.settings)) for c in first) < 4e-4
    for _ in range(8):
        search_with.tell([measured(TASK, c, away(dict(c.settings))) for c in first])
        first = search_with.ask(8)
        assert len(first) == 8
