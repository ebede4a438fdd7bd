"""The spec of streaming kernels for GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.cuda_settings import facts_on, gpu, listed
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.network import TensorType
from tilewright.kernels.cuda.accesses import elements_read, sectors
from tilewright.kernels.cuda.stream import SPEC, tile_of, transposed
from tilewright.testing.implementations import check_spec

ADD = workload([(8, 64, 56, 56)] * 2, step("add", 0, 1))
TURNED = workload([(8, 512, 768)], step("transpose", 0, permutation=(0, 2, 1)))
GATHER = workload([(50, 24), TensorType((9,), "int64")], step("gather", 0, 1, axis=0))
LRN = workload([(2, 8, 5, 5)], step("lrn", 0, size=5, alpha=0.1, beta=0.75, bias=1.0))


@pytest.mark.parametrize("task", [ADD, TURNED, GATHER, LRN])
def test_keeps_what_every_implementation_must(task) -> None:
    check_spec(SPEC, task, placements=[gpu(), gpu("-model=T4")])


def test_applies_to_what_needs_a_few_elements() -> None:
    on = gpu()
    reduced = workload([(3, 4)], step("reduce_sum", 0, axes=(1,), keepdims=False))
    deep = [step(it, i) for i, it in enumerate(("tanh", "exp", "sigmoid", "gelu"))]
    padded = step("pad", 4, before=(1,), after=(0,), mode="constant", value=0.0)
    assert not SPEC.applies(reduced, on.target, on.resources)
    assert SPEC.applies(workload([(9,)], *deep), on.target, on.resources)
    assert not SPEC.applies(workload([(9,)], *deep, padded), on.target, on.resources)


def test_reads_are_followed_through_movements() -> None:
    task = workload(
        [(4, 6), (4, 2)],
        step("concat", 0, 1, axis=1),
        step("transpose", 2, permutation=(1, 0)),
        step("slice", 3, starts=(1, 0), stops=(8, 4), steps=(2, 1)),
    )
    found = dict(elements_read(task, np.arange(16)))
    first = np.arange(24).reshape(4, 6)
    both = np.concatenate([first, np.full((4, 2), -1)], axis=1).T[1::2]
    assert found[0].tolist() == both.ravel().tolist()
    assert found[1].tolist()[-4:] == [1, 3, 5, 7] and set(found[1][:12].tolist()) == {-1}


@pytest.mark.parametrize(
    ("apart", "touched"), [(1, 4.0), (2, 8.0), (8, 32.0), (0, 1.0), (1000, 32.0)]
)
def test_sectors_of_a_warp(apart: int, touched: float) -> None:
    assert sectors(np.arange(32)[None] * apart, 4) == touched


def test_what_is_transposed_goes_through_a_tile() -> None:
    assert transposed(ADD) is None and transposed(TURNED) == (1, 2)
    tile = tile_of(TURNED, 1024)
    assert tile is not None and (tile.across, tile.along, tile.pitch) == (32, 32, 33)
    best = listed(TURNED, "cuda_stream")[0]
    assert best["tiled"] == 1
    told = facts_on(TURNED, "cuda_stream", [best, {**best, "tiled": 0}])
    assert told["sectors_per_request"][0] < 6 and told["sectors_per_request"][1] == 32


def test_large_tensors_take_vectors() -> None:
    assert listed(ADD, "cuda_stream")[0]["vector"] == 4


@pytest.mark.parametrize("elements", [1, 10**6, 2**31 - 2**20 - 1])
def test_limits_are_kept(elements: int) -> None:
    task, limits = workload([(elements,)], step("relu", 0)), gpu().target.limits
    settings = listed(task, "cuda_stream")
    told = facts_on(task, "cuda_stream", settings)
    assert (told["parallel_extent"] <= limits.grid[0]).all()
    assert (told["blocks_per_multiprocessor"] >= 1).all()
    covered = told["parallel_extent"] * told["elements_per_thread"]
    assert (covered * [float(one["threads"]) for one in settings] >= elements).all()


def test_comparisons_and_conflicts() -> None:
    """A tile's columns lie in all banks; comparisons are made where blocks or tiles have more than
    there is."""
    tiled = dict(threads=256, vector=1, vectors=4, tiled=1)
    told = facts_on(TURNED, SPEC.name, [tiled, {**tiled, "tiled": 0}])
    assert told["conflicts"].tolist() == [1, 1]
    assert told["predicates"].tolist()[1] == 0
    for elements, more in ((4096, 0), (4097, 1)):
        task = workload([(elements,)], step("relu", 0))
        told = facts_on(task, SPEC.name, [{**tiled, "tiled": 0}])
        assert (told["predicates"][0], told["edge_predicates"][0]) == (0, more)
