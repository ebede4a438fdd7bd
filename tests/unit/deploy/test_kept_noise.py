"""Noise that an earlier run measured is taken from a file, of all else it is measured."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

from tilewright.core.events import Event
from tilewright.core.noise import RoundingNoise
from tilewright.deploy.kept_noise import kept_noise

NOISE = RoundingNoise(
    outputs=("y",),
    signals=(1.5,),
    largest=(0.1,),
    elements=(4,),
    tensors={"b": (1e-9,), "a": (inf,)},
    calls={"conv": (2e-9,)},
    algorithms={("conv", "conv2d_winograd"): (3e-9,)},
    finer={
        "float16": RoundingNoise(
            outputs=("y",), signals=(1.5,), largest=(0.1,), elements=(4,), tensors={}, calls={}
        )
    },
)


class Runs:
    """What runs were told, and how often they measured."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.measured = 0

    def noise(self, value: float = 0.0, *sources: str) -> RoundingNoise:
        inputs = [{"x": np.full((2,), value, np.float32)}]
        return kept_noise("rounding", sources, inputs, self._measure, self.told.append)

    def _measure(self) -> RoundingNoise:
        self.measured += 1
        return NOISE


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    return Runs()


def test_the_second_run_takes_it_from_the_first_and_says_so(runs: Runs) -> None:
    assert runs.noise() == NOISE and not runs.told
    again = runs.noise()
    assert again == NOISE and list(again.tensors) == ["b", "a"]
    assert runs.measured == 1 and "earlier run" in str(runs.told)


def test_other_inputs_and_other_sources_are_measured(runs: Runs) -> None:
    for value, sources in ((0.0, ["a"]), (0.0, ["b"]), (1.0, ["a"])):
        runs.noise(value, *sources)
    assert runs.measured == 3


@pytest.mark.parametrize(("old", "new"), [("]}", ""), ("1.5", "2.5"), ("\n", "")])
def test_a_broken_file_is_measured_anew(runs: Runs, tmp_path: Path, old: str, new: str) -> None:
    runs.noise()
    (kept,) = (tmp_path / "noise").iterdir()
    kept.write_text(kept.read_text().replace(old, new))
    assert runs.noise() == NOISE and runs.noise() == NOISE
    assert runs.measured == 2


def test_a_cache_that_cannot_be_written_is_none(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file"))
    assert runs.noise() == NOISE and runs.noise() == NOISE
    assert runs.measured == 2
