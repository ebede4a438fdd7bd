"""`tilewright serve`: what is said before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from helpers.records.written_artifacts import write_artifact
from tilewright.core.errors import UsageError
from tilewright.serving import serve
from tilewright.serving.networks import named_folders

Command = Callable[..., Any]
WRONG = {
    "nothing": ((), 2, "ARTIFACT"),
    "no artifact": (("empty", "--load", "1s"), 4, "is no compiled network"),
    "two of one name": (("a/net", "b/net", "--load", "1s"), 2, "called 'net'"),
    "another machine": (("a/net", "--load", "1s"), 3, "compiled for aarch64"),
    "a load for no time": (("a/net", "--load", "soon"), 2, "no duration"),
    "a deadline of no time": (("a/net", "--load", "1s", "--deadline", "0s"), 2, "no duration"),
    "deadlines for all and for one": (
        ("a/net", "--load", "1s", "--deadline", "1s", "--deadline", "net=1s"), 2, "one for all"
    ),
    "a rate that is none": (("a/net", "--load", "1s", "--rate", "net"), 2, "REQUESTS_PER_SECOND"),
    "a rate of nothing": (("a/net", "--load", "1s", "--rate", "3"), 2, "'3' is no NAME="),
    "two rates of one": (
        ("a/net", "--load", "1s", "--rate", "net=1", "--rate", "net=2"), 2, "twice for 'net'"
    ),
    "a deadline of nothing": (("a/net", "--load", "1s", "--deadline", "=1s"), 2, "no NAME=20ms"),
    "two deadlines of one": (
        ("a/net", "--load", "1s", "--deadline", "net=1s", "--deadline", "net=2s"), 2, "twice"
    ),
    "instances for nobody": (("a/net", "--load", "1s", "--instances", "1x1:"), 2, "no instances"),
    "instances of no batch": (
        ("a/net", "--load", "1s", "--instances", "1x1@0"), 2, "no instances"
    ),
    "instances for one twice": (
        ("a/net", "--load", "1s", "--instances", "1x1:net+net"), 2, "twice"
    ),
    "a burst of a plan": (("a.json", "--load", "1s", "--burst", "2"), 2, "Leave --burst out"),
    "a load over HTTP": (("a/net", "--load", "1s", "--port", "80"), 2, "use one"),
    "clients without a load": (("a/net", "--clients", "2"), 2, "--load 10s"),
    "no clients": (("a/net", "--load", "1s", "--clients", "0"), 2, "at least 1"),
    "no batches": (("a/net", "--load", "1s", "--batches", "0"), 2, "a whole number from 1"),
    "batches of a plan": (("a.json", "--load", "1s", "--batches", "2"), 2, "Leave --batches out"),
    "devices of a plan": (("a.json", "--load", "1s", "--devices", "llvm"), 2, "Leave --devices"),
    "a tracker for nobody": (("a/net", "--load", "1s", "--tracker", "h:1"), 2, "none is named"),
    "a tracker for this machine": (
        ("a/net", "--load", "1s", "--devices", "llvm", "--tracker", "h:1"), 2, "--tracker"
    ),
    "no tracker": (("a/net", "--load", "1s", "--devices", "rpc:pi"), 2, "address of its tracker"),
    "no such device": (
        ("a/net", "--load", "1s", "--devices", "rpc:pi", "--tracker", "127.0.0.1:9"), 3, "refuses"
    ),
    "a device that is only described": (
        ("a/net", "--load", "1s", "--devices", "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"),
        3, "cannot run on this machine"
    ),
    "this machine twice": (
        ("a/net", "--load", "1s", "--devices", "llvm", "--devices", "llvm"), 2, "both this machine"
    ),
    "no artifact for a device": (
        ("n=a/net", "n=b/net", "--load", "1s", "--devices", "llvm"), 3,
        "no artifact of 'n' runs on 'llvm': compiled for aarch64"
    ),
    "a mode of given instances": (
        ("a/net", "--load", "1s", "--instances", "1x1", "--mode", "shared"), 2, "use one"
    ),
    "a port that is none": (("a/net", "--port", "99999"), 3, "cannot listen"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG.values(), ids=WRONG)
def test_wrong_usage(
    tilewright: Command, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    machine = {
        "class": "cpu-1", "architecture": "aarch64", "model": "a CPU", "vector_bytes": 16,
        "features": ["neon"], "target": {"kind": "llvm"}, "threads": 2,
    }  # fmt: skip
    for place in ("a", "b"):
        write_artifact(tmp_path / place / "net", machine=machine)
    ran = tilewright("serve", *arguments)
    assert ran.code == code and said in ran.err, ran.err


def test_a_server_is_closed_when_its_load_is_wrong(
    tilewright: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline for a network that a plan has not is known when the plan is served."""
    ended: list[bool] = []

    class Opened:
        networks: ClassVar = {"net": None}

        def __enter__(self) -> Opened:
            return self

        def __exit__(self, *_: object) -> None:
            ended.append(True)

    def plan_server(*_: object, **_named: object) -> Opened:
        return Opened()

    monkeypatch.setattr(serve, "plan_server", plan_server)
    ran = tilewright("serve", "a.json", "--load", "1s", "--deadline", "other=1s")
    assert ran.code == 2 and "'other', which is not served" in ran.err
    assert ended == [True]


def test_names(tmp_path: Path) -> None:
    (tmp_path / "x=y").mkdir()
    given = [str(tmp_path / "net"), "other=folder/of/it", str(tmp_path / "x=y")]
    assert list(named_folders(given)) == ["net", "other", "x=y"]
    with pytest.raises(UsageError, match="called 'net'"):
        named_folders(["a/net", "net=b"])
