"""A few hostile models, artifacts, databases and command lines of the thousands of a whole run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.commands.warm_commands import warm
from tilewright.models.cache import PREDICTORS

pytestmark = [pytest.mark.regression, pytest.mark.slow]


def _more(*case: object) -> object:
    return pytest.param(*case, marks=pytest.mark.on_request)


SAMPLE = (
    ("models", 0, 3),
    ("artifacts", 0, 15),
    ("databases", 0, 20),
    ("commands", 0, 10),
    *(_more("models", seed, 3) for seed in (3, 6, 9, 12, 15)),
    *(_more("commands", seed, 10) for seed in (10, 20)),
)
"""Kind, seed of the first case, cases."""


def fuzzed(folder: Path, ground: Path, kind: str, seed: int, count: int) -> str:
    """What a run says that must find nothing bad."""
    cases = ("--kind", kind, "--seed", str(seed), "--count", str(count))
    places = ("--ground", str(ground), "--out", str(folder / "fuzz.jsonl"))
    script = f"import fuzz\nassert fuzz.main({[*cases, *places]}) == 0"
    code, out, err = warm(folder, {**os.environ, "TMPDIR": str(folder)}, code=script)
    assert code == 0, out + err
    return out


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, cache: Path, own_cache: None) -> Path:
    """The good things that cases change, made by a run without cases. Predictors, which cases do
    not change and which are named by what they were fitted to, are those of other tests."""
    folder = tmp_path_factory.mktemp("ground")
    (folder / "good" / "cache").mkdir(parents=True)
    (folder / "good" / "cache" / PREDICTORS).symlink_to(cache / PREDICTORS)
    fuzzed(folder, folder / "good", "commands", 0, 0)
    return folder / "good"


@pytest.mark.parametrize(("kind", "seed", "count"), SAMPLE)
def test_nothing_hostile_ends_in_our_own_fault(
    tmp_path: Path, ground: Path, kind: str, seed: int, count: int
) -> None:
    assert "all cases are done" in fuzzed(tmp_path, ground, kind, seed, count)
