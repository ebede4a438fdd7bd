"""The compute units of CPUs by their instruction sets, and targets made of them.

    cpu_target(model="AMD EPYC", …).units   a vector unit for float32, one for bfloat16, …

Operations per cycle are nominal, of one core: two vector units, as most server cores have. Sources:
Intel's and AMD's optimization manuals, LLVM's scheduling models; tiles as Intel states them (one
tile product per 16 cycles).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.core.targets import ComputeUnit, MemoryLevel, Target
from tilewright.hardware.features import vector_shape

_PIPES = 2


class _Extension(NamedTuple):
    """An instruction set of vectors: `terms` products are added up in each of the lanes, which are
    `lane_bytes` wide."""

    feature: str
    element: str
    accumulator: str
    terms: int
    lane_bytes: int = 4


_PLAIN = (("float32", 4), ("float64", 8), ("int32", 4))
"""What every vector unit computes in, and its bytes."""

_VECTORS = (
    _Extension("avx512bf16", "bfloat16", "float32", 2),
    _Extension("avx512fp16", "float16", "float16", 1, 2),
    _Extension("avx512vnni", "int8", "int32", 4),
    _Extension("avxvnni", "int8", "int32", 4),
    _Extension("fullfp16", "float16", "float16", 1, 2),
    _Extension("dotprod", "int8", "int32", 4),
)
_NARROW = {"avxvnni": 32}
"""Bytes of the registers of instruction sets that do not use the widest ones."""

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


def units_of(features: Sequence[str], vector_bytes: int) -> tuple[ComputeUnit, ...]:
    """What a core can compute with whose vector registers are that wide: plain vectors first, then
    what extensions add."""
    plain = (_Extension("vector", name, name, 1, size) for name, size in _PLAIN)
    units = [_vector(unit, vector_bytes) for unit in plain]
    units += [
        _vector(unit, min(vector_bytes, _NARROW.get(unit.feature, vector_bytes)))
        for unit in _VECTORS
        if unit.feature in features
    ]
    return (*units, *(tile for tile in _TILES if tile.name in features))


def _vector(unit: _Extension, vector_bytes: int) -> ComputeUnit:
    lanes = max(1, vector_bytes // unit.lane_bytes)
    return ComputeUnit(
        name=unit.feature,
        element=unit.element,
        accumulator=unit.accumulator,
        granule=(1, lanes, unit.terms),
        operations_per_cycle=2 * _PIPES * lanes * unit.terms,
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
        units=units_of(features, vector_bytes),
        memory=tuple(
            MemoryLevel(name=f"L{level}", bytes=size, cores=cores if level == last > 2 else 1)
            for level, size in enumerate(cache_bytes, start=1)
        ),
        cores=cores,
        tvm=tvm,
    )
