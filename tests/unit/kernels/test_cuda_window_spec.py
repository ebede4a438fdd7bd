"""The spec of pooling and depthwise convolution for GPUs."""

from __future__ import annotations

import pytest

from helpers.kernels.cuda_settings import facts_on, gpu, listed
from helpers.kernels.one_kernel import step, workload
from helpers.kernels.streaming_cases import ADD, POOL
from tilewright.graph.workload import Workload
from tilewright.kernels.cuda.windows import SPEC, rectangles_of
from tilewright.testing.implementations import check_spec, plain

NAME = "cuda_window"


def convolution(shape: tuple[int, ...], side: int, groups: int, per_group: int = 1) -> Workload:
    named = dict(strides=(1, 1), padding=(side // 2,) * 4, dilation=(1, 1), groups=groups)
    weight = (shape[1], per_group, side, side)
    return workload([shape, weight], step("conv2d", 0, 1, **named))


DEPTHWISE = convolution((8, 32, 112, 112), 3, 32)
SMALL = convolution((8, 960, 7, 7), 3, 960)


@pytest.mark.parametrize("task", [POOL, DEPTHWISE, SMALL])
def test_keeps_what_every_implementation_must(task) -> None:
    check_spec(SPEC, task, placements=[gpu(), gpu("-model=T4")])


def test_applies_to_windows_of_single_channels() -> None:
    on = gpu()
    assert not SPEC.applies(ADD, on.target, on.resources)
    assert not SPEC.applies(convolution((1, 8, 9, 9), 3, 4, 2), on.target, on.resources)
    pooled = step("max_pool2d", 0, kernel=(2, 2), strides=(2, 2), padding=(0,) * 4, dilation=(1, 1))
    turned = step("transpose", 1, permutation=(0, 1, 3, 2))
    assert not SPEC.applies(workload([(1, 3, 8, 8)], pooled, turned), on.target, on.resources)


@pytest.mark.parametrize("task", [POOL, DEPTHWISE, SMALL])
def test_every_result_has_a_thread(task: Workload) -> None:
    for setting in listed(task, NAME):
        shape = rectangles_of(task, plain(task), setting)
        window, (planes, down, across) = shape.window, shape.tiles
        assert shape.planes * shape.down * shape.across <= shape.threads
        assert planes * shape.planes >= window.planes
        assert down * shape.down * shape.rows >= window.height
        assert across * shape.across_columns >= window.width


def test_rows_of_a_thread_share_their_input() -> None:
    one, four = ({"threads": 128, "rows": r, "columns": 1, "staged": 0} for r in (1, 4))
    told = facts_on(DEPTHWISE, NAME, [one, four, {**four, "staged": 1}])
    assert told["loads_per_result"][0] == 9 and told["loads_per_result"][1] == 4.5
    assert told["loads_per_result"][2] < 2 and told["shared_bytes"][2] > 0


def test_columns_far_apart_take_more_lines() -> None:
    settings = [{"threads": 128, "rows": 1, "columns": c, "staged": 0} for c in (1, 2, 4)]
    lines = facts_on(DEPTHWISE, NAME, settings)["lines_per_load"]
    assert lines[0] <= 3 and lines[0] < lines[1] < lines[2]


def test_lines_of_copies_by_hand() -> None:
    """A block copies 4 rows of 34 elements of an image that is 112 wide. The lanes of its five
    warps touch 1, 3, 2, 4 and 1 lines of 32 elements."""
    setting = {"threads": 64, "rows": 1, "columns": 1, "staged": 1}
    assert facts_on(DEPTHWISE, NAME, [setting])["lines_per_load"] == pytest.approx(11 / 5)


def test_limits_are_kept() -> None:
    named = dict(kernel=(2, 2), strides=(1, 1), padding=(0,) * 4, dilation=(1, 1))
    huge = workload([(8, 64, 1025, 2048)], step("max_pool2d", 0, **named))
    limits, told = gpu().target.limits, facts_on(huge, NAME, listed(huge, NAME))
    assert (told["parallel_extent"] <= limits.grid[0]).all()
    assert (told["shared_bytes"] <= limits.static_shared_bytes).all()
    assert (told["blocks_per_multiprocessor"] >= 1).all()


def test_comparisons_and_conflicts() -> None:
    """Rectangles of 4 rows cover 112 rows and read beyond each side of the padded plane; of 7×7 in
    rectangles of 2×2, the last ones lack a row and a column."""
    setting = {"threads": 128, "rows": 4, "columns": 4, "staged": 0}
    told = facts_on(DEPTHWISE, NAME, [setting, {**setting, "staged": 1}])
    assert told["predicates"].tolist() == [4, 4] and told["edge_predicates"][0] == 0
    assert told["conflicts"][0] == 1 < told["conflicts"][1]
    small = facts_on(SMALL, NAME, [{"threads": 64, "rows": 2, "columns": 2, "staged": 0}])
    assert small["edge_predicates"][0] == 2
