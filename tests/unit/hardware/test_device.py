"""Targets and devices: reading, writing, what makes two of them one class."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakes.placements import with_cache
from tilewright.core.errors import TargetError
from tilewright.core.targets import threads_alone
from tilewright.hardware.device import class_key, is_local, local_placement, parse_target
from tilewright.hardware.features import X86_V3, X86_V4, cpu_target
from tilewright.hardware.probe import allotted_cpus
from tilewright.hardware.target import read_target, target_features, tvm_text

FACTS = cpu_target(
    model="Intel(R) Xeon(R) <b>CPU</b> @ 2.0GHz",
    architecture="x86_64",
    features=tuple(sorted(X86_V3)),
    cache_bytes=(1 << 15, 1 << 20, 1 << 24),
    cores=4,
    tvm="{}",
)
FOREIGN = '{"kind":"llvm","mtriple":"%s-linux-gnu","mcpu":"cortex-a72"}'


def foreign_machine(root: Path, flags: str) -> Path:
    blocks = [f"processor : {cpu}\nmodel name : X\nflags : {flags}" for cpu in range(2)]
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("\n\n".join(blocks))
    return root


def test_local_target_goes_by_features_not_by_name() -> None:
    avx2 = json.loads(tvm_text(FACTS))
    assert avx2 == {"kind": "llvm", "mcpu": "x86-64-v3", "mattr": []}
    features = (*X86_V4, "avx512vnni", "amx-tile")
    wide = json.loads(tvm_text(replace(FACTS, features=features)))
    assert wide["mcpu"] == "x86-64-v4"
    assert wide["mattr"] == ["-prefer-256-bit", "+avx512vnni"]


def test_a_level_with_one_feature_missing_is_not_claimed() -> None:
    features = tuple(name for name in X86_V3 if name != "bmi2")
    target = json.loads(tvm_text(replace(FACTS, features=features)))
    assert target["mcpu"] == "x86-64-v2"
    assert {"+avx2", "+fma"} <= set(target["mattr"])
    assert "+bmi2" not in target["mattr"]


def test_arm_target() -> None:
    facts = replace(FACTS, architecture="aarch64", features=("dotprod", "neon", "sve"))
    target = json.loads(tvm_text(facts))
    assert (target["mcpu"], target["mattr"]) == ("generic", ["+dotprod", "+neon"])


def test_what_local_target_writes_promises_the_same_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    features = tuple(sorted((*X86_V4, "avx512bf16")))
    assert target_features(read_target(tvm_text(replace(FACTS, features=features)))) == (features)


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
    placement = parse_target("llvm")
    assert placement == local_placement()
    assert is_local(placement.device)
    assert placement.binding.cpus == allotted_cpus()
    assert placement.resources.threads >= 1
    assert json.loads(placement.tvm_target)["num-cores"] == placement.resources.threads
    assert parse_target('{"kind": "llvm", "num-cores": 1}') == local_placement(1)


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_impossible_thread_counts(threads: int) -> None:
    with pytest.raises(TargetError, match=str(threads)):
        local_placement(threads)


def test_a_foreign_target_is_described_but_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    placement = parse_target(FOREIGN % "aarch64", 4)
    assert not is_local(placement.device)
    assert (placement.target.architecture, placement.target.vector_bytes) == ("aarch64", 16)
    assert (placement.target.vector_registers, placement.resources.threads) == (32, 4)
    assert placement.target.lanes("float32") == 4
    with pytest.raises(TargetError):
        parse_target(FOREIGN % "aarch64", 0)


def test_a_narrower_target_runs_here_and_a_wider_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    flags = "pni ssse3 sse4_1 sse4_2 cx16 popcnt lahf_lm avx avx2 fma f16c abm movbe bmi1 bmi2"
    root = foreign_machine(tmp_path, flags)
    narrow = parse_target("llvm -mcpu=x86-64-v2", root=root)
    assert is_local(narrow.device)
    assert (narrow.target.model, narrow.target.vector_bytes) == ("X", 16)
    assert narrow.key != parse_target("llvm", root=root).key
    assert is_local(parse_target("llvm -mcpu=haswell -mattr=+aes", root=root).device)
    wide = parse_target("llvm -mcpu=x86-64-v4", root=root)
    assert not is_local(wide.device)
    assert (wide.target.vector_bytes, wide.target.vector_registers) == (64, 32)


def test_class_key_is_readable_and_clean() -> None:
    key = class_key(FACTS)
    assert re.fullmatch("intel-xeon-b-cpu-b-2-0ghz-avx2-[0-9a-f]{10}", key)
    assert key == class_key(FACTS)


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "Intel(R) Xeon(R) <b>CPU</b> @ 2.0GHz "},
        {"features": (*FACTS.features, "avxvnni")},
        {"tvm": '{"mcpu":"x"}'},
        with_cache(FACTS, 1, 48 << 10),
        with_cache(FACTS, 2, 2 << 20),
        with_cache(FACTS, 3, 1 << 25),
    ],
)
def test_class_key_changes_with_what_counts(changed: dict[str, Any]) -> None:
    assert class_key(replace(FACTS, **changed)) != class_key(FACTS)


@pytest.mark.parametrize("changed", [{"cores": 64}, {"units": ()}])
def test_class_key_knows_no_number_of_cores_and_nothing_derived(changed: dict[str, Any]) -> None:
    assert class_key(replace(FACTS, **changed)) == class_key(FACTS)


def test_threads_are_resources_and_no_part_of_the_device() -> None:
    one, most = local_placement(1), local_placement(len(allotted_cpus()))
    assert one.device == most.device
    assert one.resources == threads_alone(1)
    assert (one.key == most.key) == (len(allotted_cpus()) == 1)
