"""Dense layers of codes against numpy: every result is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import PLACEMENT, step
from helpers.kernels.packed_kernel import kernel_error
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Placement
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.codes import dot_lanes
from tilewright.kernels.dense_int8 import SPEC
from tilewright.kernels.search_space import KnobSpace, each
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import sample_arguments
from tilewright.measure.targeting import placement_of

HERE = local_placement()
PLACEMENTS = [PLACEMENT, HERE] if dot_lanes(HERE.target) else [PLACEMENT]


def layer(rows: tuple[int, ...], depth: int, columns: int, dtype: str, *, bare: bool) -> Workload:
    """Bare sums, or with a bias and requantized to unsigned bytes."""
    kinds = [TensorType((*rows, depth), dtype), TensorType((depth, columns), "int8")]
    steps = [step("dense", 0, 1)]
    if not bare:
        kinds += [TensorType((columns,), "int32"), TensorType((columns,))]
        steps += [
            step("add", 4, 2), step("cast", 5, dtype="float32"), step("multiply", 6, 3),
            step("round", 7), step("clip", 8, minimum=0.0, maximum=255.0),
            step("cast", 9, dtype="uint8"),
        ]  # fmt: skip
    arguments = [Argument(type=k, role="constant" if i else "data") for i, k in enumerate(kinds)]
    return Workload(arguments=tuple(arguments), steps=tuple(steps))


def default(task: Workload, placement: Placement) -> Candidate:
    forms = (PLAIN,) * (len(task.arguments) + 1)
    return default_candidate(task, forms, placement)[0]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.sampled_from(["int8", "uint8"]),
    st.sampled_from([((5,), 8, 16), ((2, 7), 13, 33), ((), 6, 20), ((1,), 64, 40), ((17,), 20, 5)]),
    st.booleans(),
    st.sampled_from(PLACEMENTS),
    st.integers(0, 10_000),
)
def test_sums_are_exact(dtype, shape, bare, placement, choice):
    """Whatever the codes are, the largest ones among them."""
    task = layer(*shape, dtype, bare=bare)
    forms = (PLAIN,) * (len(task.arguments) + 1)
    arrays = sample_arguments(task, choice)
    arrays[0][..., :3] = np.iinfo(dtype).max
    arrays[1][:3] = -128
    on = placement.target, placement.resources
    space = KnobSpace(
        knobs=SPEC.knobs(task, *on, forms),
        accepts=each(lambda setting: SPEC.valid(task, *on, forms, setting)),
    )
    found = [space.settings(number) for number in space]
    error = kernel_error(task, SPEC, forms, found[choice % len(found)], placement, arrays)
    assert error <= 1e-10
    assert SPEC.error_bound(task) <= 1e-10


@pytest.mark.parametrize("cpu", [None, "haswell"])
def test_the_largest_sums_do_not_saturate(cpu: str | None) -> None:
    """With dot products and without: pairs of products of bytes would saturate in 16 bits."""
    placement = local_placement() if cpu is None else placement_of(f"llvm -mcpu={cpu}", None, 1)
    task = layer((8,), 64, 32, "uint8", bare=True)
    arrays = [np.full(a.type.shape, v, a.type.dtype)
              for a, v in zip(task.arguments, (255, -128), strict=True)]  # fmt: skip
    built = build_kernel(task, default(task, placement), placement.target, placement.resources)
    assert (built.run(arrays) == -255 * 128 * 64).all()


@pytest.mark.parametrize(
    ("cpu", "instruction"), [("haswell", "vpmaddwd"), ("icelake-server", "vpdpbusd")]
)
def test_what_multiplies_codes(cpu: str, instruction: str) -> None:
    """Dot products where the processor has them, else products of 16 bits, which are exact, and
    never those that saturate."""
    placement = placement_of(f"llvm -mcpu={cpu}", None, 1)
    task = layer((8,), 64, 64, "uint8", bare=False)
    candidate = default(task, placement)
    assert candidate.implementation == SPEC.name
    text = rendered(task, candidate, placement.target, placement.resources, "asm")
    assert instruction in text
    assert "vpmaddubsw" not in text
