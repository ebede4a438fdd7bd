"""What the specs of the Winograd convolutions promise: where they apply, spaces, weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, blocked
from tilewright.graph.workload import Workload
from tilewright.kernels.conv2d_winograd import (
    SPECS,
    WinogradConvolution,
)
from tilewright.kernels.convolution import convolution
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.registry import applicable
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import ranked_defaults
from tilewright.kernels.winograd_transforms import double
from tilewright.testing.implementations import (
    PLACEMENTS,
    candidate_of,
    check_spec,
    made_up_placement,
    plain,
    single,
)

CASES = [(spec, kernel) for spec in SPECS for kernel in spec.outputs]


def conv(
    data: tuple[int, int, int, int], filters: int, kernel: tuple[int, int], **named
) -> Workload:
    """Padded so that the result is as large as the data, unless told."""
    down, across = kernel[0] // 2, kernel[1] // 2
    given = {
        "strides": (1, 1), "padding": (down, across) * 2, "dilation": (1, 1), "groups": 1, **named
    }  # fmt: skip
    weight = (filters, data[1] // given["groups"], *kernel)
    return single("conv2d", data, weight, constants=(1,), **given)


@pytest.mark.parametrize(("spec", "kernel"), CASES)
@pytest.mark.parametrize("extents", [(14, 14), (17, 9)])
def test_space_facts_and_packing(
    spec: WinogradConvolution, kernel: tuple[int, int], extents: tuple[int, int]
) -> None:
    task = conv((1, 64, *extents), 48, kernel)
    for forms in ((blocked(16), PLAIN, blocked(16)), (PLAIN,) * 3):
        check_spec(spec, task, forms)
        for placement in PLACEMENTS:
            space = knob_space(spec, task, placement.target, placement.resources, forms)
            facts = facts_of(
                spec,
                task,
                placement.target,
                placement.resources,
                forms,
                [space.settings(n) for n in space],
            )
            assert np.all(facts["accumulators"] <= placement.target.vector_registers)
            assert all(np.all(column > 0) for column in facts.values())


@pytest.mark.parametrize(("spec", "kernel"), CASES)
def test_packed_weights_give_the_convolution(
    spec: WinogradConvolution, kernel: tuple[int, int]
) -> None:
    task = conv((1, 32, 12, 12), 32, kernel)
    placement = made_up_placement()
    space = knob_space(spec, task, placement.target, placement.resources, plain(task))
    chosen = candidate_of(spec, space.settings(next(iter(space))), (PLAIN,) * 3)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((32, 32, *kernel)).astype(np.float32)
    packed = spec.pack(task, chosen, {1: weights})[1].astype(np.float64)
    form = spec.form(convolution(task))
    down, across = form.vertical, form.horizontal
    tile = rng.standard_normal((32, down.positions, across.positions))
    moved = double(down.input) @ tile @ double(across.input).T
    flat = moved.reshape(32, form.positions)
    products = np.einsum("poib,ip->obp", packed, flat).reshape(32, *moved.shape[1:])
    ours = double(down.output) @ products @ double(across.output).T
    windows = np.lib.stride_tricks.sliding_window_view(tile, kernel, axis=(1, 2))
    exact = np.einsum("iyxkl,oikl->oyx", windows, weights.astype(np.float64))
    assert ours == pytest.approx(exact, rel=1e-5, abs=1e-4)


def test_each_takes_its_kernels_and_no_others() -> None:
    placement = made_up_placement()
    for kernel in [(1, 1), (1, 3), (3, 1), (1, 7), (7, 1), (3, 3), (5, 5), (2, 2), (3, 5), (7, 7)]:
        task = conv((1, 32, 12, 12), 32, kernel)
        for spec in SPECS:
            assert spec.applies(task, placement.target, placement.resources) == (
                kernel in spec.outputs
            ), (spec.name, kernel)
            if kernel not in spec.outputs:
                with pytest.raises(InternalError):
                    spec.form(convolution(task))


@pytest.mark.parametrize(("spec", "kernel"), CASES)
def test_what_they_leave_to_others(spec: WinogradConvolution, kernel: tuple[int, int]) -> None:
    placement, shape = made_up_placement(), (1, 32, 12, 12)
    task = conv(shape, 32, kernel)
    assert spec.applies(task, placement.target, placement.resources)
    for named in ({"strides": (2, 2)}, {"strides": (1, 2)}, {"dilation": (2, 2)}, {"groups": 2}):
        assert not spec.applies(
            conv(shape, 32, kernel, **named), placement.target, placement.resources
        )
    assert not spec.applies(
        conv((1, 16, 12, 12), 32, kernel), placement.target, placement.resources
    )
    assert not spec.applies(conv(shape, 8, kernel), placement.target, placement.resources)
    small = conv((1, 32, *kernel), 32, kernel, padding=(0,) * 4)
    assert not spec.applies(small, placement.target, placement.resources)
    wide = conv(shape, 32, kernel, padding=(0, kernel[1], 0, 0))
    assert spec.applies(wide, placement.target, placement.resources) == (kernel[1] == 1)
    weight = replace(task.arguments[1], role="data")
    assert not spec.applies(
        replace(task, arguments=(task.arguments[0], weight)), placement.target, placement.resources
    )


def first_guess(data: tuple[int, int, int, int], filters: int, kernel: tuple[int, int]) -> str:
    placement = made_up_placement()
    task = conv(data, filters, kernel)
    forms = (blocked(16), PLAIN, blocked(16))
    return ranked_defaults(task, forms, placement)[0][0].implementation


def test_estimates_choose_a_form_that_suits_the_plane() -> None:
    assert first_guess((1, 64, 56, 56), 64, (3, 3)) == "conv2d_winograd"
    assert first_guess((1, 128, 28, 28), 128, (3, 3)) == "conv2d_winograd"
    assert first_guess((1, 512, 7, 7), 512, (3, 3)) != "conv2d_winograd"
    assert first_guess((1, 192, 17, 17), 192, (1, 7)) == "conv2d_winograd1d"
    assert first_guess((1, 192, 17, 17), 192, (7, 1)) == "conv2d_winograd1d"


def test_they_compete_under_their_own_names() -> None:
    task = conv((1, 64, 14, 14), 64, (3, 3))
    names = [
        spec.name
        for spec in applicable(task, made_up_placement().target, made_up_placement().resources)
    ]
    assert {"conv2d_direct", "conv2d_winograd", "conv2d_winograd2"} <= set(names)
    assert len({spec.name for spec in SPECS}) == len(SPECS)


def test_torn_vectors_are_told_to_be_slow() -> None:
    task, place = conv((1, 64, 32, 32), 84, (3, 3)), made_up_placement(64)
    whole, torn = (
        dict((c.implementation, seconds) for c, seconds in ranked_defaults(task, forms, place))
        for forms in ((blocked(16), PLAIN, blocked(14)), (blocked(16), PLAIN, blocked(28)))
    )
    for spec in SPECS:
        if spec.name in whole:
            assert torn.get(spec.name, np.inf) > 4 * whole[spec.name]
    assert "conv2d_winograd" in whole
