"""The spec of products of a few vectors with a matrix for GPUs."""

from __future__ import annotations

import pytest

from helpers.kernels.cuda_settings import facts_on, gpu, listed
from helpers.kernels.one_kernel import step, workload
from helpers.kernels.streaming_cases import ADD
from tilewright.kernels.cuda.vectors import SPEC, shares_of, vectors_of
from tilewright.testing.implementations import candidate_of, check_spec, plain

NAME = "cuda_vector"
CLASSIFIER = workload([(1, 2048), (2048, 1000)], step("dense", 0, 1))
SCORES = workload([(12, 4, 64), (12, 1024, 64)], step("batch_matmul", 0, 1, transpose_b=True))
DEEP = workload([(1, 100_000), (100_000, 8)], step("dense", 0, 1))


@pytest.mark.parametrize("task", [CLASSIFIER, SCORES, DEEP])
def test_keeps_what_every_implementation_must(task) -> None:
    check_spec(SPEC, task, placements=[gpu(), gpu("-model=T4")])


def test_applies_to_up_to_four_vectors() -> None:
    on = gpu()
    five = workload([(5, 64), (64, 64)], step("dense", 0, 1))
    assert vectors_of(SCORES) == 4 and vectors_of(CLASSIFIER) == 1
    assert not SPEC.applies(five, on.target, on.resources)
    assert not SPEC.applies(ADD, on.target, on.resources)


@pytest.mark.parametrize("task", [CLASSIFIER, SCORES, DEEP])
def test_every_product_has_a_thread(task) -> None:
    for setting in listed(task, NAME):
        shares = shares_of(task, setting)
        assert shares.row_blocks * shares.block_rows >= shares.of.count
        assert shares.part * shares.split >= shares.of.length
        assert shares.turns * shares.step >= shares.part


def test_narrow_matrices_are_split_along_their_terms() -> None:
    best = listed(DEEP, NAME)[0]
    assert best["split"] > 1
    told = facts_on(DEEP, NAME, [best, {**best, "split": 1}])
    assert told["estimate_s"][0] < told["estimate_s"][1] / 2
    on, candidate = gpu(), candidate_of(SPEC, best, plain(DEEP))
    left = SPEC.workspaces(DEEP, candidate, on.target, on.resources).shared
    assert left == (8 * 4 * int(best["split"]),)


def test_parts_of_sectors_are_counted() -> None:
    few, many = (
        {"threads": 64, "row_threads": members, "vector": 1, "split": 1} for members in (32, 2)
    )
    told = facts_on(CLASSIFIER, NAME, [few, many])
    assert told["sectors_per_request"].tolist() == [16, 4]
    assert told["warps"].tolist() == [2, 2] and told["conflicts"].tolist() == [1, 1]


def test_limits_are_kept() -> None:
    huge = workload([(4, 1), (1, 2**28)], step("dense", 0, 1))
    limits, told = gpu().target.limits, facts_on(huge, NAME, listed(huge, NAME))
    assert (told["parallel_extent"] <= limits.grid[0]).all()
    assert (told["shared_bytes"] <= limits.static_shared_bytes).all()
    assert (told["blocks_per_multiprocessor"] >= 1).all()


def test_comparisons_by_hand() -> None:
    """A block has 32 columns of the result; of 1000 columns, the last block lacks some."""
    for columns, empty in ((1000, 1), (1024, 0)):
        task = workload([(1, 512), (512, columns)], step("dense", 0, 1))
        setting = dict(threads=256, row_threads=8, vector=1, split=1)
        told = facts_on(task, SPEC.name, [setting])
        assert (told["predicates"][0], told["edge_predicates"][0]) == (empty, empty)
