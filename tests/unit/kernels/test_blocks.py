"""Channel blocks and tiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.kernels.ports import best_block, channel_blocks, tile_sizes
from tilewright.testing.implementations import PLACEMENTS


@given(channels=st.integers(1, 4096), on=st.sampled_from(PLACEMENTS))
def test_blocks_divide_and_fit_two_registers(channels: int, on):
    lanes = on.target.lanes("float32")
    blocks = channel_blocks(channels, lanes)
    assert blocks and len(set(blocks)) == len(blocks)
    assert all(channels % block == 0 and 1 <= block <= 2 * lanes for block in blocks)
    assert best_block(channels, lanes) == blocks[0]
    if channels % lanes == 0:
        assert blocks[0] == lanes


@pytest.mark.parametrize(
    ("vector_bytes", "channels", "block"),
    [(64, 64, 16), (32, 64, 8), (16, 64, 4), (64, 24, 8), (64, 20, 4), (64, 7, 7), (64, 1, 1)],
)
def test_known_blocks(vector_bytes: int, channels: int, block: int):
    assert best_block(channels, vector_bytes // 4) == block


@given(extent=st.integers(1, 600), largest=st.integers(1, 40), tails=st.booleans())
def test_tiles_waste_little(extent: int, largest: int, tails: bool):
    sizes = tile_sizes(extent, largest=largest, tails=tails)
    assert sizes and list(sizes) == sorted(set(sizes))
    assert 1 in sizes
    for size in sizes:
        assert 1 <= size <= min(extent, largest)
        padded = -(-extent // size) * size
        assert padded <= 1.15 * extent
        assert tails or padded == extent


@pytest.mark.parametrize("extent", [149, 147, 73, 71, 35, 17])
def test_odd_extents_have_good_tiles(extent: int):
    assert any(7 <= size <= 28 for size in tile_sizes(extent, largest=28))
