"""Winograd convolutions against numpy, with friendly and with adversarial magnitudes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from one_kernel import DEVICE
from packed_kernel import check_kernel, choose
from test_conv2d_direct import conv, layouts_for

from tilewright.compiler.build import build_kernel
from tilewright.compiler.kernel_runs import run_kernel
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_workload
from tilewright.graph.layout import PLAIN, blocked
from tilewright.graph.magnitude import magnitude
from tilewright.kernels.conv2d_winograd import SPEC

LANES = DEVICE.lanes_f32


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    batch=st.integers(1, 2),
    extents=st.tuples(st.integers(4, 19), st.integers(4, 19)),
    chunks=st.tuples(st.integers(2, 3), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    plain=st.tuples(st.booleans(), st.booleans()),
    epilogue=st.sampled_from(["", "b", "bru"]),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_any_shape(batch, extents, chunks, padding, plain, epilogue, choice) -> None:
    height = max(extents[0], 6 - padding[0] - padding[2])
    width = max(extents[1], 6 - padding[1] - padding[3])
    shape = (batch, LANES * chunks[0], height, width)
    task = conv(shape, LANES * chunks[1], epilogue=epilogue, padding=padding)
    assert SPEC.applies(task, DEVICE)
    data, result = (PLAIN if p else blocked(LANES) for p in plain)
    check_kernel(task, SPEC, layouts_for(task, data, result), choice)


def test_what_it_leaves_to_others() -> None:
    shape = (1, 2 * LANES, 12, 12)
    for named in ({"strides": (2, 2)}, {"dilation": (2, 2)}, {"groups": 2}, {"kernel": (1, 3)}):
        assert not SPEC.applies(conv(shape, 2 * LANES, **named), DEVICE)
    assert not SPEC.applies(conv((1, 3, 12, 12), 2 * LANES), DEVICE)


def test_a_huge_value_spoils_only_its_tile() -> None:
    task = conv((1, 2 * LANES, 16, 16), LANES, padding=(1, 1, 1, 1))
    layouts = layouts_for(task, blocked(LANES), blocked(LANES))
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(a.type.shape, dtype=np.float32) for a in task.arguments]
    arrays[0][0, 5, 9, 9] = 1e6
    chosen = choose(task, SPEC, layouts, None)
    candidate = Candidate(implementation=SPEC.name, settings=tuple(chosen.items()), layouts=layouts)
    kernel = build_kernel(task, candidate, DEVICE)
    ours = run_kernel(kernel, task, candidate, arrays)
    error = np.abs(ours - run_workload(task, arrays))
    sums = magnitude(task, arrays)
    tiles = sums.reshape(1, LANES, 4, 4, 4, 4).max(axis=(3, 5), keepdims=True)
    scale = np.broadcast_to(tiles, (1, LANES, 4, 4, 4, 4)).reshape(sums.shape)
    assert (error / scale).max() <= SPEC.error_bound(task)
    far = np.ones((16, 16), dtype=bool)
    far[4:16, 4:16] = False
    assert (error / sums)[:, :, far].max() <= SPEC.error_bound(task)
