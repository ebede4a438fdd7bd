"""Requests that run together: each has its own answer, whatever becomes of its neighbours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from helpers.fakes.toy_serving import ToyServer, toy_network, x_of, y_of
from helpers.fakes.toy_serving_worker import CRASH, HANG_ONCE, REFUSE
from tilewright.core.errors import InputError, UsageError
from tilewright.core.refusals import RequestFailed
from tilewright.serving.http import application
from tilewright.serving.protocol import described
from tilewright.serving.requests import Answer, Request
from tilewright.serving.server import Server, ServerOptions


@pytest.fixture
def batched(tmp_path: Path) -> Iterator[ToyServer]:
    """One instance that computes up to four requests at a time."""
    with ToyServer(tmp_path, {"a": 0.05}, instances=1, sizes=(2, 4)) as server:
        yield server


def behind(server: Server, *firsts: float) -> list[Answer]:
    """Requests that wait until one before them is answered, and so run together."""
    server.submit("a", x=x_of())
    while server.statistics().waiting:
        time.sleep(0.001)
    return [server.submit("a", x=x_of(first)) for first in firsts]


def counts(server: Server) -> dict[int, int]:
    return server.statistics().networks[0].batches


def test_each_has_its_rows(batched: ToyServer) -> None:
    answers = behind(batched, *range(7))
    for first, answer in enumerate(answers):
        np.testing.assert_array_equal(answer.result(5), y_of(x_of(first)))
    assert counts(batched) == {1: 1, 3: 1, 4: 1}, "three run as four, for that is no slower"
    (instance,) = batched.statistics().instances
    assert instance.answered == 8 and instance.batches_s["a"].keys() == {1, 2, 4}


def test_several_outputs_along_axes_of_their_own(tmp_path: Path) -> None:
    network = toy_network(tmp_path, "a", seconds=0.05, sizes=(2,), two=True)
    options = ServerOptions(worker="helpers.fakes.toy_serving_worker")
    with Server([network], (1,), options) as server:
        for first, answer in zip((3, 4), behind(server, 3, 4), strict=True):
            found = answer.result(5)
            np.testing.assert_array_equal(found["y"], y_of(x_of(first)))
            np.testing.assert_array_equal(found["column"], -x_of(first).T)
        assert counts(server) == {1: 1, 2: 1}


def test_one_that_crashes_does_not_take_others_with_it(batched: ToyServer) -> None:
    good, bad, *more = behind(batched, 1, CRASH, 2, 3)
    with pytest.raises(RequestFailed, match="crashed in a batch of 4 requests.*in a request"):
        bad.result(20)
    assert [each.result(20)[0, 0] for each in (good, *more)] == [3, 5, 7]
    told = batched.statistics()
    assert (told.networks[0].answered, told.networks[0].failed) == (4, 1)
    assert told.networks[0].retried == 5 and told.instances[0].restarts == 3
    assert 4 not in counts(batched)


def test_a_batch_that_hangs_runs_one_by_one(batched: ToyServer) -> None:
    answers = behind(batched, HANG_ONCE, 1)
    assert [each.result(20)[0, 0] for each in answers] == [2 * HANG_ONCE + 1, 3]
    assert counts(batched) == {1: 3} and "hung in a batch of 2 requests" in batched.notes[0]


def test_one_that_is_refused_fails_alone(batched: ToyServer) -> None:
    good, bad = behind(batched, 1, REFUSE)
    with pytest.raises(InputError, match="x is refused"):
        bad.result(5)
    assert good.result(5)[0, 0] == 3
    assert batched.statistics().networks[0].failed == 1 and not batched.notes


def test_cancelled_in_a_batch(batched: ToyServer) -> None:
    first, second = behind(batched, 1, 2)
    while batched.statistics().waiting:
        time.sleep(0.001)
    assert first.cancel()
    assert second.result(5)[0, 0] == 5
    told = batched.statistics().networks[0]
    assert (told.answered, told.cancelled, told.batches) == (2, 1, {1: 1, 2: 1})
    batched.close()
    assert batched._queue.over, "a slot was not given back"


def test_closed_in_the_middle_of_a_batch(batched: ToyServer) -> None:
    batched.takes("a", 0.5)
    answers = behind(batched, 1, 2, 3)
    batched.close(drain=False)
    assert all(answer.cancelled() for answer in answers) and batched._queue.over


def test_closed_when_a_batch_has_just_been_refused(
    batched: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests are put back into the queue of a server that is being closed."""
    instance, again, refused = batched._crew._instances[0], batched._queue.again, Event()  # type: ignore[union-attr]

    def late(request: Request) -> None:
        refused.set()
        assert instance._stopping.wait(10)
        again(request)

    monkeypatch.setattr(batched._queue, "again", late)
    answers = behind(batched, 1, REFUSE)
    assert refused.wait(10)
    closing = Thread(target=batched.close, kwargs={"drain": False}, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive() and all(answer.cancelled() for answer in answers)


def test_a_deadline_has_its_request_run_alone(batched: ToyServer) -> None:
    """A batch that takes longer than one request does not make it late."""
    pace = batched._crew._instances[0]._paces["a"]  # type: ignore[union-attr]
    pace.begin_s.update({2: 0.19, 4: 0.19})
    batched._crew._instances[0]._costs["a"] = ((1, 0.1), (2, 0.19))  # type: ignore[union-attr]
    server_busy = behind(batched, 0)
    due = batched.submit("a", x=x_of(1), deadline_s=0.25)
    server_busy += [batched.submit("a", x=x_of(2))]
    assert due.result(5)[0, 0] == 3 and [each.result(5)[0, 0] for each in server_busy] == [1, 5]
    told = batched.statistics().networks[0]
    assert (told.late, told.missed) == (0, 0) and told.batches[1] >= 2


def test_what_is_said_of_batches(batched: ToyServer) -> None:
    with pytest.raises(UsageError, match="'x' has 2 rows, a request 1: the server puts"):
        batched.submit("a", x=np.zeros((2, 4), np.float32))
    assert described(batched.networks["a"])["parameters"] == {"batches": (1, 2, 4)}
    assert application(batched).routes
