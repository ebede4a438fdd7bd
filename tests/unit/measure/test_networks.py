"""What stands in the way of compiling a network, told before work begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.core.errors import (
    InputError,
    InternalError,
    ModelError,
    OutputError,
    TargetError,
    TilewrightError,
)
from tilewright.core.processes import RemoteError
from tilewright.measure import networks


def test_no_compiler_is_a_target_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing(_name: str) -> None:
        return None

    monkeypatch.setattr(networks.shutil, "which", nothing)
    worker: Any = object.__new__(networks.NetworkWorker)
    plan: Any = None
    with pytest.raises(TargetError, match="no C"):
        worker.compile(plan, {}, tmp_path)
    assert not list(tmp_path.iterdir())


class FakeChild:
    """Fails at every request, as a handler that raised."""

    pid = 1

    def __init__(self, kind: str, message: str) -> None:
        self._error = RemoteError(kind, message, "")

    def request(self, _message: object, _timeout_s: float) -> None:
        raise self._error


def test_an_index_out_of_range_is_no_bug() -> None:
    worker: Any = object.__new__(networks.NetworkWorker)
    worker.request = FakeChild("InputError", "'words' is given an index").request
    with pytest.raises(InputError, match="'words'"):
        worker.run("tuned", [])


def test_a_compiler_that_fails_is_a_target_error() -> None:
    worker: Any = object.__new__(networks.NetworkWorker)
    worker.request = FakeChild("LinkError", "Command line: false -shared").request
    with pytest.raises(TargetError, match="false -shared") as caught:
        worker.load("tuned", Path("folder"), [])
    assert "CXX" in str(caught.value)


def test_weights_on_a_full_disk_are_told_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def cut_short(_path: Path, _array: object) -> None:
        raise OSError("401408 requested and 262112 written")

    monkeypatch.setattr(networks.plans, "packed_constant", lambda *_: np.zeros(3, np.float32))
    monkeypatch.setattr(np, "save", cut_short)
    plan: Any = SimpleNamespace(constants=[SimpleNamespace(name="w")])
    with pytest.raises(OutputError, match="No space left on device") as caught:
        networks.packed_weights(plan, {}, tmp_path).__enter__()
    assert "--out" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


def test_compiling_may_take_half_an_hour_and_all_else_five_minutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Running for so many seconds gets these beside."""
    limits: dict[str, float] = {}

    def request(message: tuple[Any, ...], timeout_s: float) -> None:
        limits[message[0]] = timeout_s

    monkeypatch.setattr(networks.shutil, "which", lambda _name: "/usr/bin/g++")
    worker: Any = object.__new__(networks.NetworkWorker)
    worker.request, worker.placement = request, None
    plan: Any = SimpleNamespace(constants=[])
    worker.compile(plan, {}, tmp_path)
    worker.load("tuned", tmp_path, ["w"])
    worker.run("tuned", [])
    worker.time("tuned", [], repeats=3, warmup=1)
    worker.repeat("tuned", [], 7.5)
    worker.time_calls("tuned", [], repeats=3)
    worker.memory_peak(tmp_path, [], [])
    worker.unload("tuned")
    usual = dict.fromkeys(("load", "run", "time", "time calls", "memory peak", "unload"), 300.0)
    assert limits == {"compile": 1800.0, "repeat": 307.5, **usual}


def test_weights_are_packed_beside_the_network_and_go_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def packed(stored: Any, constants: Any) -> Any:
        return constants[stored.name] * 2

    monkeypatch.setattr(networks.plans, "packed_constant", packed)
    plan: Any = SimpleNamespace(constants=[SimpleNamespace(name="w"), SimpleNamespace(name="v")])
    given: dict[str, Any] = {"w": np.arange(3), "v": np.ones((2, 2))}
    with networks.packed_weights(plan, given, tmp_path) as folder:
        assert folder.parent == tmp_path
        assert sorted(path.name for path in folder.iterdir()) == ["v.npy", "w.npy"]
        np.testing.assert_array_equal(np.load(folder / "w.npy"), [0, 2, 4])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "message", "error", "says"),
    [
        ("OSError", "disk on fire", OutputError, "cannot write the compiled network: disk on fire"),
        ("PermissionError", "not yours", OutputError, "not yours"),
        ("InternalError", "Write incomplete: 3 of 9", OutputError, "No space left on device"),
        ("DamagedArtifact", "the library is cut short\nmake it anew", ModelError, "cut short"),
        ("ValueError", "strange", InternalError, "time failed"),
    ],
)
def test_what_a_network_process_tells(
    kind: str, message: str, error: type[TilewrightError], says: str
) -> None:
    found = networks.network_error(RemoteError(kind, message, "line 3"), "time")
    assert type(found) is error and says in found.message
    if kind == "DamagedArtifact":
        assert (found.message, found.hint) == ("the library is cut short", "make it anew")
