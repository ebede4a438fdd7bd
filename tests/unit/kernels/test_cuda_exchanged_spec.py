"""The spec of products on GPUs whose lanes exchange results."""

from __future__ import annotations

import pytest

from helpers.kernels.cuda_settings import facts_on, gpu
from helpers.kernels.gpu_kernels import space_of
from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder
from tilewright.core.forms import CHANNELS_LAST, PLAIN
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import column
from tilewright.kernels.cuda.exchanged_products import SPEC
from tilewright.kernels.cuda.product_tiles import product
from tilewright.kernels.forms import choose_forms
from tilewright.testing.implementations import check_spec, single

CONV = dict(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)


def image(height: int, out: int = 32) -> Workload:
    return single("conv2d", (1, 3, height, height), (out, 3, 7, 7), **CONV)


ODD = image(227)


@pytest.mark.parametrize("task", [ODD, single("dense", (64, 100), (100, 1001))])
def test_the_spec_keeps_its_contract(task: Workload) -> None:
    check_spec(SPEC, task, placements=[gpu(), gpu("-model=T4")])


def test_it_is_for_lines_that_begin_anywhere() -> None:
    on = gpu()
    assert SPEC.applies(ODD, on.target, on.resources)
    assert not SPEC.applies(image(226), on.target, on.resources)
    odd_channels = image(226, out=33)
    assert SPEC.port_forms(odd_channels, on.target, on.resources)[0][-1] == CHANNELS_LAST
    assert {f[-1] for f in SPEC.port_forms(ODD, on.target, on.resources)} == {PLAIN}


def test_lanes_have_neighbours_and_others_to_give_them_to() -> None:
    space = space_of(SPEC.name, ODD, gpu())
    found = space.columns(space.listed())
    assert len(found)
    tiles = SPEC.tiles(product(ODD), lambda knob: column(found, knob).astype(int))
    assert (tiles.lanes_fast * tiles.lanes_slow == 32).all()
    assert ((tiles.lanes_slow >= tiles.widths[0]) & (tiles.widths[0] > 1)).all()


def test_facts_of_one_setting_by_hand() -> None:
    """221² results of a channel begin at any element of a sector. Eight lanes with four neighbours
    each write 29 elements apart at most, of four lines: in sectors of eight, 4 of them if they
    begin in the first half of one, else 5. Exchanged, 32 elements of one line: 4 if they begin with
    a sector, else 5, seven times of eight."""
    setting = dict(
        tile_rows=128, tile_columns=32, thread_rows=4, thread_columns=4, tile_depth=8, stages=1,
        split=1, by_taps=False,
    )  # fmt: skip
    usual, told = (
        facts_on(ODD, name, [setting, {**setting, "thread_rows": 2}])
        for name in ("cuda_product", SPEC.name)
    )
    assert usual["sectors_per_store"].tolist() == [4 * 4.5, 4 * 2.75]
    assert told["sectors_per_store"].tolist() == [(4 + 5 * 7) / 8, 2 * (2 + 3 * 7) / 8]
    stored = 4.0 * 32 * 221**2
    assert told["cache_traffic_bytes"][0] == pytest.approx(
        usual["cache_traffic_bytes"][0] - stored * (18 - 4.875) / 4
    )
    assert usual["edge_predicates"].tolist() == [1, 1]
    assert (told["instructions"] > usual["instructions"]).all()
    whole = facts_on(image(226), "cuda_product", [setting])
    assert whole["sectors_per_store"][0] == 16


@pytest.mark.parametrize(("out", "groups"), [(32, 32), (33, 1)])
def test_images_of_networks_stay_row_by_row(out: int, groups: int) -> None:
    """Lines of an image with its channels last begin anywhere here, row by row they do not: what
    the kernel offers then is no form that all of the network would be computed in."""
    b, on = Builder(), gpu()
    made = b.conv(b.input(1, 32, 16, 16), out, groups=groups)
    network = fused(b, b.conv(made, 16))
    assert choose_forms(network, on.target, on.resources)[made] == PLAIN
