"""The spec of direct convolutions on GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.cuda_images import image_convolution, offered
from helpers.kernels.cuda_settings import facts_on, gpu, listed
from helpers.kernels.gpu_kernels import space_of
from helpers.kernels.one_kernel import step, workload
from tilewright.core.forms import IMAGE_LAYOUTS
from tilewright.graph.workload import Workload
from tilewright.kernels.cuda.direct import SPEC
from tilewright.kernels.cuda.direct_tiles import EXCHANGED, dealt, tiles_of
from tilewright.kernels.registry import ports_in
from tilewright.kernels.spaces import ranked_defaults
from tilewright.testing.implementations import (
    check_demand,
    check_packing,
    check_space,
    check_spec,
    plain,
)

NAME = "cuda_direct"
TILE = dict(rows=2, columns=4, channels=8, down=4, across=8, deep=2, beside=0)


def convolution(
    height: int, out: int, side: int, stride: int = 1, pad: int = 0, channels: int = 3
) -> Workload:
    named = dict(strides=(stride,) * 2, padding=(pad,) * 4, dilation=(1, 1), groups=1)
    shapes = [(1, channels, height, height), (out, channels, side, side)]
    return workload(shapes, step("conv2d", 0, 1, **named))


CLIFF, FIRST = convolution(225, 32, 3), convolution(224, 64, 7, 2, 3)


@pytest.mark.parametrize("task", [CLIFF, FIRST, convolution(37, 4, 11, 4, 3, 1)])
def test_the_spec_keeps_its_contract(task: Workload) -> None:
    check_spec(SPEC, task, placements=[gpu(), gpu("-model=T4")])


def test_the_spec_keeps_its_contract_in_every_form() -> None:
    task = image_convolution((2, 3, 31, 29), 20, (5, 5), strides=(2, 2), padding=(2,) * 4)
    for forms in offered(NAME, task):
        check_space(SPEC, task, gpu(), forms)
        check_demand(SPEC, task, gpu(), forms)
        check_packing(SPEC, task, gpu(), forms)


def test_it_is_for_few_channels_of_several_filters() -> None:
    def offers(task: Workload) -> bool:
        return SPEC.applies(task, gpu().target, gpu().resources)

    assert offers(CLIFF) and offers(convolution(30, 8, 3, channels=4))
    assert not offers(convolution(30, 8, 3, channels=5))
    depthwise = dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=8)
    assert not offers(workload([(1, 8, 9, 9), (8, 1, 3, 3)], step("conv2d", 0, 1, **depthwise)))
    assert not offers(convolution(200, 8, 129))  # no shared memory has room for its filters


def test_every_result_has_a_thread_and_limits_are_kept() -> None:
    for task in (CLIFF, convolution(12, 5, 5, 2, 1)):
        conv = tiles_of(task, plain(task), TILE).of.conv
        for setting in listed(task, NAME)[::7]:
            tiles = tiles_of(task, plain(task), setting)
            extents = (1, 1, conv.group_out, conv.out_height, conv.out_width)
            sizes = (1, 1, *tiles.tile)
            covered = [n * size for n, size in zip(tiles.counts, sizes, strict=True)]
            assert all(a >= b for a, b in zip(covered, extents, strict=True))
            places = {tiles.place(thread) for thread in range(tiles.threads)}
            assert len(places) == tiles.threads
        told = facts_on(task, NAME, listed(task, NAME))
        assert (told["shared_bytes"] <= gpu().target.limits.static_shared_bytes).all()
        assert (told["blocks_per_multiprocessor"] >= 1).all()


def test_lines_are_dealt_out_evenly() -> None:
    """Of 34 elements, 12 threads have three each, with two over, of ten lines at a time."""
    way = dealt(34, 10, 128)
    assert (way.parts, way.width, way.lines, way.turns) == (3, 12, 10, 1)
    long = dealt(300, 5, 64)
    assert long.width * long.parts >= 300 and long.lines * long.turns >= 5


def test_facts_of_one_setting_by_hand() -> None:
    """Rectangles of 8 rows and 32 columns of 16 channels; eight lanes side by side write a line of
    223 that begins anywhere in a sector of eight: one of it, or seven times of eight two."""
    told = {name: values[0] for name, values in facts_on(CLIFF, NAME, [TILE]).items()}
    assert told["parallel_extent"] == 2 * 28 * 7 and told["threads"] == 64
    assert told["waste"] == pytest.approx(28 * 8 * 7 * 32 / 223**2)
    assert told["shared_bytes"] == 4 * (3 * 10 * 34 + 27 * (16 + 4))
    assert told["sectors_per_store"] == 4 * (1 + 7 * 2) / 8
    assert told["edge_predicates"] == 2
    # below and to the right, the last rectangles read beyond the image
    assert told["predicates"] == 2
    padded = facts_on(convolution(225, 32, 3, pad=1), NAME, [TILE])
    assert padded["predicates"][0] == 4


def test_facts_of_exchanged_columns_by_hand() -> None:
    """Four lanes write as many neighbours of each other: 32 results side by side, that begin
    anywhere in a sector of eight. Each sum is exchanged twice, in half a line of shared memory and
    two instructions a time."""
    both = [{**TILE, "beside": beside} for beside in (1, 2)]
    told = facts_on(CLIFF, NAME, both)
    assert told["sectors_per_store"].tolist() == [4 * 4.5, (4 + 7 * 5) / 8]
    warps, sums = 2 * told["parallel_extent"][0], 2 * 4 * 8
    assert np.diff(told["instructions"])[0] == pytest.approx(warps * sums * 2 * 2)
    assert np.diff(told["shared_traffic_bytes"])[0] == pytest.approx(warps * sums * 2 / 2 * 128)
    assert np.diff(told["registers"])[0] == 0


def test_columns_are_exchanged_where_they_cannot_be_written_at_once() -> None:
    def offers(task: Workload, **named: int) -> bool:
        on = gpu()
        given = (task, on.target, on.resources, plain(task))
        return SPEC.valid(*given, {**TILE, "beside": EXCHANGED, **named})

    assert offers(CLIFF) and offers(CLIFF, columns=2) and offers(convolution(228, 32, 3))
    assert not offers(convolution(226, 32, 3))
    assert not offers(convolution(228, 32, 3), columns=2)  # pairs are written at once
    assert not offers(CLIFF, columns=3) and not offers(CLIFF, across=16)
    assert not offers(CLIFF, down=3)  # a warp of sixteen lanes has no 32


def test_lanes_that_read_neighbours_meet_in_no_bank() -> None:
    """With a stride of 2, a staged row has its even columns first; two rows of it, four apart, are
    read by sixteen lanes each."""
    settings = [{**TILE, "across": 32, "down": 1, "beside": beside} for beside in (0, 1)]
    assert facts_on(FIRST, NAME, settings)["conflicts"].tolist() == [1, 1]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("task", [CLIFF, FIRST], ids=["padding cliff", "resnet50"])
def test_first_layers_are_convolved_directly(task: Workload, layout: str) -> None:
    on = gpu()
    forms = ports_in(IMAGE_LAYOUTS[layout], task, on.target, on.resources)
    assert forms is not None
    best, *others = ranked_defaults(task, forms, on)
    assert best[0].implementation == NAME and others[0][1] > 1.1 * best[1]


def test_large_spaces_are_listed() -> None:
    assert 100 < len(space_of(NAME, CLIFF, gpu()).listed()) < 5000
