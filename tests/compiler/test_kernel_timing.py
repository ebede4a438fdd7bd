"""Timing single kernels: rotation, rewriting, giving up. No time decides anything here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from helpers.kernels.one_kernel import PLACEMENT, step
from helpers.kernels.packed_kernel import constants_workload
from tilewright.compiler import kernel_runs
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.compiler.kernel_runs import rewriter
from tilewright.core.forms import PLAIN
from tilewright.core.records import Protocol
from tilewright.kernels.spaces import default_candidate

TASK = constants_workload([(4, 64), (64, 32)], [1], [step("dense", 0, 1)])
ALL_PLAIN = (PLAIN,) * 3
FLUSHED_BYTES = 1 << 20
STATES = (("rewritten", 0, 4 * 64 * 4), ("warm", 0, 0), ("cold", FLUSHED_BYTES // 2, 0))


def kernel():
    return build_kernel(
        TASK,
        default_candidate(TASK, ALL_PLAIN, PLACEMENT)[0],
        PLACEMENT.target,
        PLACEMENT.resources,
    )


def test_as_many_samples_as_repeats() -> None:
    protocol = Protocol(repeats=4, sample_s=1e-4, rotation_bytes=1 << 16)
    samples = kernel().time(protocol, 0, float("inf"))
    assert len(samples) == 4 and all(sample > 0 for sample in samples)


def test_a_hopeless_kernel_is_sampled_once() -> None:
    assert len(kernel().time(Protocol(), 0, 0.0)) == 1


@pytest.mark.parametrize(("activations", "flushed", "written"), STATES)
def test_states_of_the_caches(
    monkeypatch: pytest.MonkeyPatch, activations: str, flushed: int, written: int
) -> None:
    """What is written before each call: the activations, other memory, or nothing."""
    sizes: list[list[int]] = []

    def spy(tensors: Sequence[Any]) -> Callable[[], None]:
        sizes.append([np.from_dlpack(tensor).nbytes for tensor in tensors])
        return rewriter(tensors)

    monkeypatch.setattr(kernel_runs, "rewriter", spy)
    kernel_runs._flusher.cache_clear()
    protocol = Protocol(
        repeats=3, sample_s=0.0, rotation_bytes=FLUSHED_BYTES, activations=activations
    )
    samples = kernel().time(protocol, 0, float("inf"))
    assert len(samples) == 3 and all(sample > 0 for sample in samples)
    assert sizes == [[size for size in (flushed, written) if size]]


def test_a_kernel_runs_until_it_is_told_to_stop() -> None:
    told: list[str] = []
    answers = iter([True, True, False])
    protocol = Protocol(rotation_bytes=1 << 16)
    watch = (lambda: next(answers), lambda: told.append("begun"))
    first, second = kernel().keep_running(protocol, 0, watch)
    assert 0.0 < first.busy_s <= first.end_s - first.begin_s
    assert first.end_s <= second.begin_s
    assert first.calls == second.calls >= 1
    assert told == ["begun"]


def test_rewriting_keeps_the_values() -> None:
    values = np.arange(64 * 5 + 3, dtype=np.float32)
    memory = values.copy()
    rewrite = rewriter([tvm_ffi.from_dlpack(memory)])
    memory[: 64 * 5] = -1
    rewrite()
    np.testing.assert_array_equal(memory, values)


def test_nothing_to_rewrite() -> None:
    rewriter([])()
    few = np.ones(3, np.float32)
    rewriter([tvm_ffi.from_dlpack(few)])()
    assert few.tolist() == [1, 1, 1]


def test_a_kernel_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which a second goes by at every look."""
    monkeypatch.setattr(kernel_runs, "perf_counter", count().__next__)
    protocol = Protocol(rotation_bytes=1 << 16)
    assert kernel().repeat(protocol, 0, 0.0) == 1
    assert kernel().repeat(protocol, 0, 20.0) == 20
