"""Batched products of codes against numpy: every result is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import PLACEMENT
from helpers.kernels.packed_kernel import kernel_error
from helpers.kernels.products_of_codes import products
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.batch_matmul_int8 import SPEC
from tilewright.kernels.codes import dot_lanes
from tilewright.kernels.search_space import KnobSpace, each
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import sample_arguments
from tilewright.measure.targeting import placement_of

HERE = local_placement()
PLACEMENTS = [PLACEMENT, HERE] if dot_lanes(HERE.target) else [PLACEMENT]


def default(task: Workload, placement: Placement) -> Candidate:
    return default_candidate(task, (PLAIN,) * (len(task.arguments) + 1), placement)[0]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    dtypes=st.tuples(st.sampled_from(["int8", "uint8"]), st.sampled_from(["int8", "uint8"])),
    leading=st.sampled_from([((2, 3), (2, 3)), ((3,), (1,)), ((1, 2), (3, 1)), ((), (2,))]),
    rows=st.sampled_from([1, 5, 17]),
    depth=st.sampled_from([1, 6, 16, 35, 516]),
    columns=st.sampled_from([3, 16, 37, 70]),
    transposed=st.booleans(),
    bare=st.booleans(),
    placement=st.sampled_from(PLACEMENTS),
    choice=st.integers(0, 10_000),
)
def test_sums_are_exact(dtypes, leading, rows, depth, columns, transposed, bare, placement, choice):
    """Whatever the codes are, the largest ones among them."""
    right = (columns, depth) if transposed else (depth, columns)
    left = (*leading[0], rows, depth)
    task = products(left, (*leading[1], *right), dtypes, transposed=transposed, bare=bare)
    forms = (PLAIN,) * (len(task.arguments) + 1)
    arrays = sample_arguments(task, choice)
    if not bare:
        arrays[3] = np.float32(2.0**-9)
    if dtypes[1] == "uint8":
        arrays[-1] = np.int32(128)
    for array in arrays[:2]:
        array[..., :3] = np.iinfo(array.dtype).max
        array[..., -1:] = np.iinfo(array.dtype).min
    on = placement.target, placement.resources
    space = KnobSpace(
        knobs=SPEC.knobs(task, *on, forms),
        accepts=each(lambda setting: SPEC.valid(task, *on, forms, setting)),
    )
    found = [space.settings(number) for number in space]
    error = kernel_error(task, SPEC, forms, found[choice % len(found)], placement, arrays)
    assert error == 0
    assert SPEC.error_bound(task) <= 1e-10


@pytest.mark.parametrize(("signed", "expected"), [("uint8", -255 * 128), ("int8", 128 * 128)])
@pytest.mark.parametrize("cpu", [None, "haswell"])
def test_the_largest_sums_do_not_saturate(cpu: str | None, signed: str, expected: int) -> None:
    """With dot products and without: pairs of products of bytes would saturate in 16 bits."""
    placement = local_placement() if cpu is None else placement_of(f"llvm -mcpu={cpu}", None, 1)
    task = products((2, 8, 516), (2, 516, 32), (signed, "int8"))
    data = np.full((2, 8, 516), 255 if signed == "uint8" else -128, signed)
    built = build_kernel(task, default(task, placement), placement.target, placement.resources)
    assert (built.run([data, np.full((2, 516, 32), -128, np.int8)]) == expected * 516).all()


@pytest.mark.parametrize(
    ("cpu", "count"), [("icelake-server", 14), ("alderlake", 8), ("haswell", 0)]
)
def test_what_multiplies_codes(cpu: str, count: int) -> None:
    """Dot products where the processor has them, and never those that saturate."""
    placement = placement_of(f"llvm -mcpu={cpu}", None, 1)
    task = products((12, 64, 64), (12, 64, 64), ("int8", "int8"), bare=False)
    candidate = default(task, placement)
    assert candidate.implementation == SPEC.name
    text = rendered(task, candidate, placement.target, placement.resources, "asm")
    assert count <= text.count("vpdpbusd") <= 99 * count
    assert "vpmaddubsw" not in text


@pytest.mark.parametrize(
    ("features", "rows", "instruction", "count"),
    [("+dotprod", 64, "sdot", 16), ("+dotprod,+i8mm", 1, "usdot", 4)],
)
def test_what_multiplies_codes_on_arm(
    features: str, rows: int, instruction: str, count: int
) -> None:
    placement = placement_of(f"llvm -mtriple=aarch64-linux-gnu -mattr=+neon,{features}", None, 1)
    task = products((12, rows, 64), (12, 64, 64), ("uint8", "int8"), bare=False)
    text = rendered(task, default(task, placement), placement.target, placement.resources, "asm")
    assert text.count(f"\t{instruction}\t") >= count
