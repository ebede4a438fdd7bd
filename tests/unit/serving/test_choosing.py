"""Which instances are chosen, and what a load on them tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.toy_serving import QUICK, ToyServer, toy_network
from helpers.fakes.toy_serving_worker import CRASH, FAULT
from tilewright.core.errors import TargetError
from tilewright.core.serving import Load, NetworkLoad
from tilewright.serving import choosing
from tilewright.serving.choosing import chosen, driven
from tilewright.serving.demand import Demand
from tilewright.serving.layouts import Layout
from tilewright.serving.load import drive, drive_in_turn, speedup
from tilewright.serving.server import Server, ServerOptions
from tilewright.serving.weighing import Alone, weighed, why

TWO, FOUR = (2, 2), (1, 1, 1, 1)


def best_layout(alone: Mapping[Layout, Alone], limit_s: float | None) -> tuple[Layout, str]:
    """The best of equal instances, and why."""
    demand = Demand(every_s=limit_s)
    found = [each for each in weighed(alone, 4, demand) if each.is_equal]
    return tuple(kind.cores for kind in found[0].kinds), why(found, demand)


def test_the_layout_that_answers_most() -> None:
    scales = {TWO: {"a": {1: 5.0}, "b": {1: 1.0}}, FOUR: {"a": {1: 9.5}, "b": {1: 2.0}}}
    best, why = best_layout(scales, None)
    assert best == FOUR and "4x1 should answer 0.696 requests per second, by" in why
    assert best_layout({**scales, FOUR: {"a": {1: 10.5}, "b": {1: 2.0}}}, None)[0] == TWO


def test_batches_decide_between_layouts() -> None:
    """Two requests at a time on two cores beat one on each, unless that takes too long."""
    alone = {
        TWO: {"a": {1: 1.0, 2: 1.2}, "b": {1: 1.0}},
        FOUR: {"a": {1: 1.7, 2: 3.2}, "b": {1: 1.7}},
    }
    best, why = best_layout(alone, None)
    assert best == TWO and "2.5 requests per second, in batches of 2 of 'a', by the" in why
    assert best_layout(alone, 1.1)[0] == TWO and "batches" not in best_layout(alone, 1.1)[1]
    assert best_layout({**alone, FOUR: {"a": {1: 1.4}, "b": {1: 1.0}}}, 1.5)[0] == FOUR


def test_a_deadline_leaves_out_what_takes_too_long() -> None:
    alone = {TWO: {"a": {1: 0.05}, "b": {1: 0.01}}, FOUR: {"a": {1: 0.08}, "b": {1: 0.01}}}
    assert best_layout(alone, None)[0] == FOUR
    assert best_layout(alone, 0.06)[0] == TWO
    best, why = best_layout(alone, 0.04)
    assert best == FOUR and "None has time: the slowest network takes 80 ms" in why


def load(*rates: float) -> Load:
    networks = [
        NetworkLoad(
            network=f"n{index}", throughput_per_s=rate, answered=1, missed=0, failed=0,
            latency_p50_s=None, latency_p90_s=None, latency_p99_s=None,
        )
        for index, rate in enumerate(rates)
    ]  # fmt: skip
    return Load(instances="1x1", seconds=1.0, clients=1, networks=tuple(networks))


def test_speedup() -> None:
    assert speedup(load(30, 30), load(20, 20)) == pytest.approx(1.5)
    assert speedup(load(30), load(0)) is None


def test_what_is_not_faster_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy takes as long on one core as on two, so that two instances have twice the throughput;
    where the loads say otherwise, one after the other is kept."""
    monkeypatch.setattr(choosing, "default_threads", lambda: 2)
    monkeypatch.setattr(choosing, "_ROUND_S", 0.1)
    networks = [toy_network(tmp_path, "a", seconds=0.01)]
    options = ServerOptions(worker="helpers.fakes.toy_serving_worker", supervision=QUICK)
    found = chosen(networks, "auto", options)
    assert found.layout == (1, 1) and "and is kept" in found.why
    monkeypatch.setattr(choosing, "drive", lambda server, *_: load(float(server.layout[0])))
    found = chosen(networks, "auto", options)
    assert found.layout == (2,)
    assert "0.50 times the throughput: one after the other is kept" in found.why
    assert chosen(networks, "shared", options).layout == (1, 1)
    assert chosen(networks, "sequential", options).layout == (2,)


def test_instances_that_fail_on_trial_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At their start, and under the load that compares them."""
    monkeypatch.setattr(choosing, "default_threads", lambda: 2)
    monkeypatch.setattr(choosing, "_ROUND_S", 0.1)
    networks = [toy_network(tmp_path, "a", seconds=0.01)]
    options = ServerOptions(worker="helpers.fakes.toy_serving_worker", supervision=QUICK)
    drive_as_usual = choosing.drive

    def driven_ill(server: Server, *terms: Any) -> Load:
        if server.layout == (1, 1):
            (tmp_path / "a" / FAULT).write_text(str(CRASH))
        found = drive_as_usual(server, *terms)
        (tmp_path / "a" / FAULT).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(choosing, "drive", driven_ill)
    found = chosen(networks, "auto", options)
    how = "Instances of 2x1 crashed or hung (once|\\d+ times) on trial."
    assert found.layout == (2,) and re.fullmatch(f"One request .* all cores. {how}", found.why)
    (tmp_path / "a" / FAULT).write_text(str(CRASH))
    found = chosen(networks, "auto", options)
    assert found.layout == (2,) and "Others failed when they were tried: " in found.why
    with pytest.raises(TargetError):
        chosen(networks, "shared", options)


def test_batches_are_chosen_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy computes four requests in the time of one."""
    monkeypatch.setattr(choosing, "default_threads", lambda: 1)
    networks = [toy_network(tmp_path, "a", seconds=0.01, sizes=(4,))]
    options = ServerOptions(worker="helpers.fakes.toy_serving_worker", supervision=QUICK)
    found = chosen(networks, "shared", options)
    assert (found.layout, found.networks[0].batches.sizes) == ((1,), (1, 4))
    assert "in batches of 4 of 'a'" in found.why
    found = chosen(networks, "sequential", options)
    assert found.networks[0].batches.sizes == (1,)
    with Server(networks, (1,), options) as server:
        told = driven(server, 0.3, None)
    assert told.speedup is not None and told.speedup > 2 and told.load.clients == 8
    assert told.statistics.networks[0].batches[4] > 5


def test_loads_have_every_network_equally_often(tmp_path: Path) -> None:
    with ToyServer(tmp_path, {"a": 0.001, "b": 0.01}) as server:
        found = drive(server, 0.3, 4)
        counts = [each.answered for each in found.networks]
        assert abs(counts[0] - counts[1]) <= 4 and min(counts) > 10
        assert [each.answered for each in server.statistics().networks] == counts
        assert found.networks[0].throughput_per_s == pytest.approx(counts[0] / found.seconds)


def test_loads_in_turn_with_deadlines(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with ToyServer(tmp_path, {"a": 0.02}) as server:
        other: Server = ToyServer(tmp_path / "one", {"a": 0.02}, instances=1)
        with other:
            found = drive_in_turn([server, other], 0.2, 2, Demand(every_s=0.01), rounds=2)
        assert [each.networks[0].answered for each in found] == [0, 0]
        assert all(10 < each.networks[0].missed <= 42 for each in found)
