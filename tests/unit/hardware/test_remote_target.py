"""Targets behind a tracker: what a person writes, and what a server tells."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tilewright.core.errors import TargetError
from tilewright.hardware.remote import (
    RemoteTarget,
    ServerFacts,
    read_remote,
    remote_place,
    remote_placement,
    same_kind,
)

TRACKER = ("10.0.0.1", 9190)
PI = ServerFacts(
    triple="aarch64-unknown-linux-gnu",
    cpu="cortex-a76",
    features=("dotprod", "fp-armv8", "fullfp16", "neon"),
    threads=4,
    flushes=True,
)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("rpc:pi", None),
        (" rpc:pi ", None),
        ('rpc:pi={"kind": "llvm", "mcpu": "cortex-a72"}', {"kind": "llvm", "mcpu": "cortex-a72"}),
        ("rpc:pi=llvm -mcpu=cortex-a72", {"kind": "llvm", "mcpu": "cortex-a72"}),
        ("rpc:pi -mcpu=cortex-a72", {"kind": "llvm", "mcpu": "cortex-a72"}),
    ],
)
def test_what_a_person_writes(text: str, target: dict[str, str] | None) -> None:
    assert read_remote(text) == RemoteTarget(key="pi", target=target)


@pytest.mark.parametrize("text", ["llvm", "llvm -mcpu=rpc:x", '{"kind": "llvm"}'])
def test_others_are_not_remote(text: str) -> None:
    assert read_remote(text) is None


@pytest.mark.parametrize("text", ["rpc:", "rpc:=llvm", "rpc:pi={", "rpc:pi=cuda", "rpc:pi mcpu"])
def test_broken_ones(text: str) -> None:
    with pytest.raises(TargetError):
        read_remote(text)


def test_a_server_tells_its_target() -> None:
    placement = remote_placement(RemoteTarget(key="pi"), TRACKER, PI, None)
    target = json.loads(placement.tvm_target)
    assert target["mtriple"] == PI.triple and "+dotprod" in target["mattr"]
    assert (placement.resources.threads, placement.target.vector_bytes, placement.target.model) == (
        4,
        16,
        "cortex-a76",
    )
    assert remote_place(placement.device) == ("pi", *TRACKER)
    twin = remote_placement(RemoteTarget(key="other"), ("there", 1), PI, None)
    assert twin.key == placement.key
    assert same_kind(placement, PI, None) and same_kind(placement, PI, PI)
    for other in (
        replace(PI, threads=2),
        replace(PI, cpu="cortex-a78"),
        replace(PI, features=("neon",)),
    ):
        assert not same_kind(placement, other, None)
    assert not same_kind(placement, replace(PI, cpu="cortex-a78"), PI)


def test_a_server_without_a_compiler_needs_a_target() -> None:
    bare = ServerFacts(threads=2)
    with pytest.raises(TargetError, match="cannot tell"):
        remote_placement(RemoteTarget(key="pi"), TRACKER, bare, None)
    given = RemoteTarget(key="pi", target={"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    assert remote_placement(given, TRACKER, bare, None).target.architecture == "aarch64"
    with pytest.raises(TargetError, match="TVM_NUM_THREADS=4"):
        remote_placement(given, TRACKER, bare, 4)
