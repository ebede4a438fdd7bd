"""Every worker starts from nothing, too; those of other tests are mostly forks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import tilewright
from tilewright.core import processes

SERVES = re.compile(r"^ +(child\.)?serve\(", re.MULTILINE)
ROOM = Path(tilewright.__file__).parent
MODULES = [
    "tilewright." + ".".join(path.relative_to(ROOM).with_suffix("").parts)
    for path in sorted(ROOM.rglob("*.py"))
    if SERVES.search(path.read_text()) and "peers" not in path.parts
]


def test_they_are_found() -> None:
    assert {"tilewright.measure.kernel_worker", "tilewright.serving.worker"} <= {*MODULES}


@pytest.mark.parametrize("module", MODULES)
def test_it_starts_and_answers(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "subprocess", subprocess)
    with processes.Child(module) as child, pytest.raises(processes.RemoteError) as refused:
        child.request(("no such handler",), 120.0)
    assert refused.value.kind == "KeyError"
