"""The changes that tell how much the tests see."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mutants as command
from mutation import Mutant, mutants

SOURCE = '''"""A module."""

LIMIT = 3


def within(value: int, names: list[str], *, strict: bool = False) -> bool:
    """The docstring's 5 stays."""
    if not names and value < LIMIT + 1:
        raise ValueError(f"{value} of 7")
    share: float = value / 2
    return strict or (Path("a") / "b").exists() or share * 2 >= 1
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "testing").mkdir()
    (tmp_path / "room").mkdir()
    for folder in ("testing", "room"):
        (tmp_path / folder / "file.py").write_text(SOURCE)
    return tmp_path


def every(tree: Path) -> set[str]:
    drawn = {m for seed in range(200) for m in mutants(tree, count=5, seed=seed)}
    return {f"{m.before} -> {m.after}" for m in drawn}


def test_what_is_changed_and_what_is_left_alone(tree: Path) -> None:
    changes = every(tree)
    assert {
        "not names and value < LIMIT + 1 -> (not names or value < LIMIT + 1)",
        "not names -> bool(names)",
        "value < LIMIT + 1 -> value >= LIMIT + 1",
        "LIMIT + 1 -> LIMIT - 1",
        "value / 2 -> value * 2",
        "share * 2 -> share // 2",
        "share * 2 >= 1 -> share * 2 < 1",
    } <= changes
    assert not any("ValueError" in change or "docstring" in change for change in changes)
    assert not any(change.startswith(("3 ", "False", 'Path("a") /')) for change in changes)


def test_a_change_is_in_its_place_and_drawn_again(tree: Path) -> None:
    (found,) = mutants(tree, count=1, seed=3)
    assert [found] == mutants(tree, count=9, seed=3), "one of each function, none of testing"
    changed = found.applied(SOURCE)
    assert changed != SOURCE and ast.parse(changed)
    assert len(changed.splitlines()) == len(SOURCE.splitlines())
    with pytest.raises(AssertionError, match="other sources"):
        found.applied(SOURCE.replace("    ", "  "))


def test_the_share_that_is_seen_decides(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"file": "room/file.py", "name": f"n{i}", "verdict": "seen" if i < 17 else "survives"}
        for i in range(20)
    ]
    report = command._report
    assert report(rows) == 0
    assert report([*rows, {**rows[-1], "name": "never", "verdict": "never run"}]) == 1
    assert "17 of 20 seen, 85%" in capsys.readouterr().out
    assert report([]) == 1


def test_the_room_s_own_tests_are_asked_first(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / "src" / "tilewright" / "room").mkdir(parents=True)
    (tmp_path / "src" / "tilewright" / "room" / "file.py").write_text(SOURCE)
    asked: list[str] = []
    monkeypatch.setattr(command, "_first_failing", lambda tests, _: asked.extend(tests) or "t")
    mutant = Mutant(
        file="room/file.py", function="within:6", line=10, column=19, before="value / 2", after="0"
    )
    lines = {
        "tests/unit/other/test_fast.py": (1.0, {"room/file.py": {10}}),
        "tests/unit/room/test_own.py": (9.0, {"room/file.py": {10}}),
        "tests/unit/room/test_elsewhere.py": (1.0, {"room/file.py": {11}}),
    }
    assert command._judged(mutant, lines) == {"verdict": "seen", "by": "t", "asked": 2}
    assert asked == ["tests/unit/room/test_own.py", "tests/unit/other/test_fast.py"]
    assert command._judged(mutant, {}) == {"verdict": "never run", "by": "", "asked": 0}
