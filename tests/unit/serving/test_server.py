"""A server of toy networks: answers, order, bounds, cancelling, deadlines, closing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes.toy_serving import ToyServer, X, toy_network, x_of, y_of
from helpers.fakes.toy_serving_worker import REFUSE, STARTS_NOT
from tilewright.core.errors import InputError, TargetError, UsageError
from tilewright.core.refusals import DeadlineMissed, QueueFull, ServerClosed
from tilewright.core.serving import NetworkService
from tilewright.serving.layouts import layout_text, parse_layout, placed
from tilewright.serving.server import Server, ServerOptions


@pytest.fixture
def one(tmp_path: Path) -> Iterator[ToyServer]:
    """A quick and a slow network on one instance, before which two requests may wait."""
    with ToyServer(tmp_path, {"quick": 0.0, "slow": 0.1}, instances=1, queue=2) as server:
        yield server


def service(server: Server, name: str) -> NetworkService:
    return {each.network: each for each in server.statistics().networks}[name]


def started(server: Server) -> None:
    """Wait until nothing waits: what was submitted is computed."""
    while server.statistics().waiting:
        time.sleep(0.001)


def test_everything_is_answered_with_its_own_result(tmp_path: Path) -> None:
    with ToyServer(tmp_path, {"a": 0.0, "b": 0.001}) as server:
        given = [(name, x_of(count, 7)) for count in range(60) for name in "ab"]
        answers = [server.submit(name, {"x": x}, timeout_s=None) for name, x in given]
        for (_, x), answer in zip(given, answers, strict=True):
            np.testing.assert_array_equal(answer.result(5), y_of(x))
            told = server.statistics()
    assert [each.answered for each in told.networks] == [60, 60]
    assert sum(each.answered for each in told.instances) == 120
    assert all(each.latency_p50_s <= each.latency_p99_s for each in told.networks)  # type: ignore[operator]


def test_what_is_given_is_copied_and_what_is_returned_is_the_callers(one: ToyServer) -> None:
    x = x_of(1)
    answer = one.submit("slow", x=x)
    x[:] = 9
    first = answer.result()
    np.testing.assert_array_equal(first, y_of(x_of(1)))
    one.submit("quick", x=x).result()
    np.testing.assert_array_equal(first, y_of(x_of(1)))


def test_outputs_by_name_and_of_unknown_size(tmp_path: Path) -> None:
    network = toy_network(tmp_path, "two", sized=False)
    options = ServerOptions(worker="helpers.fakes.toy_serving_worker")
    with Server([network], (1,), options) as server:
        found = server.submit("two", x=x_of(0, 5)).result()
    np.testing.assert_array_equal(found["y"], y_of(x_of(0, 5)))
    np.testing.assert_array_equal(found["z"], np.arange(5))


def test_awaited(one: ToyServer) -> None:
    async def both() -> list[Any]:
        return await asyncio.gather(*(one.infer("quick", x=x_of(each)) for each in (1, 2)))

    for found, each in zip(asyncio.run(both()), (1, 2), strict=True):
        np.testing.assert_array_equal(found, y_of(x_of(each)))


def test_an_awaited_request_is_cancelled_with_its_task(one: ToyServer) -> None:
    async def too_long() -> None:
        await asyncio.wait_for(one.infer("slow", x=x_of()), 0.02)

    with pytest.raises(TimeoutError):
        asyncio.run(too_long())
    assert service(one, "slow").cancelled == 1


def test_a_full_queue_refuses(one: ToyServer) -> None:
    running = one.submit("slow", x=x_of())
    started(one)
    waiting = [one.submit("slow", x=x_of()) for _ in range(2)]
    with pytest.raises(QueueFull, match="2 requests wait already"):
        one.submit("quick", x=x_of())
    with pytest.raises(QueueFull):
        one.submit("quick", x=x_of(), timeout_s=0.01)
    began_s = time.monotonic()
    np.testing.assert_array_equal(one.submit("quick", x=x_of(3), timeout_s=None).result()[0, 0], 7)
    assert time.monotonic() - began_s > 0.05 and running.done()
    wait(waiting)
    assert service(one, "quick").refused == 2


def test_the_earliest_deadline_comes_first(one: ToyServer) -> None:
    order: list[str] = []
    running = one.submit("slow", x=x_of())
    started(one)
    for name, deadline_s in (("late", None), ("soon", 5.0)):
        answer = one.submit("quick", x=x_of(), deadline_s=deadline_s)
        answer.add_done_callback(lambda _, name=name: order.append(name))
    running.result()
    one.close()
    assert order == ["soon", "late"]


def test_what_cannot_be_in_time_is_refused_at_once(one: ToyServer) -> None:
    with pytest.raises(DeadlineMissed, match="cannot be answered within 50 ms: it takes 10"):
        one.submit("slow", x=x_of(), deadline_s=0.05).result(0.05)
    running = one.submit("slow", x=x_of(), deadline_s=1.0)
    started(one)
    behind = one.submit("slow", x=x_of(), deadline_s=0.15)
    with pytest.raises(DeadlineMissed):
        behind.result(0.09)  # while the other one is computed
    assert not running.done()
    running.result()
    found = service(one, "slow")
    assert (found.answered, found.missed, found.late) == (1, 2, 0)


def test_cancelled_requests(one: ToyServer) -> None:
    running = one.submit("slow", x=x_of())
    started(one)
    queued = one.submit("slow", x=x_of())
    assert queued.cancel() and running.cancel() and running.cancel()
    assert wait([queued, running], 0).done == {queued, running}
    with pytest.raises(CancelledError):
        running.result()
    began_s = time.monotonic()
    one.submit("quick", x=x_of()).result()
    assert time.monotonic() - began_s < 0.15, "the queued one was computed"
    done = one.submit("quick", x=x_of())
    done.result()
    assert not done.cancel()
    found = service(one, "slow")
    assert (found.cancelled, found.answered) == (2, 0)


def test_refused_values_fail_and_are_not_tried_again(one: ToyServer) -> None:
    with pytest.raises(InputError, match="x is refused"):
        one.submit("quick", x=x_of(REFUSE)).result()
    found = service(one, "quick")
    assert (found.failed, found.retried) == (1, 0)
    one.submit("quick", x=x_of()).result()


WRONG = {
    "an unknown network": ("quik", {"x": x_of()}, {}, "Did you mean quick"),
    "no inputs": ("quick", {}, {}, "input 'x' is missing"),
    "another name": ("quick", {"y": x_of()}, {}, "no input is called 'y'"),
    "another shape": ("quick", {"x": x_of()[0]}, {}, r"float32\[4\]"),
    "another type": ("quick", {"x": x_of().astype(np.float64)}, {}, "float64"),
    "a deadline of no time": ("quick", {"x": x_of()}, {"deadline_s": 0}, "above 0"),
    "a deadline that is no number": ("quick", {"x": x_of()}, {"deadline_s": "1"}, "above 0"),
}


def test_bad_input_does_not_enter_the_queue(one: ToyServer) -> None:
    for name, inputs, more, message in WRONG.values():
        with pytest.raises(UsageError, match=message):
            one.submit(name, inputs, **more)
    assert one.submit("quick", x=x_of()).result().shape == (1, 4)


def test_closed_after_all_answers(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, {"slow": 0.05}, instances=1)
    answers = [server.submit("slow", x=x_of(each)) for each in range(4)]
    pids = server.pids()
    server.close()
    server.close()
    assert [answer.result(0)[0, 0] for answer in answers] == [1, 3, 5, 7]
    with pytest.raises(ServerClosed, match="is closed"):
        server.submit("slow", x=x_of())
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert [each.state for each in server.statistics().instances] == ["closed"]


@pytest.mark.parametrize("named", [{"drain": False}, {"timeout_s": 0.05}])
def test_closed_before_all_answers(tmp_path: Path, named: dict[str, Any]) -> None:
    server = ToyServer(tmp_path, {"slow": 0.3}, instances=1)
    answers = [server.submit("slow", x=x_of()) for _ in range(3)]
    began_s = time.monotonic()
    server.close(**named)
    assert time.monotonic() - began_s < 0.25
    assert all(answer.cancelled() for answer in answers)
    assert service(server, "slow").cancelled == 3


def test_who_waits_for_room_hears_of_the_end(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, {"slow": 0.2}, instances=1, queue=1)
    for _ in range(2):
        server.submit("slow", x=x_of(), timeout_s=None)
    heard: list[Exception] = []

    def waits() -> None:
        try:
            server.submit("slow", x=x_of(), timeout_s=None)
        except ServerClosed as error:
            heard.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    time.sleep(0.02)
    server.close(drain=False)
    thread.join(5)
    assert len(heard) == 1


def test_an_exception_in_the_block_cancels(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ToyServer(tmp_path, {"slow": 0.4}, 1) as server:
        answer = server.submit("slow", x=x_of())
        raise ZeroDivisionError
    assert answer.cancelled()


def test_an_instance_that_does_not_start_is_told_before_anything_is_served(tmp_path: Path) -> None:
    network = toy_network(tmp_path, "a")
    (network.folder / STARTS_NOT).touch()
    with pytest.raises(TargetError, match="instance 0 does not start: child process ended"):
        Server([network], (1,), ServerOptions(worker="helpers.fakes.toy_serving_worker"))


def test_layouts() -> None:
    assert parse_layout("1x2,2x1") == (2, 1, 1)
    assert layout_text((2, 1, 1)) == "1x2,2x1"
    assert placed((2, 1, 1), (0, 2, 1, 3)) == [(0, 2), (1,), (3,)]
    for text in ("", "2", "0x1", "2x0", "2x1,", "ax1", "-1x1"):
        with pytest.raises(UsageError, match="names no instances"):
            parse_layout(text)
    with pytest.raises(TargetError, match="want 4 cores: this process is allotted 2"):
        placed((2, 1, 1), (0, 1))


def test_drawn_inputs_are_valid(tmp_path: Path) -> None:
    network = toy_network(tmp_path, "a")
    (x,) = network.drawn_inputs()
    assert x.shape == X.shape and x.dtype == np.float32 and 0 < np.abs(x).max() < 6
