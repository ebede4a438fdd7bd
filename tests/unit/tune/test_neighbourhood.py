"""The tuner on landscapes whose optimum is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_fakes import DEVICE, LAYOUTS, MadeUp, failed, measured, workload

from tilewright.core.records import Candidate, Settings
from tilewright.tune import space as space_module
from tilewright.tune.neighbourhood import NeighbourhoodTuner

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


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def put(*specs: MadeUp) -> None:
        monkeypatch.setattr(space_module, "applicable", lambda *_: list(specs))

    return put


def tuner() -> NeighbourhoodTuner:
    return NeighbourhoodTuner(TASK, LAYOUTS, DEVICE)


def truth(candidate: Candidate) -> float:
    return bowl(dict(candidate.settings))


def search(search_with: NeighbourhoodTuner, batches: int, batch: int = 8) -> list[Candidate]:
    asked: list[Candidate] = []
    for _ in range(batches):
        candidates = search_with.ask(batch)
        asked += candidates
        search_with.tell([measured(TASK, c, truth(c)) for c in candidates])
    return asked


def test_it_never_repeats_and_ends(offer) -> None:
    offer(MadeUp("one", {"a": (1, 2, 3), "b": (4, 5)}, misled_constant))
    search_with = tuner()
    assert search_with.size == 6
    asked: list[Candidate] = []
    while candidates := search_with.ask(4):
        asked += candidates
    assert len(asked) == len(set(asked)) == 6
    assert search_with.ask(4) == []


def misled_constant(_: Settings) -> float:
    return 1e-4


def test_it_finds_the_optimum_with_far_fewer_measurements_than_chance(offer) -> None:
    offer(MadeUp("one", KNOBS, misled))
    search_with = tuner()
    asked = search(search_with, 12)
    assert len(set(asked)) == len(asked) == 96
    assert search_with.size == 12 * 6 * 2 * 6
    times = np.sort([bowl(dict(zip(KNOBS, v, strict=True))) for v in every_setting()])
    found = min(truth(c) for c in asked)
    # chance needs 1/9 of the space for a place among the best nine in expectation
    assert found <= times[1]


def every_setting() -> list[tuple]:
    from itertools import product

    return list(product(*KNOBS.values()))


def test_the_first_proposals_are_the_best_guesses(offer) -> None:
    offer(MadeUp("one", KNOBS, bowl))
    first = tuner().ask(8)
    times = np.sort([bowl(dict(zip(KNOBS, v, strict=True))) for v in every_setting()])
    assert truth(first[0]) == times[0]
    assert all(truth(c) <= times[32] for c in first)


def test_what_was_told_is_not_asked_again(offer) -> None:
    offer(MadeUp("one", KNOBS, misled))
    first = tuner().ask(20)
    again = tuner()
    again.tell([measured(TASK, c, truth(c)) for c in first[:10]])
    again.tell([failed(TASK, c) for c in first[10:]])
    assert not set(again.ask(40)) & set(first)


def test_foreign_outcomes_are_ignored(offer) -> None:
    offer(MadeUp("one", KNOBS, misled))
    search_with, untouched = tuner(), tuner()
    own = untouched.ask(1)[0]
    strangers = [
        Candidate(implementation="other", settings=own.settings, layouts=LAYOUTS),
        Candidate(implementation="one", settings=own.settings, layouts=("plain", "blocked8")),
        Candidate(implementation="one", settings=(("a", 99),), layouts=LAYOUTS),
    ]
    search_with.tell([measured(TASK, c, 1e-9) for c in strangers])
    assert search_with.ask(1) == [own]


def test_it_survives_failures_only(offer) -> None:
    offer(MadeUp("one", {"a": tuple(range(20)), "b": (1, 2)}, misled_constant))
    search_with = tuner()
    asked: list[Candidate] = []
    while candidates := search_with.ask(8):
        asked += candidates
        search_with.tell([failed(TASK, c) for c in candidates])
    assert len(set(asked)) == len(asked) == 40


def test_two_implementations_with_different_knobs(offer) -> None:
    slow = MadeUp("slow", {"k": tuple(range(30))}, lambda s: 1e-4)
    offer(slow, MadeUp("one", KNOBS, misled))
    search_with = tuner()
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


def test_a_newer_measurement_may_be_slower(offer) -> None:
    offer(MadeUp("one", {"a": (1, 2)}, misled_constant))
    search_with = tuner()
    (first,) = search_with.ask(1)
    search_with.tell([measured(TASK, first, 1e-4), measured(TASK, first, 2e-4)])
    assert len(search_with.ask(5)) == 1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 3))
def test_batches_of_any_size(counts: list[int], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space_module, "applicable", lambda *_: [MadeUp("one", KNOBS, misled)])
        search_with = NeighbourhoodTuner(TASK, LAYOUTS, DEVICE, seed=seed)
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
