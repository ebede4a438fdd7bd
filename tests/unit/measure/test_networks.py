"""What stands in the way of compiling a network, told before work begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.core.errors import InputError, OutputError, TargetError
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
