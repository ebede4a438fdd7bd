"""Copies to a device behind a tracker and back, timed by a clock of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import tvm

from helpers.processes.rpc_processes import Farm, farm
from tilewright.compiler.copies import timed_copies
from tilewright.compiler.remote import RemoteSession
from tilewright.measure.boards import Tracker

FIRST, MOST = 1 << 16, 1 << 24


class Clock:
    """Goes on by so much with each look at it, and tells the looks."""

    def __init__(self, step_s: float, at: Callable[[int], None] = lambda _: None) -> None:
        self.now_s, self.step_s, self.looks, self.at = 100.0, step_s, 0, at

    def __call__(self) -> float:
        self.looks += 1
        self.at(self.looks)
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture(scope="module")
def one() -> Iterator[Farm]:
    with farm(1) as found:
        yield found


def session(of: Farm) -> RemoteSession:
    lease = Tracker("127.0.0.1", of.tracker.port).request("box", 20.0)
    return RemoteSession(lease.host, lease.port, lease.match, 60.0)


def test_seconds_are_those_of_the_clock(one: Farm) -> None:
    found = timed_copies(session(one).cpu, Clock(0.125))
    assert [size for size, *_ in found] == [4, FIRST] * 9
    assert {seconds for _, *both in found for seconds in both} == {0.125}


def test_a_slow_link_is_asked_less_often_and_a_fast_one_for_more() -> None:
    here = tvm.cpu()
    assert len(timed_copies(here, Clock(2.0))) == 2 * 3
    fast = timed_copies(here, Clock(1e-6))
    assert {size for size, *_ in fast} == {4, MOST} and len(fast) == 2 * 9


def test_a_server_that_dies_between_two_copies() -> None:
    with farm(1) as own:
        there = session(own).cpu
        dying = Clock(0.25, lambda look: own.servers[0].kill() if look == 12 else None)
        with pytest.raises(Exception, match="(?i)rpc|connection|socket|channel|pipe"):
            timed_copies(there, dying)
