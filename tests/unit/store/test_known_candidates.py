"""Which candidate each task gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fakes.levels import DIRECT, WINOGRAD, convolution, task
from helpers.fakes.measuring import PLACEMENT, measured
from tilewright.core.errors import UsageError
from tilewright.core.forms import PLAIN, blocked, parse_form
from tilewright.core.records import Candidate, Failure, FailureKind, Measurement, Outcome, Protocol
from tilewright.core.targets import threads_alone
from tilewright.kernels.spaces import ranked_defaults
from tilewright.store import open_store
from tilewright.store.interchange.lines import IMPORTED
from tilewright.store.known_candidates import (
    best_known,
    checked_settings,
    defaults,
    ranked,
    shipping_key,
)


def candidate(number: int) -> Candidate:
    return Candidate(implementation="one", settings=(("k", number),), forms=(PLAIN,))


def took(number: int, *seconds: float) -> Measurement:
    return Measurement(
        workload_key="w",
        candidate=candidate(number),
        device_class="d",
        resources=threads_alone(1),
        protocol=Protocol(),
        kernel_hash="h",
        samples_s=seconds,
        build_s=0.0,
    )


def failed(number: int, kind: FailureKind) -> Failure:
    return Failure(
        workload_key="w",
        candidate=candidate(number),
        device_class="d",
        resources=threads_alone(1),
        kind=kind,
        message="",
    )


def order(outcomes: list[Outcome]) -> list[int]:
    return [int(m.candidate.setting("k")) for m in ranked(outcomes)]


def test_fastest_first_by_median() -> None:
    assert order([took(1, 3.0), took(2, 1.0, 9.0, 1.0), took(3, 2.0)]) == [2, 3, 1]
    assert ranked([]) == []


def test_the_newest_measurement_counts_faster_or_slower() -> None:
    assert order([took(1, 1.0), took(2, 2.0), took(1, 3.0)]) == [2, 1]
    assert order([took(1, 5.0), took(2, 2.0), took(1, 1.0)]) == [1, 2]
    assert len(ranked([took(1, 1.0), took(1, 2.0)])) == 1


def test_wrong_results_are_out_whenever_they_were_found() -> None:
    assert order([failed(1, "wrong result"), took(1, 1.0), took(2, 2.0)]) == [2]
    assert order([took(1, 1.0), took(2, 2.0), failed(1, "wrong result")]) == [2]
    assert order([took(1, 1.0), failed(1, "wrong result")]) == []


@pytest.mark.parametrize("kind", ["timeout", "crash", "out of memory", "build"])
def test_other_failures_do_not_take_a_measurement_away(kind: FailureKind) -> None:
    assert order([took(1, 1.0), failed(1, kind)]) == [1]


def test_times_of_other_programs_choose_nothing(tmp_path: Path) -> None:
    relu = task(convolution("relu"))
    default, second = (c for c, _ in ranked_defaults(relu.workload, relu.forms, PLACEMENT)[:2])
    with open_store(tmp_path / "a.db") as store:
        store.add_device(PLACEMENT.device)
        store.add_workload(relu.workload)
        store.add([measured(relu.workload, second, 1e-9, kernel_hash=f"{IMPORTED}t4")])
        assert best_known({relu.key: relu}, store, PLACEMENT) == {relu.key: default}
        store.add([measured(relu.workload, second, 1e-3)])
        assert best_known({relu.key: relu}, store, PLACEMENT) == {relu.key: second}


def test_the_best_known_obeys_the_allowed_error(tmp_path: Path) -> None:
    relu = task(convolution("relu"))
    tasks = {relu.key: relu}
    ranking = ranked_defaults(relu.workload, relu.forms, PLACEMENT)
    fast = next(c for c, _ in ranking if c.implementation == WINOGRAD)
    exact = next(c for c, _ in ranking if c.implementation == DIRECT)
    with open_store(tmp_path / "a.db") as store:
        store.add_device(PLACEMENT.device)
        store.add_workload(relu.workload)
        store.add([measured(relu.workload, fast, 1e-6), measured(relu.workload, exact, 1e-3)])
        assert best_known(tasks, store, PLACEMENT)[relu.key] == fast
        assert best_known(tasks, store, PLACEMENT, 1e-4)[relu.key] == fast
        strict = best_known(tasks, store, PLACEMENT, 8e-6)[relu.key]
        assert strict.implementation == DIRECT
        usual = defaults(tasks, PLACEMENT, 8e-6)[relu.key]
        assert usual.implementation != WINOGRAD


def test_names_of_settings() -> None:
    assert [checked_settings(name) for name in ("default", "best", "shipped")]
    with pytest.raises(UsageError, match="bset") as caught:
        checked_settings("bset")
    assert "best" in str(caught.value)


def test_shipping_keys_tell_layouts_apart() -> None:
    every = [(PLAIN,), (blocked(8),), (PLAIN, parse_form("a"))]
    keys = {shipping_key(("w", forms)) for forms in every}
    assert len(keys) == 3
