"""Calling networks in processes made by `fork`, and from several threads."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from helpers.kernels.one_kernel import PLACEMENT
from helpers.networks.small_networks import Builder, compiled
from helpers.processes.forking import in_child
from tilewright.compiler.execute import Caller, LoadedNetwork, set_threads
from tilewright.graph.network import Array

pytestmark = pytest.mark.regression

Call = Callable[[int], Array]


CPUS = sorted(os.sched_getaffinity(0))[:2]
TWO_CPUS = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
_RNG = np.random.default_rng(0)
INPUTS = [_RNG.standard_normal((1, 8, 16, 16), np.float32) for _ in range(8)]


@pytest.fixture(scope="module")
def loaded() -> LoadedNetwork:
    """Its kernels run on two threads."""
    b = Builder()
    return compiled(b.graph(b.conv(b.conv(b.input(1, 8, 16, 16), 32), 32)))[1]


@pytest.fixture(scope="module")
def network(loaded: LoadedNetwork) -> Call:
    """One input by number in, the output out."""
    caller = Caller(2, PLACEMENT.binding.cpus)
    return lambda number: caller(lambda: loaded([INPUTS[number]]))[0]


def check(network: Call, wanted: Array, number: int = 0) -> None:
    np.testing.assert_array_equal(network(number), wanted)


def test_child_and_grandchild_of_a_process_that_called(network: Call) -> None:
    wanted = network(0)

    def child() -> None:
        check(network, wanted)
        check(network, wanted)
        in_child(lambda: check(network, wanted))
        check(network, wanted)

    in_child(child)
    in_child(lambda: check(network, wanted))
    check(network, wanted)


def test_a_child_that_does_not_call(network: Call) -> None:
    wanted = network(0)
    in_child(lambda: None)
    np.testing.assert_array_equal(network(0), wanted)


def test_a_child_that_calls_from_several_threads(network: Call) -> None:
    wanted = [network(number) for number in range(4)]

    def child() -> None:
        with ThreadPoolExecutor(4) as threads:
            for found, expected in zip(threads.map(network, range(4)), wanted, strict=True):
                np.testing.assert_array_equal(found, expected)

    in_child(child)


def test_a_child_made_while_another_thread_calls(network: Call) -> None:
    """Whatever that thread held at the moment is not waited for in the child."""
    held, release = threading.Event(), threading.Event()
    caller = Caller(1, PLACEMENT.binding.cpus)

    def hold() -> None:
        held.set()
        release.wait()

    thread = threading.Thread(target=lambda: caller(hold))
    thread.start()
    held.wait()

    def child() -> None:
        assert caller(lambda: 7) == 7

    try:
        in_child(child)
    finally:
        release.set()
        thread.join()


def test_calls_from_several_threads_at_once(network: Call) -> None:
    """Few threads for many calls: the pool of each spins for a while after its thread has ended."""
    numbers = [*range(8)] * 20
    wanted = [network(number) for number in range(8)] * 20
    with ThreadPoolExecutor(8) as threads:
        for found, expected in zip(threads.map(network, numbers), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)


def _threads() -> set[int]:
    return {int(each.name) for each in Path("/proc/self/task").iterdir()}


@TWO_CPUS
def test_a_pool_leaves_the_cpu_free_that_its_caller_stays_on(loaded: LoadedNetwork) -> None:
    def run() -> tuple[set[int], list[set[int]]]:
        set_threads(2, CPUS)
        before = _threads()
        loaded(INPUTS[:1])
        made = _threads() - before
        return os.sched_getaffinity(0), [os.sched_getaffinity(thread) for thread in made]

    with ThreadPoolExecutor(1) as thread:
        own, others = thread.submit(run).result()
    assert own == {CPUS[0]}
    assert all(own.isdisjoint(each) for each in others)


@TWO_CPUS
def test_calls_begin_on_the_first_cpu_and_tie_nobody(loaded: LoadedNetwork) -> None:
    caller, cpu = Caller(2, CPUS), ctypes.PyDLL(None).sched_getcpu

    def begin_elsewhere() -> bool:
        os.sched_setaffinity(0, CPUS[1:])
        os.sched_setaffinity(0, CPUS)
        begun = caller(cpu)
        caller(lambda: loaded(INPUTS[:1]))
        return begun == CPUS[0] and os.sched_getaffinity(0) == {*CPUS}

    with ThreadPoolExecutor(1) as thread:
        found = [thread.submit(begin_elsewhere).result() for _ in range(20)]
        assert sum(found) > 15  # the system may move a thread at any moment
        assert thread.submit(Caller(1, CPUS), lambda: os.sched_getaffinity(0)).result() == {*CPUS}


def test_errors_come_out_of_a_child_as_they_are() -> None:
    caller = Caller(1, PLACEMENT.binding.cpus)

    def fail() -> None:
        raise ValueError("as it is")

    def child() -> None:
        with pytest.raises(ValueError, match="as it is"):
            caller(fail)

    in_child(child)
