"""What targets say of element types: lanes, and operations by the units of their instructions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.element_types import element_type, element_types
from tilewright.core.targets import ComputeUnit, Target
from tilewright.hardware.features import AVX512, KNOWN_FEATURES, X86_V3, X86_V4, cpu_target

NAMES = [kind.name for kind in element_types()]
LEVELS: dict[str, tuple[tuple[str, ...], ...]] = {
    "x86_64": ((), X86_V3, X86_V4, (*X86_V3, *AVX512, "avxvnni")),
    "aarch64": (("neon",), ("dotprod", "fullfp16", "neon")),
}


@st.composite
def targets(draw: st.DrawFn) -> Target:
    """Processors with any instruction sets that are looked for."""
    architecture = draw(st.sampled_from(list(LEVELS)))
    level = draw(st.sampled_from(LEVELS[architecture]))
    more = draw(st.sets(st.sampled_from(sorted(KNOWN_FEATURES))))
    return cpu_target(
        model="made up",
        architecture=architecture,
        features=tuple(sorted({*level, *more})),
        cache_bytes=(32 << 10, 1 << 20),
        cores=2,
    )


def units(target: Target, dtype: str) -> list[ComputeUnit]:
    return [unit for unit in target.units if unit.element == dtype]


@given(target=targets(), dtype=st.sampled_from(NAMES))
def test_lanes_fill_a_register(target: Target, dtype: str) -> None:
    assert target.lanes(dtype) * element_type(dtype).bytes == target.vector_bytes
    for unit in units(target, dtype):
        rows, lanes, terms = unit.granule
        assert rows > 1 or lanes * element_type(dtype).bytes * terms <= target.vector_bytes


@given(target=targets(), dtype=st.sampled_from(NAMES))
def test_a_unit_is_at_least_as_fast_as_plain_vectors(target: Target, dtype: str) -> None:
    computed_in = element_type(dtype).computed_in
    rate = target.operations_per_cycle(dtype)
    own = [unit.operations_per_cycle for unit in units(target, dtype)]
    if own:
        assert rate == max(own)
    else:
        assert rate == target.operations_per_cycle(computed_in)
    assert rate >= target.operations_per_cycle(computed_in)


@given(target=targets())
def test_plain_vectors_multiply_and_add_in_two_units(target: Target) -> None:
    for dtype in ("float64", "float32", "int32"):
        assert target.operations_per_cycle(dtype) == 2 * 2 * target.lanes(dtype)


@pytest.mark.parametrize(
    ("features", "dtype", "vectors", "tiles"),
    [
        (("dotprod",), "int8", 64, 64),
        (("dotprod", "i8mm"), "int8", 64, 128),
        (("bf16",), "bfloat16", 32, 64),
    ],
)
def test_what_arm_multiplies_with(
    features: tuple[str, ...], dtype: str, vectors: int, tiles: int
) -> None:
    """Two pipes of four lanes: dot products, and matrices that double their rate."""
    target = cpu_target(
        model="made up",
        architecture="aarch64",
        features=("neon", *features),
        cache_bytes=(32 << 10, 1 << 20),
        cores=2,
    )
    assert target.operations_per_cycle("float32") == 16
    assert target.operations_per_cycle(dtype, tiles=False) == vectors
    assert target.operations_per_cycle(dtype) == tiles


@pytest.mark.parametrize("dtype", NAMES)
def test_without_units_a_lane_multiplies_and_adds(dtype: str) -> None:
    bare = Target(
        model="made up",
        architecture="made up",
        features=(),
        vector_bytes=32,
        vector_registers=16,
        units=(),
        memory=(),
        cores=1,
        tvm="",
    )
    computed_in = element_type(dtype).computed_in
    assert bare.operations_per_cycle(dtype) == 2 * bare.lanes(computed_in)


@pytest.mark.parametrize(
    ("model", "more", "slower"),
    [
        ("Intel(R) Xeon(R) Processor", ("amx-tile", "amx-bf16"), 4),
        ("Intel(R) Xeon(R) Processor", ("avx512fp16",), 4),
        ("AMD EPYC of a later kind", ("avx512fp16",), 1),
        ("AMD EPYC 9R14", (), 1),
    ],
)
def test_dot_products_are_as_fast_as_cores_begin_them(model, more, slower):
    """Also where tiles are not permitted: it is the core that is slow with them."""
    target = cpu_target(
        model=model,
        architecture="x86_64",
        features=(*X86_V4, "avx512bf16", *more),
        cache_bytes=(32 << 10, 1 << 20),
        cores=2,
    )
    dots, singles = (
        next(unit.operations_per_cycle for unit in target.units if unit.name == name)
        for name in ("avx512bf16", "vector")
    )
    assert dots * slower == 2 * singles
