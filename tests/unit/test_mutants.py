"""The changes that tell how much the tests see."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mutants as command
from mutation import mutants

SOURCE = '''"""A module."""

LIMIT = 3


def within(value: int, names: list[str], *, strict: bool = False) -> bool:
    """The docstring's 5 stays."""
    if not names and value < LIMIT + 1:
        raise ValueError(f"{value} of 7")
    share: float = value / 2
    share += len([*zip(names, names, strict=True)])
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
    assert not any(change.startswith(("3 ", "False", "True", 'Path("a") /')) for change in changes)


def test_a_change_is_in_its_place_and_drawn_again(tree: Path) -> None:
    (found,) = mutants(tree, count=1, seed=3)
    assert [found] == mutants(tree, count=9, seed=3), "one of each function, none of testing"
    (tree / "room" / "aside.py").write_text(f"x = 1\n\n\n{SOURCE}")
    assert found in mutants(tree, count=9, seed=3), "others may come"
    changed = found.applied(SOURCE)
    assert changed != SOURCE and ast.parse(changed)
    assert len(changed.splitlines()) == len(SOURCE.splitlines())
    with pytest.raises(AssertionError, match="other sources"):
        found.applied(SOURCE.replace("    ", "  "))


def test_the_share_that_is_seen_decides(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {
            "file": "room/file.py",
            "line": i,
            "name": f"n{i}",
            "verdict": "seen" if i < 17 else "survives",
        }
        for i in range(20)
    ]
    report = command._report
    assert report(rows) == 0
    assert report([*rows, {**rows[-1], "name": "never", "verdict": "never run"}]) == 1
    assert "17 of 20 seen, 85%" in capsys.readouterr().out
    assert report([]) == 1


def test_a_function_that_is_read_and_not_run_is_asked_of_those_that_call_what_it_is_in() -> None:
    """As a function in TVM's language is."""
    rows = [
        {"test": "a", "passed": True, "functions": {"x.py": ["outer", "other.inner"]}},
        {"test": "b", "passed": False, "functions": {"x.py": ["outer"]}},
        {"test": "c", "passed": True, "functions": {"x.py": ["other"]}},
    ]
    asked = {
        name: [row["test"] for row in command._that_call("x.py", name, rows)]
        for name in ("outer", "outer.inner", "other.inner", "alone")
    }
    assert asked == {"outer": ["a"], "outer.inner": ["a"], "other.inner": ["a"], "alone": []}
    assert command._that_call("y.py", "outer.inner", rows) == []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one function, and a test that knows what it should do."""
    room, tests = tmp_path / "src/tilewright/room", tmp_path / "tests/unit/room"
    for folder in (room, tests, tmp_path / "tests/compiler"):
        folder.mkdir(parents=True)
    (room / "__init__.py").touch()
    (room.parent / "__init__.py").touch()
    (room / "file.py").write_text("def double(value):\n    return value * 2\n")
    (tests / "test_file.py").write_text(
        "from tilewright.room.file import double\n\n\ndef test_it():\n    double(2)\n"
    )
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "SOURCES", tmp_path / "src/tilewright")
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))
    return tmp_path


def test_a_change_survives_until_a_test_sees_it(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--jobs", "1"]) == 1
    assert "0 of 1 seen" in capsys.readouterr().out
    assert command.main(["--jobs", "1"]) == 1
    assert "test_file.py" not in capsys.readouterr().out, "judged before, and nothing changed"
    test = checkout / "tests/unit/room/test_file.py"
    test.write_text(test.read_text().replace("double(2)", "assert double(2) == 4"))
    assert command.main(["--jobs", "1"]) == 0
    assert "seen      room/file.py double" in capsys.readouterr().out
    assert command.main(["--report"]) == 0
