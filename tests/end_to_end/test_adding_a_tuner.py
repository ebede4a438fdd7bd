"""The tuner that the documentation adds from another package is found and passes its suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.commands.installed_examples import install, run_python, run_suite

SEARCH = """
from tilewright.testing.landscapes import smooth
from tilewright.search.tuners.registry import replayable, tuner_factory
assert "climber" in replayable()
assert smooth().regret(tuner_factory("climber"), 60) < 1.0
print(tuner_factory("climber").__module__)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    return install("adding-a-tuner.md", "climber", tmp_path)


def test_the_example_passes_the_suite(installed: Path) -> None:
    done = run_suite(installed, "test_climber.py")
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout


def test_the_example_is_found_by_its_name(installed: Path) -> None:
    done = run_python(installed, "-c", SEARCH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "climber.tuner"


def test_a_tuner_that_repeats_itself_fails_the_suite(installed: Path) -> None:
    text = (installed / "climber" / "tuner.py").read_text()
    text += "\n    def ask(self, count):\n        return [self.space.candidate(0)][:count]\n"
    (installed / "climber" / "tuner.py").write_text(text)
    done = run_suite(installed, "test_climber.py")
    assert done.returncode == 1
    assert "was proposed or told before" in done.stdout
