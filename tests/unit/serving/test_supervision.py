"""Instances that crash, hang, slow down, or do not come back."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.fakes.toy_serving import QUICK, ToyServer, x_of, y_of
from helpers.fakes.toy_serving_worker import CRASH, CRASH_ONCE, HANG, HANG_ONCE, STARTS_NOT
from tilewright.core.refusals import RequestFailed


def until(found: Callable[[], bool]) -> None:
    """Wait for something that comes true, at most for ten seconds."""
    end_s = time.monotonic() + 10
    while not found():
        assert time.monotonic() < end_s
        time.sleep(0.005)


@pytest.mark.parametrize(("wish", "how"), [(CRASH_ONCE, "crashed"), (HANG_ONCE, "hung")])
def test_a_request_whose_instance_fails_runs_again(tmp_path: Path, wish: float, how: str) -> None:
    with ToyServer(tmp_path, {"a": 0.001}) as server:
        before = [server.submit("a", x=x_of(each)) for each in range(4)]
        answer = server.submit("a", x=x_of(wish))
        after = [server.submit("a", x=x_of(each)) for each in range(4)]
        np.testing.assert_array_equal(answer.result(10), y_of(x_of(wish)))
        assert [each.result(10)[0, 0] for each in (*before, *after)] == [1, 3, 5, 7] * 2
        until(lambda: all(each.state == "ready" for each in server.statistics().instances))
        told = server.statistics()
    assert (told.networks[0].answered, told.networks[0].retried) == (9, 1)
    assert sum(each.restarts for each in told.instances) == 1
    (note,) = (each for each in server.notes if "is started again" in each)
    assert f"{how} in a request for 'a'" in note


@pytest.mark.parametrize(("wish", "how"), [(CRASH, "SIGSEGV"), (HANG, "no answer within 0.3 s")])
def test_a_request_that_ends_every_instance_is_found_out(
    tmp_path: Path, wish: float, how: str
) -> None:
    with ToyServer(tmp_path, {"a": 0.001}) as server:
        answer = server.submit("a", x=x_of(wish))
        others = [server.submit("a", x=x_of(each)) for each in range(8)]
        with pytest.raises(RequestFailed, match=f"ended 3 instances.*{how}"):
            answer.result(20)
        assert [each.result(20)[0, 0] for each in others] == [2 * each + 1 for each in range(8)]
        assert server.submit("a", x=x_of(1)).result(20)[0, 0] == 3
        told = server.statistics().networks[0]
    assert (told.answered, told.failed, told.retried) == (9, 1, 2)


def test_an_idle_instance_that_ends_is_started_again(tmp_path: Path) -> None:
    with ToyServer(tmp_path, {"a": 0.0}, instances=1) as server:
        (pid,) = server.pids()
        os.kill(pid, signal.SIGKILL)
        assert server.submit("a", x=x_of(1)).result(5)[0, 0] == 3
        (pid,) = server.pids()
        os.kill(pid, signal.SIGKILL)
        until(lambda: server.pids() not in ([], [pid]))
        assert server.submit("a", x=x_of(2)).result(5)[0, 0] == 5
        (told,) = server.statistics().instances
    assert told.restarts == 2


def test_a_slower_instance_is_noticed_and_gets_less(tmp_path: Path) -> None:
    with ToyServer(tmp_path, {"a": 0.01}, instances=1) as server:
        state = lambda: server.statistics().instances[0].state  # noqa: E731
        for slow in (True, False):
            server.takes("a", 0.06 if slow else 0.01)
            for _ in range(9):
                server.submit("a", x=x_of()).result()
            assert state() == ("slow" if slow else "ready")
        assert server.statistics().instances[0].expected_s["a"] < 0.03
    assert ["3 times as long" in note for note in server.notes] == [True, False]


def test_without_any_instance_requests_fail(tmp_path: Path) -> None:
    with ToyServer(tmp_path, {"a": 0.05}, instances=1) as server:
        waiting = [server.submit("a", x=x_of()) for _ in range(5)]
        (tmp_path / "a" / STARTS_NOT).touch()
        os.kill(server.pids()[0], signal.SIGKILL)
        with pytest.raises(RequestFailed, match="no instance is left"):
            waiting[-1].result(10)
        with pytest.raises(RequestFailed, match="no instance is left"):
            server.submit("a", x=x_of())
        assert not server.is_ready
        assert all(answer.done() for answer in waiting)
    assert server.notes[-1] == "The server gives up: no instance starts any more."


def test_after_giving_up_nothing_is_started_any_more(tmp_path: Path) -> None:
    """Neither the instance that was lost last nor the one before it."""
    with ToyServer(tmp_path, {"a": 0.0}, instances=2) as server:
        instances = server._crew._instances  # type: ignore[attr-defined]
        (tmp_path / "a" / STARTS_NOT).touch()
        for pid in server.pids():
            os.kill(pid, signal.SIGKILL)
        until(lambda: server.notes[-1:] == ["The server gives up: no instance starts any more."])
        until(lambda: not any(instance._thread.is_alive() for instance in instances))
        assert {each.state for each in server.statistics().instances} == {"lost"}
        assert not server.is_ready and server.pids() == []


def test_random_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Whatever is killed when: each request has one answer, its own, or was ended three times."""
    chance, count, seconds = random.Random(5), 300, 2.0
    stopped = threading.Event()

    def kill(server: ToyServer) -> None:
        while not stopped.wait(chance.uniform(0.05, 0.3)):
            for pid in chance.sample(server.pids(), k=min(1, len(server.pids()))):
                os.kill(pid, signal.SIGKILL)

    answered: list[int] = []
    lasting = replace(QUICK, starts=100, longest_pause_s=0.05)
    with ToyServer(tmp_path, {"a": seconds / count}, supervision=lasting) as server:
        killer = threading.Thread(target=kill, args=(server,))
        killer.start()
        answers = []
        for number in range(count):
            answers.append(server.submit("a", x=x_of(number), timeout_s=None))
            answers[-1].add_done_callback(lambda _, number=number: answered.append(number))
        found = [each.exception(20) or each.result()[0, 0] for each in answers]
        stopped.set()
        killer.join()
        told = server.statistics()
    failed = [each for each in found if isinstance(each, Exception)]
    assert all(isinstance(each, RequestFailed) for each in failed) and len(failed) <= 3
    assert all(each == 2 * n + 1 for n, each in enumerate(found) if each not in failed)
    assert sorted(answered) == list(range(count))
    (network,) = told.networks
    assert network.answered + network.failed == count and network.failed == len(failed)
    assert sum(each.restarts for each in told.instances) >= 3
    assert server._queue.over, "a slot was not given back"
