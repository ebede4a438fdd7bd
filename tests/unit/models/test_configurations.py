"""Configurations that are drawn can be built, and cover what they should."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.core.errors import UsageError
from tilewright.models import configurations
from tilewright.models.configurations import CONFIGURATIONS, drawn
from tilewright.models.single_operator import build_operator


def draw(name: str, count: int, seed: int) -> list[str]:
    """The first configurations as `op:` texts."""
    return [CONFIGURATIONS[name].text(numbers) for numbers in islice(drawn(name, seed), count)]


@pytest.mark.parametrize("family", CONFIGURATIONS)
def test_what_is_drawn_can_be_built(family: str) -> None:
    texts = draw(family, 25, seed=1)
    assert len(set(texts)) == 25
    for text in texts:
        assert text.startswith("op:")
    small = min(texts, key=len)
    build_operator(small.removeprefix("op:"))


@pytest.mark.parametrize("family", [*CONFIGURATIONS, "elementwise", "slice"])
def test_the_command_that_collects_a_family_names_families_there_are(family: str) -> None:
    command = configurations.collecting(family, "--samples 500")
    assert command.startswith("tilewright collect ")
    assert command.endswith(" --samples 500")
    named = [word for word in command.split()[2:-2] if word != "--op"]
    assert named == ["MODEL"] if family == "slice" else set(named) <= set(CONFIGURATIONS)


@pytest.mark.parametrize("family", CONFIGURATIONS)
def test_what_is_known_of_networks_is_possible(family: str) -> None:
    known = CONFIGURATIONS[family]
    for numbers in known.known:
        assert set(numbers) <= set(known.spans)
        assert known.fits(numbers)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_a_seed_gives_the_same_and_more_of_them_begin_alike(seed: int, count: int) -> None:
    texts = draw("conv2d", count, seed)
    assert texts == draw("conv2d", count, seed)
    assert texts == draw("conv2d", count + 3, seed)[:count]


def test_channels_are_of_all_kinds() -> None:
    channels = [int(text.split("c=")[1].split(",")[0]) for text in draw("conv2d", 400, 0)]
    assert any(c % 8 for c in channels) and any(c % 8 == 0 for c in channels)
    assert min(channels) < 8 and max(channels) > 512


def test_a_family_that_is_not_known() -> None:
    with pytest.raises(UsageError, match="no family") as caught:
        next(drawn("conv3d", 0))
    assert "conv2d" in (caught.value.hint or "")
