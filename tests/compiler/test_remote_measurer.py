"""Measuring over TVM RPC against a real tracker and real servers on loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.kernels.one_kernel import random_arrays, step, workload
from helpers.processes.rpc_processes import Farm, farm
from tilewright.compiler import remote as compiled
from tilewright.core.errors import TargetError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Failure, Measurement, Outcome, Placement, Protocol
from tilewright.graph.network import TensorType
from tilewright.measure import boards, remote
from tilewright.measure.boards import Tracker
from tilewright.measure.checking import check_kernel
from tilewright.measure.remote import RemoteMeasurer
from tilewright.measure.targeting import open_measurer, placement_of, usable_placement

TASK = workload([(300, 300), (300, 300)], step("multiply", 0, 1))
SMALL = workload([(8,)], step("relu", 0))
QUICK = Protocol(warmup=1, repeats=3, sample_s=1e-3, rotation_bytes=1 << 20, timeout_s=20.0)


@pytest.fixture(scope="module")
def pair() -> Iterator[Farm]:
    with farm(2) as found:
        yield found


def generic(arguments: int) -> Candidate:
    forms = (PLAIN,) * (arguments + 1)
    return Candidate(implementation="generic", settings=(), forms=forms)


def placement(of: Farm, target: str = "rpc:box") -> Placement:
    return usable_placement(placement_of(target, of.address, None))


def measurer(of: Farm, found: Placement) -> RemoteMeasurer:
    opened = open_measurer(found, seed=0)
    assert isinstance(opened, RemoteMeasurer)
    return opened


def test_candidates_are_measured_on_all_devices_and_rows_know_which(pair: Farm) -> None:
    found = placement(pair)
    assert json.loads(found.tvm_target)["kind"] == "llvm" and found.resources.threads == 2
    told: list[Outcome] = []
    threads: set[threading.Thread] = set()

    def finished(outcome: Outcome) -> None:
        told.append(outcome)
        threads.add(threading.current_thread())

    with measurer(pair, found) as opened:
        candidates = [generic(2)] * 8
        outcomes = opened.measure(TASK, candidates, QUICK, run_id=3, finished=finished)
        assert threads == {threading.main_thread()}
        assert sorted(map(repr, told)) == sorted(map(repr, outcomes))
        for one in outcomes:
            assert isinstance(one, Measurement)
            assert len(one.samples_s) == QUICK.repeats and min(one.samples_s) > 0
            assert one.placement_key == found.key and one.run_id == 3
            assert one.protocol.rotation_bytes == 0 and one.protocol.activations == "flushed"
        instances = {f"rpc:box@127.0.0.1:{server.port}" for server in pair.servers}
        assert {one.instance for one in outcomes} == instances
        assert opened.current_hashes([(TASK, generic(2))]) == [outcomes[0].kernel_hash]


def test_results_come_from_the_device_and_are_checked(
    pair: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with measurer(pair, placement(pair)) as opened:
        assert check_kernel(opened, SMALL, generic(1), 0).failure is None
        x = np.linspace(-1, 1, 8, dtype=np.float32)
        result = opened.evaluate(SMALL, generic(1), [x])
        assert not isinstance(result, Failure)
        np.testing.assert_array_equal(result, np.maximum(x, 0))
        original = remote.Board.request

        def wrong(board: boards.Board, message: tuple[object, ...], limit_s: float) -> object:
            answer = original(board, message, limit_s)
            return answer + 1 if message[0] == "evaluate" else answer

        monkeypatch.setattr(remote.Board, "request", wrong)
        check = check_kernel(opened, SMALL, generic(1), 0)
    assert check.failure is not None and check.failure.kind == "wrong result"
    assert check.failure.instance.startswith("rpc:box@127.0.0.1:")


@pytest.mark.on_request
def test_sessions_are_renewed_before_the_server_ends_them(
    pair: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "SESSION_S", 4.0)
    hurried = replace(QUICK, timeout_s=-2.0)
    with measurer(pair, placement(pair)) as opened:
        for pause_s in (0.0, 4.5):
            time.sleep(pause_s)
            (one,) = opened.measure(SMALL, [generic(1)], hurried)
            assert isinstance(one, Measurement), one


def test_a_described_target_is_built_for(pair: Farm) -> None:
    found = placement(pair, "rpc:box -mcpu=x86-64-v2 -num-cores=1")
    assert found.resources.threads == 1 and found.target.vector_bytes == 16
    with measurer(pair, found) as opened:
        (one,) = opened.measure(SMALL, [generic(1)], QUICK)
        assert isinstance(one, Measurement)


def test_a_target_the_servers_do_not_have_is_refused(pair: Farm) -> None:
    found = placement(pair, 'rpc:box={"kind":"llvm","mtriple":"aarch64-linux-gnu"}')
    with measurer(pair, found) as opened, pytest.raises(TargetError, match="another kind"):
        opened.start(workers=1)  # the others start when they are needed


def test_objects_are_sent_where_nothing_links_for_the_processor(
    pair: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "linker_of", lambda _placement: None)
    found = placement(pair)
    kernel = compiled.export_kernel(
        TASK, generic(2), found.target, found.resources, tmp_path, "kernel"
    )
    assert kernel.path.endswith(".tar")
    lease = Tracker(host="127.0.0.1", port=pair.tracker.port).request("box", 20.0)
    session = compiled.RemoteSession(lease.host, lease.port, lease.match, 30.0)
    arrays = random_arrays(TASK)
    result = session.evaluate(kernel, TASK, generic(2), arrays)
    np.testing.assert_array_equal(result, arrays[0] * arrays[1])


def test_operands_are_made_on_the_device(pair: Farm, tmp_path: Path) -> None:
    """Normal floats and integers in range, also past the block that is uploaded."""
    for dtype in ("float32", "int32"):
        kind = TensorType((300, 301), dtype)
        task = workload([kind, kind], step("add", 0, 1))
        kernel = compiled.export_kernel(
            task, generic(2), placement(pair).target, placement(pair).resources, tmp_path, dtype
        )
        lease = Tracker(host="127.0.0.1", port=pair.tracker.port).request("box", 20.0)
        session = compiled.RemoteSession(lease.host, lease.port, lease.match, 30.0)
        made = session.timing(kernel, task, QUICK, 0).tensors[0].numpy()
        assert made.dtype == dtype and made.shape == (300, 301)
        if dtype == "int32":
            assert made.min() >= 0 and 90 < made.max() < 100
        else:
            assert abs(float(made.mean())) < 0.05 and 0.9 < float(made.std()) < 1.1


def test_more_threads_than_the_server_has(pair: Farm) -> None:
    with pytest.raises(TargetError, match="TVM_NUM_THREADS=64"):
        placement_of("rpc:box", pair.address, 64)


def test_peaks_are_those_of_the_device(pair: Farm) -> None:
    with measurer(pair, placement(pair)) as opened:
        found = opened.peaks()
    assert set(found) == {"flop_per_s", "bytes_per_s", "cache_bytes_per_s"}
    assert min(found.values()) > 1e8


def killed_after(victim: Farm, count: int, seen: list[Outcome]) -> None:
    if len(seen) == count:
        victim.servers[0].kill()


def test_a_server_killed_in_the_middle_costs_nothing_while_another_is_there(tmp_path: Path) -> None:
    with farm(2) as both:
        found = placement(both)
        with measurer(both, found) as opened:
            seen: list[Outcome] = []

            def finished(outcome: Outcome) -> None:
                seen.append(outcome)
                killed_after(both, 2, seen)

            outcomes = opened.measure(TASK, [generic(2)] * 10, QUICK, finished=finished)
            assert all(isinstance(one, Measurement) for one in outcomes), outcomes
            left = f"rpc:box@127.0.0.1:{both.servers[1].port}"
            assert {one.instance for one in outcomes[-3:]} == {left}
            both.add()
            (again,) = opened.measure(TASK, [generic(2)], QUICK)
            assert isinstance(again, Measurement)


@pytest.mark.on_request
def test_the_only_server_killed_costs_one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RECONNECT_S", 1.0)
    with farm(1) as alone, measurer(alone, placement(alone)) as opened:
        seen: list[Outcome] = []

        def finished(outcome: Outcome) -> None:
            seen.append(outcome)
            killed_after(alone, 1, seen)

        with pytest.raises(TargetError, match="all devices 'box'.* are lost"):
            opened.measure(TASK, [generic(2)] * 10, QUICK, finished=finished)
        bad = [one for one in seen if isinstance(one, Failure)]
        assert len(bad) == 1 and bad[0].kind == "device lost"
        assert bad[0].instance == f"rpc:box@127.0.0.1:{alone.servers[0].port}"
        alone.add()
        (one,) = opened.measure(TASK, [generic(2)], QUICK)
        assert isinstance(one, Measurement)


def test_a_server_that_hangs_is_a_timeout_and_the_rest_goes_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "RECONNECT_S", 1.0)
    monkeypatch.setattr(remote, "_OVERHEAD_S", 0.0)
    hurried = replace(QUICK, timeout_s=3.0)
    with farm(2) as both, measurer(both, placement(both)) as opened:
        seen: list[Outcome] = []

        def finished(outcome: Outcome) -> None:
            seen.append(outcome)
            if len(seen) == 2:
                both.servers[0].freeze()

        outcomes = opened.measure(TASK, [generic(2)] * 8, hurried, finished=finished)
        bad = [one for one in outcomes if isinstance(one, Failure)]
        assert [one.kind for one in bad] == ["timeout"]
        assert bad[0].instance.endswith(f":{both.servers[0].port}")


def test_machines_of_another_kind_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with farm(1) as mixed:
        found = placement(mixed)
        mixed.add(threads=1)
        with measurer(mixed, found) as opened:
            outcomes = opened.measure(SMALL, [generic(1)] * 4, QUICK)
            first = f"rpc:box@127.0.0.1:{mixed.servers[0].port}"
            assert {one.instance for one in outcomes} == {first}


def test_the_tracker_answers_what_it_is_asked(pair: Farm) -> None:
    tracker = Tracker(host="127.0.0.1", port=pair.tracker.port)
    assert sorted(tracker.servers("box")) == sorted(
        ("127.0.0.1", server.port) for server in pair.servers
    )
    with pytest.raises(TargetError, match="Did you mean box") as found:
        tracker.servers("boxx")
    assert found.value.exit_code == 3
