"""Instruction sets: Linux's names, LLVM's names, and what a CPU that has them computes with.

    cpu_target(model="AMD EPYC", …).units   a vector unit for float32, one for bfloat16, …

Operations per cycle are nominal, of one core: two vector units, as most server cores have. Sources:
Intel's and AMD's optimization manuals, LLVM's scheduling models; tiles as Intel states them (one
tile product per 16 cycles).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tilewright.core.targets import ComputeUnit, MemoryLevel, Target

_X86_NAMES = {
    "pni": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "cx16": "cx16",
    "popcnt": "popcnt",
    "lahf_lm": "sahf",
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "abm": "lzcnt",
    "movbe": "movbe",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "avx_vnni": "avxvnni",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512bw": "avx512bw",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}
_ARM_NAMES = {
    "asimd": "neon",
    "neon": "neon",
    "asimdhp": "fullfp16",
    "asimddp": "dotprod",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
}
KNOWN_FEATURES = frozenset({*_X86_NAMES.values(), *_ARM_NAMES.values()})
"""Every instruction set that is looked for; others say nothing about vector code."""

X86_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
X86_V3 = (*X86_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
AVX512 = ("avx512f", "avx512dq", "avx512bw", "avx512vl")
X86_V4 = (*X86_V3, *AVX512, "avx512cd")

_PIPES = 2
"""Vector units of a core."""


class _Vectors(NamedTuple):
    """Arithmetic of vectors that comes with a feature, `vector` standing for every CPU: `terms`
    products are added up in each of the lanes, which are `lane_bytes` wide, of registers of at most
    `most_bytes`."""

    feature: str
    element: str
    accumulator: str
    terms: int = 1
    lane_bytes: int = 4
    most_bytes: int = 64


_VECTORS = (
    _Vectors("vector", "float32", "float32"),
    _Vectors("vector", "float64", "float64", lane_bytes=8),
    _Vectors("vector", "int32", "int32"),
    *(_Vectors(name, "bfloat16", "float32", terms=2) for name in ("avx512bf16", "bf16")),
    _Vectors("avx512fp16", "float16", "float16", lane_bytes=2),
    _Vectors("avx512vnni", "int8", "int32", terms=4),
    _Vectors("avxvnni", "int8", "int32", terms=4, most_bytes=32),
    _Vectors("fullfp16", "float16", "float16", lane_bytes=2),
    _Vectors("dotprod", "int8", "int32", terms=4),
    _Vectors("i8mm", "int8", "int32", terms=4),
)

_TILES = (
    ComputeUnit(
        name="amx-bf16",
        element="bfloat16",
        accumulator="float32",
        granule=(16, 16, 32),
        operations_per_cycle=1024,
    ),
    ComputeUnit(
        name="amx-int8",
        element="int8",
        accumulator="int32",
        granule=(16, 16, 64),
        operations_per_cycle=2048,
    ),
    ComputeUnit(
        name="bf16",
        element="bfloat16",
        accumulator="float32",
        granule=(2, 2, 4),
        operations_per_cycle=64,
    ),
    ComputeUnit(
        name="i8mm",
        element="int8",
        accumulator="int32",
        granule=(2, 2, 8),
        operations_per_cycle=128,
    ),
)


def is_arm(architecture: str) -> bool:
    """Whether an architecture name (`uname -m` or an LLVM triple's first part) is ARM."""
    return architecture.startswith(("aarch64", "arm"))


def is_x86(architecture: str) -> bool:
    """Whether an architecture name is 64-bit x86."""
    return architecture in ("x86_64", "amd64", "x86-64")


def llvm_features(flags: Iterable[str], architecture: str) -> tuple[str, ...]:
    """The instruction sets that matter to kernels, in LLVM's spelling, sorted.

    `flags` are Linux's names from /proc/cpuinfo.
    """
    names = _ARM_NAMES if is_arm(architecture) else _X86_NAMES
    found = {names[flag] for flag in flags if flag in names}
    if architecture.startswith("aarch64"):
        found.add("neon")
    return tuple(sorted(found))


def vector_shape(features: Collection[str], architecture: str) -> tuple[int, int]:
    """(bytes, number) of the vector registers that kernels may count on.

    64 bytes and 32 registers with AVX-512 F, DQ, BW and VL; 32 and 16 with AVX2 and FMA; else 16:
    NEON (32 registers on aarch64) and SSE. SVE counts as its NEON part, because the code we
    generate has fixed widths.
    """
    if is_x86(architecture):
        if set(AVX512) <= set(features):
            return 64, 32
        return (32, 16) if {"avx2", "fma"} <= set(features) else (16, 16)
    return 16, 16 if architecture.startswith("arm") else 32


def units_of(
    features: Sequence[str], vector_bytes: int, model: str = ""
) -> tuple[ComputeUnit, ...]:
    """What a core can compute with whose vector registers are that wide: vectors first, then
    tiles. `model` is the processor's name."""
    vectors = [
        _vector_unit(found, vector_bytes)
        for found in _VECTORS
        if found.feature in ("vector", *features)
    ]
    tiles = [tile for tile in _TILES if tile.name in features]
    return (*(_as_fast_as(unit, features, model) for unit in vectors), *tiles)


def _as_fast_as(unit: ComputeUnit, features: Collection[str], model: str) -> ComputeUnit:
    """A vector unit at the rate that cores with these features have.

    Intel's cores with AMX begin a dot product of bfloat16 every other cycle (0.57 ns, where a
    multiply-add in single precision takes 0.14), also where the system hides or refuses their
    tiles. All of them multiply float16 in vectors, as AMD's up to Zen 5 do not.
    """
    tiled = "amx-bf16" in features or ("avx512fp16" in features and "AMD" not in model)
    slow = tiled and unit.name == "avx512bf16"
    return replace(unit, operations_per_cycle=unit.operations_per_cycle // 4) if slow else unit


def _vector_unit(found: _Vectors, vector_bytes: int) -> ComputeUnit:
    lanes = max(1, min(vector_bytes, found.most_bytes) // found.lane_bytes)
    return ComputeUnit(
        name=found.feature,
        element=found.element,
        accumulator=found.accumulator,
        granule=(1, lanes, found.terms),
        operations_per_cycle=2 * _PIPES * lanes * found.terms,
    )


def cpu_target(
    *,
    model: str,
    architecture: str,
    features: tuple[str, ...],
    cache_bytes: Sequence[int],
    cores: int,
    tvm: str = "",
) -> Target:
    """The target of a CPU; what follows from its instruction sets is filled in.

    `cache_bytes` are the sizes of its data caches, the nearest first: of one core, but for the
    last, which all cores share.
    """
    vector_bytes, registers = vector_shape(features, architecture)
    last = len(cache_bytes)
    return Target(
        model=model,
        architecture=architecture,
        features=features,
        vector_bytes=vector_bytes,
        vector_registers=registers,
        units=units_of(features, vector_bytes, model),
        memory=tuple(
            MemoryLevel(name=f"L{level}", bytes=size, cores=cores if level == last > 2 else 1)
            for level, size in enumerate(cache_bytes, start=1)
        ),
        cores=cores,
        tvm=tvm,
    )
