"""The probe on made-up machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.hardware.probe import (
    FALLBACK_L1_BYTES,
    FALLBACK_L2_BYTES,
    allotted_cores,
    allotted_cpus,
    core_groups,
    cpu_quota,
    default_threads,
    parse_cpu_list,
    parse_size,
    probe_cpu,
)

AVX2 = "fpu sse sse2 pni ssse3 sse4_1 sse4_2 cx16 popcnt lahf_lm avx avx2 fma f16c abm movbe"
AVX2 += " bmi1 bmi2"
AVX512 = AVX2 + " avx512f avx512dq avx512bw avx512vl avx512cd avx512_vnni avx512_bf16"
EVERYTHING = range(1024)


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def x86_machine(root: Path, *, flags: str, cores: int, smt: int = 1) -> Path:
    """`cores` cores whose threads are numbered as on PCs: siblings `cores` apart."""
    cpus = range(cores * smt)
    blocks = [
        f"processor\t: {cpu}\nmodel name\t: Some  CPU\ncache size\t: 999 KB\nflags\t\t: {flags}"
        for cpu in cpus
    ]
    files = {
        "proc/cpuinfo": "\n\n".join(blocks),
        "sys/devices/system/cpu/online": f"0-{len(cpus) - 1}",
    }
    for cpu in cpus:
        siblings = ",".join(str(cpu % cores + cores * thread) for thread in range(smt))
        base = f"sys/devices/system/cpu/cpu{cpu}"
        files[f"{base}/topology/core_cpus_list"] = siblings
        caches = [("1", "Data", "48K", siblings), ("1", "Instruction", "32K", siblings)]
        caches += [("2", "Unified", "2M", siblings), ("3", "Unified", "16384K", "0-63")]
        for index, (level, kind, size, shared) in enumerate(caches):
            files[f"{base}/cache/index{index}/level"] = level
            files[f"{base}/cache/index{index}/type"] = kind
            files[f"{base}/cache/index{index}/size"] = size
            files[f"{base}/cache/index{index}/shared_cpu_list"] = shared
    return write(root, files)


def test_avx512_with_hyper_threads(tmp_path: Path) -> None:
    root = x86_machine(tmp_path, flags=AVX512, cores=4, smt=2)
    facts = probe_cpu(root)
    assert (facts.model, facts.architecture) == ("Some CPU", "x86_64")
    assert (facts.vector_bytes, facts.vector_registers) == (64, 32)
    assert (facts.cache_bytes(1), facts.cache_bytes(2), facts.cache_bytes(3)) == (
        48 << 10,
        2 << 20,
        16 << 20,
    )
    assert facts.cores == 4
    assert {"avx512vnni", "avx512bf16", "fma", "sse4.2", "lzcnt"} <= set(facts.features)
    assert allotted_cpus(root, EVERYTHING) == (0, 1, 2, 3, 4, 5, 6, 7)
    assert core_groups(root) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert default_threads(root, EVERYTHING) == 4


def test_siblings_come_after_all_cores(tmp_path: Path) -> None:
    root = x86_machine(tmp_path, flags=AVX2, cores=2, smt=2)
    for cpu in range(4):
        pair = "0-1" if cpu < 2 else "2-3"
        write(root, {f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list": pair})
    assert allotted_cpus(root, EVERYTHING) == (0, 2, 1, 3)
    assert allotted_cpus(root, {1, 2, 3}) == (1, 2, 3)
    assert allotted_cores(root, {0, 1}) == 1


def test_avx2_only(tmp_path: Path) -> None:
    facts = probe_cpu(x86_machine(tmp_path, flags=AVX2, cores=1))
    assert (facts.vector_bytes, facts.vector_registers) == (32, 16)


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        ("sse sse2", (16, 16)),
        ("avx avx2", (16, 16)),
        (AVX2 + " avx512f avx512cd", (32, 16)),
    ],
)
def test_half_of_an_instruction_set_does_not_count(
    tmp_path: Path, flags: str, shape: tuple[int, int]
) -> None:
    facts = probe_cpu(x86_machine(tmp_path, flags=flags, cores=1))
    assert (facts.vector_bytes, facts.vector_registers) == shape


def test_arm_without_model_name_or_sysfs(tmp_path: Path) -> None:
    block = "BogoMIPS\t: 108\nFeatures\t: fp asimd asimdhp asimddp sve\nCPU implementer\t: 0x41\n"
    block += "CPU architecture: 8\nCPU part\t: 0xd0c"
    text = "\n\n".join(f"processor\t: {cpu}\n{block}" for cpu in range(4)) + "\n\nRevision : c03"
    root = write(tmp_path, {"proc/cpuinfo": text})
    facts = probe_cpu(root)
    assert (facts.model, facts.architecture) == ("Arm part 0xd0c", "aarch64")
    assert facts.features == ("dotprod", "fullfp16", "neon", "sve")
    assert (facts.vector_bytes, facts.vector_registers) == (16, 32)
    assert (facts.cache_bytes(1), facts.cache_bytes(2)) == (FALLBACK_L1_BYTES, FALLBACK_L2_BYTES)
    assert facts.cores == 4
    assert allotted_cpus(root, EVERYTHING) == (0, 1, 2, 3)


def test_a_level_2_cache_shared_by_cores_is_divided_and_is_the_last(tmp_path: Path) -> None:
    root = x86_machine(tmp_path, flags=AVX2, cores=4)
    write(
        root,
        {
            "sys/devices/system/cpu/cpu0/cache/index2/shared_cpu_list": "0-3",
            "sys/devices/system/cpu/cpu0/cache/index3/level": "none",
        },
    )
    facts = probe_cpu(root)
    assert facts.cache_bytes(2) == facts.cache_bytes(3) == (2 << 20) // 4


def test_x86_without_sysfs_uses_cpuinfo(tmp_path: Path) -> None:
    blocks = [
        f"processor : {cpu}\ncache size : 8192 KB\nphysical id : 0\ncore id : {cpu // 2}\n"
        f"flags : {AVX2}"
        for cpu in range(4)
    ]
    root = write(tmp_path, {"proc/cpuinfo": "\n\n".join(blocks)})
    facts = probe_cpu(root)
    assert (facts.cache_bytes(3), facts.cores) == (8 << 20, 2)
    assert allotted_cpus(root, EVERYTHING) == (0, 2, 1, 3)


def test_an_empty_tree_still_gives_facts(tmp_path: Path) -> None:
    facts = probe_cpu(tmp_path)
    assert facts.cores == 1
    assert facts.vector_bytes == 16
    assert min(facts.cache_bytes(1), facts.cache_bytes(2), facts.cache_bytes(3)) > 0
    assert allotted_cpus(tmp_path, EVERYTHING) == (0,)


@pytest.mark.parametrize(
    ("files", "quota", "count"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"}, 2.5, 2),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}, 0.5, 1),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            },
            3.0,
            3,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
            },
            4.0,
            4,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/../outside",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000",
            },
            3.0,
            3,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
            8,
        ),
    ],
)
def test_quotas_of_both_cgroup_versions(
    tmp_path: Path, files: dict[str, str], quota: float | None, count: int
) -> None:
    root = write(x86_machine(tmp_path, flags=AVX2, cores=4, smt=2), files)
    assert cpu_quota(root) == quota
    assert len(allotted_cpus(root, EVERYTHING)) == count
    assert default_threads(root, EVERYTHING) == min(count, 4)


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpuset.cpus.effective": "2-3,6"},
        {"proc/self/cgroup": "4:cpuset:/x", "sys/fs/cgroup/cpuset/x/cpuset.cpus": "2-3,6"},
    ],
)
def test_cpuset_cuts_the_affinity(tmp_path: Path, files: dict[str, str]) -> None:
    root = write(x86_machine(tmp_path, flags=AVX2, cores=4, smt=2), files)
    assert allotted_cpus(root, EVERYTHING) == (2, 3, 6)
    assert allotted_cpus(root, {3, 4, 6}) == (6, 3)
    assert default_threads(root, EVERYTHING) == 2


@pytest.mark.parametrize(("limit", "threads"), [("1", 1), ("3", 3), ("64", 4), ("junk", 4)])
def test_omp_num_threads_only_lowers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, threads: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    root = x86_machine(tmp_path, flags=AVX2, cores=4)
    assert default_threads(root, EVERYTHING) == threads


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_read_back(cpus: set[int]) -> None:
    assert parse_cpu_list(",".join(map(str, cpus))) == tuple(sorted(cpus))


@given(st.text(max_size=20))
def test_cpu_lists_and_sizes_never_raise(text: str) -> None:
    assert parse_size(text) >= 0
    if sum(character.isdigit() for character in text) < 6:
        cpus = parse_cpu_list(text)
        assert list(cpus) == sorted(set(cpus)) and all(cpu >= 0 for cpu in cpus)


def test_sizes() -> None:
    sizes = [parse_size(text) for text in ("48K", "8192 KB", "2M", "77", "", "-1K")]
    assert sizes == [48 << 10, 8 << 20, 2 << 20, 77, 0, 0]
