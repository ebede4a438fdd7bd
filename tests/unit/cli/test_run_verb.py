"""`tilewright run`: which arrays it reads, under which names, and what it tells of outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes.session import FakeSession
from helpers.records.written_artifacts import write_artifact
from tilewright.cli.run import describe, file_names, read_inputs, split_input
from tilewright.core.errors import UsageError


def saved(path: Path, *values: float) -> np.ndarray[Any, Any]:
    array = np.asarray(values, np.float32)
    np.save(path, array)
    return array


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("x.npy", None, "x.npy"),
        ("a=x.npy", "a", "x.npy"),
        ("=x.npy", None, "=x.npy"),
        ("a=b=c.npy", "a", "b=c.npy"),
        ("a=here=1.npy", "a", "here=1.npy"),
        ("a=b=x.npy", "a=b", "x.npy"),
        ("b=x.npy", None, "b=x.npy"),
    ],
)
def test_names_and_paths_may_hold_the_sign_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str | None, path: str
) -> None:
    """Where there are several ways to read it, a file that is there decides, else the first."""
    monkeypatch.chdir(tmp_path)
    for file in ("x.npy", "here=1.npy"):
        Path(file).touch()
    if text == "b=x.npy":
        Path(text).touch()
    assert split_input(text) == (name, Path(path))


def test_arrays_by_name_or_in_order(tmp_path: Path) -> None:
    x, y = saved(tmp_path / "x.npy", 1, 2), saved(tmp_path / "y.npy", 3)
    in_order = read_inputs([f"{tmp_path}/x.npy", f"{tmp_path}/y.npy"])
    assert not isinstance(in_order, Mapping)
    assert [list(each) for each in in_order] == [list(x), list(y)]
    named = read_inputs([f"b={tmp_path}/x.npy", f"a={tmp_path}/y.npy"])
    assert isinstance(named, Mapping) and list(named) == ["b", "a"]
    assert list(named["a"]) == list(y) and list(named["b"]) == list(x)
    with pytest.raises(UsageError, match="all inputs or none"):
        read_inputs([f"b={tmp_path}/x.npy", f"{tmp_path}/y.npy"])
    with pytest.raises(UsageError, match="one name twice"):
        read_inputs([f"b={tmp_path}/x.npy", f"b={tmp_path}/y.npy"])


def test_a_file_for_each_output() -> None:
    assert file_names(["logits", "a/b:0", "../up", "", "..."]) == [
        "logits.npy",
        "a_b_0.npy",
        "__up.npy",
        "output3.npy",
        "___.npy",
    ]
    assert file_names(["Y", "y", "y"]) == ["Y.npy", "y_1.npy", "y_2.npy"]
    (long,) = file_names(["x" * 300])
    assert long == "x" * 100 + ".npy"


def test_what_is_told_of_an_array() -> None:
    found = describe(np.asarray([[1.0, np.nan, -3.0], [np.inf, 4.0, 2.0]], np.float32))
    assert found == {
        "shape": [2, 3], "dtype": "float32", "min": -3.0, "max": 4.0, "mean": 1.0, "not_finite": 2,
    }  # fmt: skip
    nothing = describe(np.full(2, np.nan))
    assert (nothing["min"], nothing["mean"], nothing["not_finite"]) == (None, None, 2)
    assert describe(np.float32(2))["shape"] == []


@pytest.fixture
def ran(session: FakeSession, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the session was given."""
    given: list[Any] = []

    def run(artifact: Path, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        given.append((artifact, arrays, session.verify))
        return {"y": np.ones((1, 2), np.float32)}

    monkeypatch.setattr(session, "run", run, raising=False)
    return given


def test_outputs_are_kept_beside_what_is_said(
    tilewright: Callable[..., Any], tmp_path: Path, ran: list[Any]
) -> None:
    folder = write_artifact(tmp_path / "net")
    x = saved(tmp_path / "x.npy", 1, 2)
    done = tilewright("run", str(folder), "--input", "x.npy", "--format", "json")
    assert done.code == 0, done.err
    ((artifact, arrays, verify),) = ran
    assert artifact == folder and verify and list(arrays) == ["x"]
    assert np.array_equal(arrays["x"], x)
    data = json.loads(done.out)["data"]
    (output,) = data["outputs"]
    assert output["file"] == "tilewright-out/net/outputs/y.npy" and output["max"] == 1.0
    assert np.array_equal(np.load(tmp_path / output["file"]), np.ones((1, 2)))


def test_where_outputs_go_and_what_is_not_checked(
    tilewright: Callable[..., Any], tmp_path: Path, ran: list[Any]
) -> None:
    folder = write_artifact(tmp_path / "net")
    saved(tmp_path / "x.npy", 1)
    words = ("--input", "z=x.npy", "--out", "there", "--no-verify", "--format", "json")
    done = tilewright("run", str(folder), *words)
    assert done.code == 0, done.err
    assert list(ran[0][1]) == ["z"] and not ran[0][2]
    assert (tmp_path / "there" / "y.npy").is_file()


def test_inputs_are_needed_as_many_as_there_are(
    tilewright: Callable[..., Any], tmp_path: Path, ran: list[Any]
) -> None:
    folder = write_artifact(tmp_path / "net")
    saved(tmp_path / "x.npy", 1)
    assert tilewright("run", str(folder)).code == 2
    done = tilewright("run", str(folder), "--input", "x.npy", "--input", "x.npy")
    assert done.code == 2 and "has 1 inputs, 2 were given" in done.err and not ran
