"""Attention on codes against numpy, and what multiplies them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.kernels.coded_attention_tasks import Extents, attention_on_codes
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Placement
from tilewright.graph.evaluate import run_workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.attention_int8 import SPEC
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import sample_arguments
from tilewright.measure.targeting import placement_of

HERE = local_placement(2)
PLACES = [HERE, placement_of("llvm -mcpu=haswell", None, 1)]
CODES = st.sampled_from(["int8", "uint8"])


@settings(max_examples=6, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(
    heads=st.sampled_from([(2, 2), (4, 2)]),
    sizes=st.sampled_from([(1, 17, 37, 16, 24), (2, 9, 70, 30, 5), (1, 33, 16, 8, 64)]),
    dtypes=st.tuples(CODES, CODES, CODES),
    form=st.sampled_from([(1, -1), (1, 0), (2, -1), (3, 1), (3, 2)]),
    bare=st.booleans(),
    place=st.sampled_from(PLACES),
    choice=st.integers(0, 10_000),
)
def test_results_are_those_of_numpy(heads, sizes, dtypes, form, bare, place, choice) -> None:
    """Sums and codes of scores are exact; a share may be rounded to the code beside it."""
    batch, queries, keys, depth, width = sizes
    extents = Extents(batch, *heads, queries, keys, depth, width)
    task = attention_on_codes(extents, dtypes, codings=form[0], masked=form[1], bare=bare)
    forms = (PLAIN,) * (len(task.arguments) + 1)
    space = knob_space(SPEC, task, place.target, place.resources, forms)
    numbers = [*space]
    chosen = tuple(sorted(space.settings(numbers[choice % len(numbers)]).items()))
    candidate = Candidate(implementation=SPEC.name, settings=chosen, forms=forms)
    arrays = sample_arguments(task, choice)
    for array in arrays[:3]:
        limits = np.iinfo(array.dtype)
        array[..., :3], array[:, -1] = limits.max, limits.min
    if not bare:
        arrays[-1] = np.float32(0.003)
    found = build_kernel(task, candidate, place.target, place.resources).run(arrays)
    wanted = run_workload(task, arrays)
    assert len(np.unique(wanted)) > 20
    off = np.abs(found.astype(np.int64) - wanted)
    assert off.max() <= (255 if bare else 1) and (off > 0).mean() < 0.01


@pytest.mark.parametrize("place", PLACES, ids=["dots", "singles"])
@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min])
def test_what_a_mask_hides_before_a_rounding_stays_hidden(place: Placement, hidden: float) -> None:
    """The division behind a mask is one by an inverse, which makes no number of an infinity."""
    task = attention_on_codes(Extents(keys=20), ("uint8",) * 3, codings=2, masked=0)
    candidate, _ = default_candidate(task, (PLAIN,) * (len(task.arguments) + 1), place)
    arrays = sample_arguments(task, 1)
    arrays[3][0, 1], arrays[-1] = 0.05, np.float32(0.003)
    arrays[5][..., 10:] = hidden
    found = build_kernel(task, candidate, place.target, place.resources).run(arrays)
    wanted = run_workload(task, arrays)
    assert len(np.unique(wanted)) > 20
    assert np.abs(found.astype(np.int64) - wanted).max() <= 1


def test_the_general_fallback_computes_it() -> None:
    task = attention_on_codes(
        Extents(key_heads=1, queries=3), ("int8", "uint8", "uint8"), codings=3, masked=1
    )
    arrays, forms = sample_arguments(task, 1), (PLAIN,) * (len(task.arguments) + 1)
    candidate = Candidate(implementation="generic", settings=(), forms=forms)
    found = build_kernel(task, candidate, HERE.target, HERE.resources).run(arrays)
    assert np.abs(found.astype(np.int64) - run_workload(task, arrays)).max() <= 1


@pytest.mark.parametrize(
    ("target", "instruction", "power"),
    [
        ("-mcpu=znver4", "vpdpbusd", "vscalefps"),
        ("-mcpu=alderlake", "vpdpbusd", ""),
        ("-mcpu=haswell", "vfmadd231ps", ""),
        ("-mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod", "sdot", ""),
        ("-mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod,+i8mm", "usdot", ""),
    ],
)
def test_what_multiplies_codes(target: str, instruction: str, power: str) -> None:
    place = placement_of(f"llvm {target}", None, 1)
    task = attention_on_codes(Extents(keys=64), ("uint8",) * 3)
    candidate, _ = default_candidate(task, (PLAIN,) * (len(task.arguments) + 1), place)
    assert candidate.implementation == SPEC.name
    text = rendered(task, candidate, place.target, place.resources, "asm")
    assert text.count(f"\t{instruction}\t") >= 16
    assert ("vscalefps" in text) == bool(power)
