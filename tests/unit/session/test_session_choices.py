"""Which candidate each task gets."""

from __future__ import annotations

import pytest

from tilewright.core.errors import UsageError
from tilewright.core.records import Candidate, Failure, Measurement, Outcome, Protocol
from tilewright.session.choices import checked_settings, ranked, shipping_key


def candidate(number: int) -> Candidate:
    return Candidate(implementation="one", settings=(("k", number),), layouts=("plain",))


def took(number: int, *seconds: float) -> Measurement:
    return Measurement(
        workload_key="w",
        candidate=candidate(number),
        device_class="d",
        protocol=Protocol(),
        kernel_hash="h",
        samples_s=seconds,
        build_s=0.0,
    )


def failed(number: int, kind: str) -> Failure:
    return Failure(
        workload_key="w",
        candidate=candidate(number),
        device_class="d",
        kind=kind,  # type: ignore[arg-type]
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
def test_other_failures_do_not_take_a_measurement_away(kind: str) -> None:
    assert order([took(1, 1.0), failed(1, kind)]) == [1]


def test_names_of_settings() -> None:
    assert [checked_settings(name) for name in ("default", "best", "shipped")]
    with pytest.raises(UsageError, match="bset") as caught:
        checked_settings("bset")
    assert "best" in str(caught.value)


def test_shipping_keys_tell_layouts_apart() -> None:
    keys = {shipping_key(("w", layouts)) for layouts in [("plain",), ("blocked8",), ("plain", "a")]}
    assert len(keys) == 3
