"""What a kernel costs in layouts that were measured, and in others."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.levels import DIRECT, WINOGRAD, convolution
from helpers.fakes.measuring import PLACEMENT, failed, measured
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate, Outcome
from tilewright.graph.network import TensorType
from tilewright.kernels.spaces import ranked_defaults
from tilewright.search.layout_costs import (
    InNetworkFactors,
    LayoutCosts,
    recorded_costs,
    stored_by_forms,
)
from tilewright.store import open_store

WORKLOAD, OTHER = convolution(), convolution(channels=64)
Ports = tuple[Form, ...]


def ports(data: Form, result: Form) -> Ports:
    return (data, PLAIN, result)


NARROW, WIDE, MIXED = (
    ports(a, b) for a, b in ((blocked(16),) * 2, (blocked(32),) * 2, (blocked(16), blocked(32)))
)


def default(
    layouts: Ports, name: str = DIRECT, workload: Any = WORKLOAD
) -> tuple[Candidate, float]:
    """The default candidate of an implementation with its estimate."""
    found = ranked_defaults(workload, layouts, PLACEMENT)
    return next(each for each in found if each[0].implementation == name)


def took(
    layouts: Ports, ratio: float, name: str = DIRECT, workload: Any = WORKLOAD
) -> list[Outcome]:
    """A measurement that took so many times its estimate."""
    candidate, estimate_s = default(layouts, name, workload)
    return [measured(workload, candidate, ratio * estimate_s)]


def costs(**named: Any) -> LayoutCosts:
    return LayoutCosts(placement=PLACEMENT, **named)


def test_without_records_estimates_are_all_there_is() -> None:
    times = costs().kernels(WORKLOAD, NARROW)
    assert {DIRECT, WINOGRAD} <= set(times)
    assert times[DIRECT].seconds == default(NARROW)[1] and not times[DIRECT].measured
    doubted = costs(doubt=2.0).kernels(WORKLOAD, NARROW)
    assert doubted[DIRECT].seconds == 2 * times[DIRECT].seconds
    assert costs(guessing=False).kernels(WORKLOAD, NARROW) == {}


def test_what_was_measured_is_believed() -> None:
    known = costs()
    candidate, estimate_s = default(NARROW)
    slow = measured(WORKLOAD, candidate, 9.0)
    fast = measured(WORKLOAD, candidate, 3 * estimate_s)
    known.learn(WORKLOAD, NARROW, [slow, fast], searched=False)
    times = known.kernels(WORKLOAD, NARROW)
    assert times[DIRECT].measured and times[DIRECT].seconds == pytest.approx(3 * estimate_s)
    assert not times[WINOGRAD].measured, "had no chance yet"
    assert known.candidate(WORKLOAD, NARROW, DIRECT) == candidate
    assert known.candidate(WORKLOAD, NARROW, WINOGRAD) == default(NARROW, WINOGRAD)[0]
    assert known.candidate(WORKLOAD, NARROW, None) == candidate, "measured before guessed"


def test_once_searched_the_others_are_out() -> None:
    known = costs()
    known.learn(WORKLOAD, NARROW, took(NARROW, 2.0), searched=True)
    assert set(known.kernels(WORKLOAD, NARROW)) == {DIRECT}
    known.learn(WORKLOAD, WIDE, [failed(WORKLOAD, default(WIDE)[0])], searched=True)
    assert known.kernels(WORKLOAD, WIDE) == {}, "everything failed there"
    known.learn(WORKLOAD, MIXED, [], searched=True)
    assert DIRECT in known.kernels(WORKLOAD, MIXED), "nothing was tried"


def test_layouts_that_are_needed_stay_possible() -> None:
    known = costs(guessing=False)
    failure = [failed(WORKLOAD, default(NARROW)[0])]
    known.learn(WORKLOAD, NARROW, failure, searched=True, needed=True)
    assert DIRECT in known.kernels(WORKLOAD, NARROW)
    known.learn(WORKLOAD, NARROW, took(NARROW, 2.0), searched=False, needed=True)
    assert set(known.kernels(WORKLOAD, NARROW)) == {DIRECT}, "one time is enough"
    known.learn(WORKLOAD, WIDE, failure, searched=False)
    assert known.kernels(WORKLOAD, WIDE) == {}


def test_estimates_are_corrected_by_what_was_seen_nearby() -> None:
    known = costs()
    known.learn(WORKLOAD, NARROW, took(NARROW, 2.0), searched=False)
    guess = known.kernels(WORKLOAD, MIXED)[DIRECT]
    assert guess.seconds == pytest.approx(2 * default(MIXED)[1]) and not guess.measured
    known.learn(WORKLOAD, WIDE, took(WIDE, 16.0), searched=False)
    guess = known.kernels(WORKLOAD, MIXED)[DIRECT]
    weighted = (2.0 * 16.0**2) ** (1 / 3)
    assert guess.seconds == pytest.approx(weighted * default(MIXED)[1]), "what it writes, twice"
    assert known.kernels(WORKLOAD, MIXED)[WINOGRAD].seconds == default(MIXED, WINOGRAD)[1]


def test_other_workloads_correct_where_the_own_was_not_seen() -> None:
    known = costs()
    for layouts, ratio in ((NARROW, 2.0), (WIDE, 4.0), (MIXED, 64.0)):
        known.learn(WORKLOAD, layouts, took(layouts, ratio), searched=False)
    estimate_s = default(NARROW, workload=OTHER)[1]
    guess = known.kernels(OTHER, NARROW)[DIRECT]
    assert guess.seconds == pytest.approx(4.0 * estimate_s), "the median"
    known.learn(WORKLOAD, NARROW, took(NARROW, 8.0), searched=False)
    assert known.kernels(OTHER, NARROW)[DIRECT].seconds == pytest.approx(8.0 * estimate_s)


def test_what_is_too_inexact_has_no_time() -> None:
    exact = costs(max_error=1e-9)
    exact.learn(WORKLOAD, NARROW, took(NARROW, 0.1, WINOGRAD), searched=False)
    assert WINOGRAD not in exact.kernels(WORKLOAD, NARROW)


def test_a_corrected_copy_guesses_nothing_and_learns_alone() -> None:
    known = costs()
    known.learn(WORKLOAD, NARROW, took(NARROW, 2.0), searched=False)
    alone_s = known.kernels(WORKLOAD, NARROW)[DIRECT].seconds
    seen = InNetworkFactors([((WORKLOAD.key, NARROW, DIRECT), 1.0, 3.0)])
    copy = known.corrected(seen)
    assert set(copy.kernels(WORKLOAD, NARROW)) == {DIRECT}
    assert copy.kernels(WORKLOAD, NARROW)[DIRECT].seconds == pytest.approx(3 * alone_s)
    copy.learn(WORKLOAD, WIDE, took(WIDE, 2.0), searched=True)
    assert not known.kernels(WORKLOAD, WIDE)[DIRECT].measured
    assert known.kernels(WORKLOAD, NARROW)[DIRECT].seconds == alone_s


def test_a_change_of_layout() -> None:
    known = costs()
    kind = TensorType((1, 32, 8, 8))
    guess = known.change(kind, blocked(16), PLAIN)
    assert 0 < guess.seconds < inf and not guess.measured
    nothing = costs(guessing=False).change(kind, blocked(16), PLAIN)
    assert nothing.seconds == inf and nothing.measured


def test_what_a_store_knows_by_layouts(tmp_path: Path) -> None:
    rows = [*took(NARROW, 1.0), *took(NARROW, 2.0, WINOGRAD), *took(WIDE, 1.0)]
    foreign = measured(WORKLOAD, default(MIXED)[0], 1.0, kernel_hash="imported:x")
    with open_store(tmp_path / "a.db") as store:
        store.add_device(PLACEMENT.device)
        store.add_workloads([WORKLOAD])
        store.add([*rows, foreign])
        found = stored_by_forms(WORKLOAD, store, PLACEMENT)
        times = recorded_costs([WORKLOAD], store, PLACEMENT, 1.0).kernels(WORKLOAD, NARROW)
    assert {name for name, time in times.items() if time.measured} == {DIRECT, WINOGRAD}
    assert {layouts: len(outcomes) for layouts, outcomes in found.items() if layouts != MIXED} == {
        NARROW: 2,
        WIDE: 1,
    }
