"""The spec of products of codes on GPUs."""

from __future__ import annotations

import pytest

from helpers.kernels.gpu_kernels import a_gpu
from tilewright.graph.network import TensorType
from tilewright.kernels.cuda.code_products import SPEC
from tilewright.kernels.estimates import facts
from tilewright.testing.implementations import plain, single


def test_what_fills_a_word_is_waste() -> None:
    """Three channels of 49 taps are 49 words, of which three quarters are terms: 90 results of 24
    channels in 9 blocks of 32×8 and 7 steps of 8 words."""
    image, filters = TensorType((1, 3, 17, 19), "uint8"), TensorType((24, 3, 7, 7), "int8")
    shifts = dict(strides=(2, 2), padding=(3,) * 4, dilation=(1, 1), groups=1)
    task, on = single("conv2d", image, filters, constants=(1,), **shifts), a_gpu()
    setting = dict(
        tile_rows=32, tile_columns=8, thread_rows=4, thread_columns=2, tile_depth=8, stages=1,
        split=1, by_taps=False,
    )  # fmt: skip
    told = facts(SPEC, task, on.target, on.resources, plain(task), [setting])
    words = 90 * 24 * 49
    assert told["waste"][0] == pytest.approx(4 / 3 * 9 * 32 * 8 * 7 * 8 / words)
