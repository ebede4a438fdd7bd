"""The specs of products whose tiles come by asynchronous copies, and of windows staged by such."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.cuda_settings import facts_on, gpu
from helpers.kernels.gpu_kernels import space_of
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import column
from tilewright.kernels.cuda.async_products import SPEC, SPECS, TF32_SPEC
from tilewright.kernels.cuda.product_tiles import product
from tilewright.kernels.cuda.products import CudaProducts
from tilewright.kernels.cuda.windows import SPEC as WINDOWS
from tilewright.kernels.search_space import LISTED
from tilewright.testing.implementations import check_spec, single

CONV = dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1)
DENSE = single("dense", (256, 512), (512, 1024))
ODD = single("conv2d", (1, 256, 7, 7), (512, 256, 3, 3), **CONV)
TILES = dict(
    tile_rows=32, tile_columns=32, thread_rows=4, thread_columns=4, tile_depth=16, split=1,
    by_taps=False,
)  # fmt: skip
BOTH = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


@BOTH
@pytest.mark.parametrize("task", [DENSE, ODD], ids=["dense", "convolution"])
def test_the_spec_keeps_its_contract(spec: CudaProducts, task: Workload) -> None:
    check_spec(spec, task, placements=[gpu("-model=A100"), gpu()])


@BOTH
def test_architectures_that_are_too_old(spec: CudaProducts) -> None:
    for old in ("-model=T4", "-model=V100", "-arch=sm_61"):
        on = gpu(old)
        assert not spec.applies(DENSE, on.target, on.resources)
    for new in ("-arch=sm_80", "-arch=sm_100", "-arch=sm_120"):
        on = gpu(new)
        assert spec.applies(DENSE, on.target, on.resources)


BEFORE = {
    "arithmetic": workload([(64, 64), (64, 64)], step("relu", 0), step("dense", 2, 1)),
    "a border": workload(
        [(64, 62), (64, 64)],
        step("pad", 0, before=(0, 1), after=(0, 1), mode="constant", value=0.0),
        step("dense", 2, 1),
    ),
    "halves": single(
        "dense", TensorType((64, 64), "float16"), TensorType((64, 64), "float16")
    ),
    "a single step": single("dense", (64, 8), (8, 64)),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_what_is_not_copied_as_it_is(name: str) -> None:
    on = gpu()
    assert not SPEC.applies(BEFORE[name], on.target, on.resources)


def test_operands_that_are_moved_are_copied() -> None:
    on = gpu()
    turned = workload(
        [(64, 64), (64, 64)], step("transpose", 0, permutation=(1, 0)), step("dense", 2, 1)
    )
    assert SPEC.applies(turned, on.target, on.resources)


def test_facts_of_stages_by_hand() -> None:
    """Tiles of 32×32×16: a left one is 36 elements wide. A thread copies 8 elements of it one by
    one, which come along the depth, and two vectors of four of the right one."""
    told = facts_on(DENSE, SPEC.name, [{**TILES, "stages": stages} for stages in (2, 3, 4)])
    assert told["shared_bytes"].tolist() == [s * 4 * 16 * (32 + 36) for s in (2, 3, 4)]
    assert told["registers"].tolist() == pytest.approx([23.6 + 1.23 * 16 + 1.03 * 10] * 3)
    assert told["conflicts"].tolist() == [1, 1, 1]
    usual = facts_on(DENSE, "cuda_product", [{**TILES, "stages": 2}])
    assert told["registers"][0] < usual["registers"][0]
    assert told["instructions"][0] > usual["instructions"][0]


def test_more_stages_hide_more_of_the_wait() -> None:
    """One block in 32 steps: nothing else could be done meanwhile."""
    task = single("dense", (32, 512), (512, 32))
    found = facts_on(task, SPEC.name, [{**TILES, "stages": stages} for stages in (2, 3, 4)])
    times = found["estimate_s"]
    assert times[0] > times[1] > times[2]


def test_as_many_steps_as_stages() -> None:
    task = single("dense", (64, 40), (40, 64))
    space = space_of(SPEC.name, task, gpu())
    found = space.columns(space.listed())
    tiles = SPEC.tiles(product(task), lambda knob: column(found, knob).astype(int))
    assert (tiles.steps(product(task)) >= tiles.stages).all()
    assert set(tiles.stages) == {2, 3, 4}


def test_all_settings_are_listed() -> None:
    """Defaults of spaces that are too large to list would come from a sample."""
    task = single("conv2d", (32, 256, 56, 56), (256, 256, 3, 3), **CONV)
    for spec in SPECS:
        assert space_of(spec.name, task, gpu()).range_length <= LISTED


@pytest.mark.parametrize(("spec", "width"), [(SPEC, 4), (TF32_SPEC, 2)], ids=["singles", "tf32"])
def test_lanes_exchange_where_lines_begin_anywhere(spec: CudaProducts, width: int) -> None:
    on = gpu()
    for task, turns in ((ODD, True), (DENSE, False)):
        space = space_of(spec.name, task, on)
        found = space.columns(space.listed())
        tiles = spec.tiles(product(task), lambda knob, f=found: column(f, knob).astype(int))
        assert np.all(np.asarray(tiles.exchanges > 0) == turns)
        assert not turns or np.max(tiles.widths[0]) == width


def test_windows_are_staged_so_from_the_same_architectures_on() -> None:
    named = {**CONV, "groups": 32}
    singles = single("conv2d", (1, 32, 16, 16), (32, 1, 3, 3), **named)
    before = workload(
        [(1, 32, 16, 16), (32, 1, 3, 3)], step("relu", 0), step("conv2d", 2, 1, **named)
    )
    for task, options, offered in (
        (singles, "-arch=sm_80", (0, 1, 2)),
        (singles, "-arch=sm_75", (0, 1)),
        (before, "-arch=sm_80", (0, 1)),
    ):
        knobs = space_of(WINDOWS.name, task, gpu(options)).knobs
        assert next(knob for knob in knobs if knob.name == "staged").values == offered


def test_copies_that_wait_together_are_one_wait_and_more_instructions() -> None:
    task = single("conv2d", (1, 32, 16, 16), (32, 1, 3, 3), **{**CONV, "groups": 32})
    sizes = {"threads": 64, "rows": 4, "columns": 4}
    told = facts_on(task, WINDOWS.name, [{**sizes, "staged": staged} for staged in (1, 2)])
    assert told["shared_bytes"][0] == told["shared_bytes"][1]
    assert told["instructions"][1] > told["instructions"][0]
    assert told["estimate_s"][1] < told["estimate_s"][0]
