"""Servers of instances that differ: every request is answered once, whatever becomes of them."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes.toy_serving import CORES, QUICK, toy_network, x_of, y_of
from helpers.fakes.toy_serving_worker import CRASH_ONCE, HANG_ONCE
from tilewright.core.refusals import DeadlineMissed
from tilewright.core.serving import Load, NetworkLoad
from tilewright.serving import choosing
from tilewright.serving.choosing import chosen, driven
from tilewright.serving.crew import Instances
from tilewright.serving.demand import Demand
from tilewright.serving.layouts import Kind
from tilewright.serving.load import burst_s, drive
from tilewright.serving.requests import Answer
from tilewright.serving.server import Server, ServerOptions
from tilewright.serving.weighing import Weighed

OPTIONS = ServerOptions(worker="helpers.fakes.toy_serving_worker", supervision=QUICK)
pytestmark = pytest.mark.skipif(CORES < 2, reason="two instances need two cores")


def test_batches_of_one_and_of_two(tmp_path: Path) -> None:
    """One instance computes one request at a time, the other one two, also after crashes and
    hangs."""
    networks = [toy_network(tmp_path, "a", seconds=0.01, sizes=(2, 4))]
    with Server(networks, (Kind(1, 1), Kind(1, 2)), OPTIONS) as server:
        assert server.instances == "1x1@1,1x1@2" and server.layout == (1, 1)
        firsts = [CRASH_ONCE if n == 5 else HANG_ONCE if n == 20 else float(n) for n in range(40)]
        answers = [server.submit("a", x=x_of(first)) for first in firsts]
        for first, answer in zip(firsts, answers, strict=True):
            np.testing.assert_array_equal(answer.result(20), y_of(x_of(first)))
        statistics = server.statistics()
    (network,), instances = statistics.networks, statistics.instances
    assert network.answered == 40 and not network.failed
    assert network.batches.keys() == {1, 2} and network.batches[2] > 1
    assert [each.batch for each in instances] == [1, 2]
    assert [set(each.batches_s.get("a", {1: 0.0})) for each in instances] == [{1}, {1, 2}]
    assert all(each.answered for each in instances) and sum(e.answered for e in instances) == 40


def test_every_request_ends_once(tmp_path: Path) -> None:
    """Beside cancelled ones, deadlines, crashes and a queue that is full, on instances that differ
    in batches and networks; at the end all slots are free."""
    networks = [toy_network(tmp_path, name, seconds=0.004, sizes=(2, 4)) for name in "ab"]
    options = ServerOptions(worker=OPTIONS.worker, supervision=QUICK, queue=6)
    with Server(networks, (Kind(1, 1, ("a",)), Kind(1, 3)), options) as server:
        answers: list[Answer] = []
        for number in range(120):
            first = CRASH_ONCE if number in (30, 31, 70) else float(number)
            deadline_s = (None, 5.0, 0.02)[number % 3] if first == number else None
            name = "aab"[number % 3] if number < 60 else "b"
            answers.append(
                server.submit(name, x=x_of(first), deadline_s=deadline_s, timeout_s=None)
            )
            if number % 7 == 0:
                answers[-1].cancel()
        ended, left = wait(answers, 20)
        assert len(ended) == 120 and not left
        each = server.statistics().networks
    faults = [a.exception() for a in answers if not a.cancelled()]
    assert {type(fault) for fault in faults} <= {type(None), DeadlineMissed}
    assert sum(n.answered for n in each) == faults.count(None)
    assert sum(n.missed for n in each) == len(faults) - faults.count(None)
    assert sum(n.cancelled for n in each) == sum(a.cancelled() for a in answers)


def test_one_is_lost_for_good(tmp_path: Path) -> None:
    """Whose networks it computed before others has them computed by the other one."""
    networks = [toy_network(tmp_path, name, seconds=0.01) for name in "ab"]
    kinds = Kind(1, None, ("a",)), Kind(1, None, ("b",))
    with Server(networks, kinds, OPTIONS) as server:
        crew = server._crew  # pyright: ignore[reportPrivateUsage]
        assert isinstance(crew, Instances)
        crew._instances[1].stop(at_once=True)  # pyright: ignore[reportPrivateUsage]
        answers = [server.submit(name, x=x_of(1.0)) for name in "bbabab"]
        for answer in answers:
            np.testing.assert_array_equal(answer.result(10), y_of(x_of(1.0)))


def test_a_burst_is_divided_by_what_instances_take(tmp_path: Path) -> None:
    """Three requests at a time: one runs alone, two beside it together."""
    networks = [toy_network(tmp_path, "a", seconds=0.05, sizes=(2,))]
    with Server(networks, (Kind(1, 1), Kind(1, 2)), OPTIONS) as server:
        least_s = min(burst_s(server, Demand(burst=3)) for _ in range(5))
        assert 0.05 <= least_s < 0.1
        assert server.statistics().networks[0].batches[2] >= 3


def test_networks_before_others(tmp_path: Path) -> None:
    """Each instance has a network of its own, and helps with the other one; both have the requests
    that rates say."""
    networks = [toy_network(tmp_path, name, seconds=0.005) for name in "ab"]
    kinds = Kind(1, None, ("a",)), Kind(1, None, ("b",))
    with Server(networks, kinds, OPTIONS) as server:
        found = drive(server, 0.4, 4, Demand(rates={"a": 1, "b": 3}))
        answered = [each.answered for each in found.networks]
        assert answered[1] == pytest.approx(3 * answered[0], abs=8)
        assert found.instances == "1x1:a,1x1:b"
        told = server.statistics().instances
        assert [each.networks for each in told] == [("a",), ("b",)]
        assert min(each.answered for each in told) > 0.3 * sum(answered)


def test_unequal_ones_are_measured_beside_equal_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was promised to be best is kept where no other one is faster."""
    networks = [toy_network(tmp_path, name, seconds=0.005) for name in "ab"]
    mixed = Weighed(kinds=(Kind(1, None, ("a",)), Kind(1, None, ("b",))), requests_per_s=9.0)
    equal = Weighed(kinds=(Kind(1), Kind(1)), requests_per_s=5.0)
    monkeypatch.setattr(choosing, "default_threads", lambda: 2)
    monkeypatch.setattr(choosing, "weighed", lambda *_: [mixed, equal])
    rates = {"1x1:a,1x1:b": 30.0, "2x1": 20.0, "1x2": 10.0}

    def load(server: Server, *_: Any) -> Load:
        network = NetworkLoad(
            network="a", throughput_per_s=rates[server.instances], answered=1, missed=0, failed=0,
            latency_p50_s=None, latency_p90_s=None, latency_p99_s=None,
        )  # fmt: skip
        return Load(instances=server.instances, seconds=1.0, clients=1, networks=(network,))

    monkeypatch.setattr(choosing, "drive", load)
    found = chosen(networks, "auto", OPTIONS)
    assert found.kinds == mixed.kinds
    assert "it has 3.00 times the throughput, 2x1 2.00 times, and is kept." in found.why
    assert [(o.instances, o.measured, o.chosen) for o in found.options] == [
        ("1x1:a,1x1:b", 3.0, True),
        ("2x1", 2.0, False),
    ]
    rates["2x1"] = 30.0
    found = chosen(networks, "auto", OPTIONS)
    assert found.kinds == equal.kinds and found.options[0].instances == "2x1"
    rates.update({"1x2": 40.0})
    found = chosen(networks, "auto", OPTIONS)
    assert found.layout == (2,) and not any(option.chosen for option in found.options)


def test_a_burst_is_chosen_for_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "default_threads", lambda: 2)
    networks = [toy_network(tmp_path, "a", seconds=0.02, sizes=(2,))]
    demand = Demand(burst=4)
    found = chosen(networks, "auto", OPTIONS, demand)
    assert found.layout == (1, 1) and "times the speed" in found.why
    with Server(found.networks, found.kinds, OPTIONS, found.why) as server:
        server.considered = found.options
        told = driven(server, 0.3, None, demand)
    assert told.options[0].chosen and told.options[0].seconds == pytest.approx(0.02, rel=0.5)
    assert told.options[0].instances == "2x1"
