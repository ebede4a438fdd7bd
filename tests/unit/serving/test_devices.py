"""Devices of different speeds that take requests from one queue."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from helpers.fakes.toy_serving import CORES, QUICK, toy_network, x_of, y_of
from helpers.fakes.toy_serving_worker import STARTS_NOT
from tilewright.serving.batch_pace import BatchPace
from tilewright.serving.crew import Instances
from tilewright.serving.instance import Seat, Service
from tilewright.serving.posts import LocalPost
from tilewright.serving.server import Server, ServerOptions


class Toys(Instances):
    """A fast device and a slow one, each with an artifact of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__((1,) * min(2, CORES))
        self.layout, self.running, self.own_slots = (1, 1), 2, 2
        for device in ("fast", "slow"):
            (folder / device).mkdir()
        self.networks = {
            "fast": toy_network(folder / "fast", "a", seconds=0.005),
            "slow": toy_network(folder / "slow", "a", seconds=0.1),
        }

    def seats(self, service: Service) -> list[Seat]:
        return [
            Seat(
                post=LocalPost(service.worker, (number % CORES,), service.slots),
                networks={"a": network},
                device=device,
            )
            for number, (device, network) in enumerate(self.networks.items())
        ]


def toy_server(folder: Path) -> Server:
    toys = Toys(folder)
    options = ServerOptions(
        supervision=replace(QUICK, starts=2), worker="helpers.fakes.toy_serving_worker"
    )
    return Server([toys.networks["fast"]], toys, options)


def test_who_is_fast_computes_more_and_what_only_it_keeps(tmp_path: Path) -> None:
    with toy_server(tmp_path) as server:
        free = [server.submit("a", x=x_of(n)) for n in range(20)]
        assert [each.result(10)[0, 0] for each in free] == [2 * n + 1 for n in range(20)]
        fast, slow = server.statistics().instances
        assert (fast.device, slow.device) == ("fast", "slow")
        assert fast.answered > slow.answered > 0 and fast.expected_s["a"] < slow.expected_s["a"]
        (_, instance) = server._crew._instances  # type: ignore[attr-defined]
        instance._paces["a"] = BatchPace({1: 60.0})
        for number in range(10):  # the slow one is idle, and leaves them
            answer = server.submit("a", x=x_of(number), deadline_s=30)
            np.testing.assert_array_equal(answer.result(10), y_of(x_of(number)))
        assert server.statistics().instances[1].answered == slow.answered
        assert server.statistics().networks[0].missed == 0


def test_a_device_that_is_gone_for_long_comes_back(tmp_path: Path) -> None:
    def state() -> str:
        return server.statistics().instances[0].state

    with toy_server(tmp_path) as server:
        (tmp_path / "fast" / "a" / STARTS_NOT).touch()
        os.kill(server.statistics().instances[0].pid or 0, signal.SIGKILL)
        answers = [server.submit("a", x=x_of(n)) for n in range(5)]
        assert [each.result(10)[0, 0] for each in answers] == [1, 3, 5, 7, 9]
        end_s = time.monotonic() + 10
        while state() != "lost" and time.monotonic() < end_s:
            time.sleep(0.01)
        assert state() == "lost"
        (tmp_path / "fast" / "a" / STARTS_NOT).unlink()
        while state() != "ready" and time.monotonic() < end_s:
            time.sleep(0.01)
        before = server.statistics().instances[0].answered
        answers = [server.submit("a", x=x_of(n)) for n in range(10)]
        assert [each.result(10)[0, 0] for each in answers] == [2 * n + 1 for n in range(10)]
        assert server.statistics().instances[0].answered > before
