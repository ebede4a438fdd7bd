"""Targets and devices: reading, writing, what makes two of them one class."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.errors import TargetError
from tilewright.core.records import CpuFacts
from tilewright.hardware.device import class_key, is_local, local_device, parse_target
from tilewright.hardware.features import X86_V3, X86_V4
from tilewright.hardware.target import local_target, read_target, target_features
from tilewright.hardware.topology import allotted_cpus

FACTS = CpuFacts(
    model="Intel(R) Xeon(R) <b>CPU</b> @ 2.0GHz",
    architecture="x86_64",
    features=tuple(sorted(X86_V3)),
    vector_bytes=32,
    vector_registers=16,
    l1_bytes=1 << 15,
    l2_bytes=1 << 20,
    l3_bytes=1 << 24,
    physical_cores=4,
)
FOREIGN = '{"kind":"llvm","mtriple":"%s-linux-gnu","mcpu":"cortex-a72"}'


def foreign_machine(root: Path, flags: str) -> Path:
    blocks = [f"processor : {cpu}\nmodel name : X\nflags : {flags}" for cpu in range(2)]
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("\n\n".join(blocks))
    return root


def test_local_target_goes_by_features_not_by_name() -> None:
    avx2 = json.loads(local_target(FACTS, 3))
    assert avx2 == {"kind": "llvm", "mcpu": "x86-64-v3", "mattr": [], "num-cores": 3}
    features = (*X86_V4, "avx512vnni", "amx-tile")
    wide = json.loads(local_target(replace(FACTS, features=features), 1))
    assert wide["mcpu"] == "x86-64-v4"
    assert wide["mattr"] == ["-prefer-256-bit", "+avx512vnni"]


def test_a_level_with_one_feature_missing_is_not_claimed() -> None:
    features = tuple(name for name in X86_V3 if name != "bmi2")
    target = json.loads(local_target(replace(FACTS, features=features), 1))
    assert target["mcpu"] == "x86-64-v2"
    assert {"+avx2", "+fma"} <= set(target["mattr"])
    assert "+bmi2" not in target["mattr"]


def test_arm_target() -> None:
    facts = replace(FACTS, architecture="aarch64", features=("dotprod", "neon", "sve"))
    target = json.loads(local_target(facts, 2))
    assert (target["mcpu"], target["mattr"]) == ("generic", ["+dotprod", "+neon"])


def test_what_local_target_writes_promises_the_same_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    features = tuple(sorted((*X86_V4, "avx512bf16")))
    assert target_features(read_target(local_target(replace(FACTS, features=features), 1))) == (
        features
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "cuda",
        "lvm",
        "{",
        "{}",
        '{"kind": 3}',
        '{"kind": "llvm", "mattr": "+avx2"}',
        '{"kind": "llvm", "mattr": ["avx2"]}',
        '{"kind": "llvm", "mcpu": 7}',
        '{"kind": "llvm", "num-cores": 0}',
        '{"kind": "llvm", "num-cores": true}',
        "llvm x86",
        "llvm -mcpu",
        "llvm -num-cores=many",
        "llvm -mcpu='x",
    ],
)
def test_malformed_targets(text: str) -> None:
    with pytest.raises(TargetError):
        parse_target(text)


def test_errors_name_close_matches() -> None:
    with pytest.raises(TargetError, match="llvm"):
        read_target("lvm")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(TargetError):
        assert read_target(text)["kind"] == "llvm"


def test_the_older_notation_means_the_same() -> None:
    old = read_target("llvm -mcpu=x86-64-v3 -mattr=+avx512f,-bmi2 -num-cores=2")
    assert old == {
        "kind": "llvm",
        "mcpu": "x86-64-v3",
        "mattr": ["+avx512f", "-bmi2"],
        "num-cores": 2,
    }


def test_llvm_is_the_local_device() -> None:
    device = parse_target("llvm")
    assert device == local_device()
    assert is_local(device)
    assert device.cpus == allotted_cpus()
    assert device.threads >= 1
    assert json.loads(device.target)["num-cores"] == device.threads
    assert parse_target('{"kind": "llvm", "num-cores": 1}') == local_device(1)


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_impossible_thread_counts(threads: int) -> None:
    with pytest.raises(TargetError, match=str(threads)):
        local_device(threads)


def test_a_foreign_target_is_described_but_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    device = parse_target(FOREIGN % "aarch64", 4)
    assert not is_local(device)
    assert (device.cpu.architecture, device.cpu.vector_bytes) == ("aarch64", 16)
    assert (device.cpu.vector_registers, device.threads) == (32, 4)
    assert device.lanes_f32 == 4
    with pytest.raises(TargetError):
        parse_target(FOREIGN % "aarch64", 0)


def test_a_narrower_target_runs_here_and_a_wider_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    flags = "pni ssse3 sse4_1 sse4_2 cx16 popcnt lahf_lm avx avx2 fma f16c abm movbe bmi1 bmi2"
    root = foreign_machine(tmp_path, flags)
    narrow = parse_target("llvm -mcpu=x86-64-v2", root=root)
    assert is_local(narrow)
    assert (narrow.cpu.model, narrow.cpu.vector_bytes) == ("X", 16)
    assert narrow.class_key != parse_target("llvm", root=root).class_key
    assert is_local(parse_target("llvm -mcpu=haswell -mattr=+aes", root=root))
    wide = parse_target("llvm -mcpu=x86-64-v4", root=root)
    assert not is_local(wide)
    assert (wide.cpu.vector_bytes, wide.cpu.vector_registers) == (64, 32)


def test_class_key_is_readable_and_clean() -> None:
    key = class_key(FACTS, target="{}", threads=4, cores=4)
    assert key.startswith("intel-xeon-b-cpu-b-2-0ghz-avx2-4t-")
    assert key == class_key(FACTS, target="{}", threads=4, cores=4)


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "Intel(R) Xeon(R) <b>CPU</b> @ 2.0GHz "},
        {"features": (*FACTS.features, "avxvnni")},
        {"l1_bytes": 48 << 10},
        {"l2_bytes": 2 << 20},
        {"l3_bytes": 1 << 25},
    ],
)
def test_class_key_changes_with_what_counts(changed: dict[str, Any]) -> None:
    key = class_key(FACTS, target="{}", threads=2, cores=2)
    assert class_key(replace(FACTS, **changed), target="{}", threads=2, cores=2) != key
    assert class_key(FACTS, target="{}", threads=2, cores=1) != key
    assert class_key(FACTS, target="{}", threads=1, cores=2) != key
    assert class_key(FACTS, target='{"mcpu":"x"}', threads=2, cores=2) != key
