"""Instruction sets: Linux's names, LLVM's names, and what they mean for vector code."""

from __future__ import annotations

from collections.abc import Collection, Iterable

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
