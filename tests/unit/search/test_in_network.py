"""Kernels in a network: what a correction says of kernels seen, of their like, of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.search.layout_costs import InNetworkFactors, Timed

HERE, THERE = (blocked(16), blocked(16)), (blocked(32), blocked(32))


def timed(
    workload: str = "w",
    implementation: str = "direct",
    ports: tuple[Form, ...] = HERE,
    *,
    alone_s: float = 1.0,
    in_place_s: float = 1.0,
    calls: int = 1,
) -> Timed:
    return (workload, ports, implementation), calls * alone_s, calls * in_place_s


def test_nothing_seen_corrects_nothing() -> None:
    assert InNetworkFactors().factor("w", HERE, "direct") == 1.0


def test_the_most_special_sight_wins() -> None:
    factors = InNetworkFactors(
        [
            timed(in_place_s=2.0),
            timed(ports=THERE, in_place_s=4.0),
            timed("other", "winograd", in_place_s=0.5),
        ]
    )
    assert factors.factor("w", HERE, "direct") == 2.0
    assert factors.factor("w", THERE, "direct") == 4.0
    assert factors.factor("w", (PLAIN,), "direct") == 3.0, "as in other layouts"
    assert factors.factor("w", HERE, "winograd") == 3.0, "as its workload"
    assert factors.factor("new", HERE, "winograd") == 0.5, "as its implementation"
    assert factors.factor("new", HERE, "new") == pytest.approx(6.5 / 3), "as everything"


def test_long_calls_count_most() -> None:
    long, short = timed(alone_s=0.98, in_place_s=0.98), timed(alone_s=0.01, in_place_s=0.1)
    factors = InNetworkFactors([long, short])
    assert factors.factor("w", HERE, "direct") == pytest.approx(1.08 / 0.99)
    often = timed(alone_s=0.01, in_place_s=0.1, calls=98)
    assert InNetworkFactors([long, often]).factor("w", HERE, "direct") == pytest.approx(
        10.78 / 1.96
    )


SECONDS = st.floats(min_value=1e-7, max_value=1.0)
SEEN = st.lists(
    st.builds(
        timed,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["direct", "winograd"]),
        st.sampled_from([HERE, THERE]),
        alone_s=SECONDS,
        in_place_s=SECONDS,
        calls=st.integers(1, 9),
    ),
    min_size=1,
)


@given(SEEN, st.sampled_from(["a", "b", "c"]), st.sampled_from(["direct", "new"]))
def test_a_factor_lies_among_those_seen(
    seen: list[Timed], workload: str, implementation: str
) -> None:
    ratios = [in_network_s / alone_s for _, alone_s, in_network_s in seen]
    found = InNetworkFactors(seen).factor(workload, HERE, implementation)
    assert min(ratios) * 0.999 <= found <= max(ratios) * 1.001


@given(SEEN)
def test_what_was_seen_adds_up_again(seen: list[Timed]) -> None:
    """Corrected by themselves, the times alone add up to the times in place."""
    factors = InNetworkFactors(seen)
    corrected = sum(alone_s * factors.factor(*kernel) for kernel, alone_s, _ in seen)
    assert corrected == pytest.approx(sum(in_network_s for _, _, in_network_s in seen))
