"""Candidates that go wrong cost one failure each; the others are measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from helpers.kernels.one_kernel import step, workload
from helpers.plugins.offer import both_halves, offering
from tilewright.core.forms import PLAIN
from tilewright.core.processes import RemoteError
from tilewright.core.records import Candidate, Failure, Measurement, Outcome, Protocol
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.hardware.probe import allotted_cpus
from tilewright.kernels import registry
from tilewright.kernels.spaces import default_candidate
from tilewright.measure import base as base_module
from tilewright.measure.checking import check_kernel
from tilewright.measure.core_grid import ALONE, CoreGrid, Neighbour
from tilewright.measure.kernels import CrowdedMeasurer, KernelMeasurer, beside
from tilewright.measure.pairs import KernelPairs
from tilewright.store import open_store

PLACEMENT = local_placement(2)
TASK = workload([(8,)], step("relu", 0))
QUICK = Protocol(warmup=1, repeats=3, sample_s=1e-4, rotation_bytes=0, timeout_s=20.0)
FORMS = (PLAIN, PLAIN)


@pytest.fixture
def measurer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KernelMeasurer]:
    points = both_halves("misbehaving")
    with offering(tmp_path / "site", points, "misbehaving"):
        assert "misbehaving" in registry.implementations()
        monkeypatch.setattr(base_module, "BUILD_TIMEOUT_S", 15.0)
        with KernelMeasurer(PLACEMENT, memory_limit_bytes=3 << 29) as found:
            yield found


def candidate(way: str) -> Candidate:
    return Candidate(implementation="misbehaving", settings=(("way", way),), forms=FORMS)


def generic() -> Candidate:
    return Candidate(implementation="generic", settings=(), forms=FORMS)


def test_every_kind_of_failure_is_a_value_and_the_run_goes_on(
    measurer: KernelMeasurer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_module, "BUILD_TIMEOUT_S", 5.0)
    ways = ["right", "refuse", "abort", "right", "memory", "segfault", "hang", "right"]
    told: list[Outcome] = []
    outcomes = measurer.measure(TASK, [candidate(way) for way in ways], QUICK, finished=told.append)
    assert sorted(map(repr, told)) == sorted(map(repr, outcomes))
    assert [o.candidate.setting("way") for o in outcomes] == ways
    found = [o.kind if isinstance(o, Failure) else "" for o in outcomes]
    assert found == ["", "build", "crash", "", "out of memory", "crash", "timeout", ""]
    messages = [o.message for o in outcomes if isinstance(o, Failure)]
    assert "does not build" in messages[0]
    assert "SIGABRT" in messages[1] and "SIGSEGV" in messages[3]
    again = measurer.measure(TASK, [candidate("right")], QUICK)
    assert isinstance(again[0], Measurement)
    with open_store(tmp_path / "a.db") as store:
        store.add(outcomes)
        kept = store.outcomes(TASK.key, PLACEMENT.key)
        assert sorted(map(repr, kept)) == sorted(map(repr, outcomes))


def test_wrong_results_are_found_and_named(measurer: KernelMeasurer) -> None:
    (timed,) = measurer.measure(TASK, [candidate("wrong")], QUICK)
    assert isinstance(timed, Measurement), "timing does not look at numbers"
    check = check_kernel(measurer, TASK, candidate("wrong"), 0)
    assert check.failure is not None and check.failure.kind == "wrong result"
    assert check.error is not None and check.error > check.bound
    assert check_kernel(measurer, TASK, candidate("right"), 0).failure is None


@pytest.mark.parametrize("way", ["abort", "refuse", "segfault"])
def test_a_check_survives_what_the_candidate_does(measurer: KernelMeasurer, way: str) -> None:
    check = check_kernel(measurer, TASK, candidate(way), 0)
    assert check.failure is not None
    assert check.failure.kind == ("build" if way == "refuse" else "crash")
    assert check_kernel(measurer, TASK, candidate("right"), 0).failure is None


def test_the_largest_weights_of_the_zoo_are_timed_then_computed_with() -> None:
    """vgg19_bn's first dense layer: 411 MB, in less memory than a worker may take."""
    data, weights = workload([(1, 25088), (25088, 4096)], step("dense", 0, 1)).arguments
    arguments = (data, replace(weights, role="constant"))
    large = Workload(arguments=arguments, steps=(step("dense", 0, 1),))
    chosen, _ = default_candidate(large, (PLAIN,) * 3, PLACEMENT)
    assert chosen.implementation == "dense_packed"
    arrays = [np.ones(argument.type.shape, np.float32) for argument in large.arguments]
    with KernelMeasurer(PLACEMENT, memory_limit_bytes=1300 << 20) as measurer:
        timed = measurer.measure(large, [chosen], QUICK)
        result = measurer.evaluate(large, chosen, arrays)
    assert isinstance(timed[0], Measurement)
    assert not isinstance(result, Failure), result.message
    assert (result == arrays[0].size).all()


def test_a_kernel_that_takes_too_long(measurer: KernelMeasurer) -> None:
    slow = workload([(3000, 3000), (3000, 3000)], step("dense", 0, 1))
    plain = Candidate(implementation="generic", settings=(), forms=(PLAIN,) * 3)
    hurried = replace(QUICK, timeout_s=0.2)
    (outcome,) = measurer.measure(slow, [plain], hurried)
    assert isinstance(outcome, Failure) and outcome.kind == "timeout"
    assert isinstance(measurer.measure(TASK, [generic()], QUICK)[0], Measurement)


def test_what_was_built_ahead_is_not_built_again(measurer: KernelMeasurer) -> None:
    """Of two tasks; a crash of one takes kernels of the other along, which is then built anew."""
    other = workload([(16,)], step("relu", 0))
    measurer.build_ahead(
        [(TASK, candidate(way)) for way in ("right", "refuse", "segfault")] + [(other, generic())]
    )
    assert measurer.spent.kernels == 3
    asked = [candidate(way) for way in ("segfault", "refuse", "right", "right")]
    outcomes = measurer.measure(TASK, asked, QUICK)
    kinds = [o.kind if isinstance(o, Failure) else "" for o in outcomes]
    assert kinds == ["crash", "build", "", ""]
    assert measurer.spent.kernels == 4, "one was asked for twice"
    (last,) = measurer.measure(other, [generic()], QUICK)
    assert isinstance(last, Measurement) and last.workload_key == other.key
    assert measurer.spent.kernels == 4


@pytest.mark.skipif(len(allotted_cpus()) < 2, reason="needs two CPUs")
def test_kernels_of_one_thread_are_built_on_all_cpus(
    measurer: KernelMeasurer,
) -> None:
    """The pool keeps the thread that calls it on one CPU, where builders would wait for another."""
    with KernelMeasurer(local_placement(1)) as alone:
        outcomes = alone.measure(TASK, [candidate("crowded")] * 3, QUICK)
    assert all(isinstance(outcome, Measurement) for outcome in outcomes), outcomes


def test_measurements_hold_what_they_must(measurer: KernelMeasurer) -> None:
    (one,) = measurer.measure(TASK, [generic()], QUICK, run_id=5)
    assert isinstance(one, Measurement)
    assert len(one.samples_s) == QUICK.repeats and min(one.samples_s) > 0
    assert one.run_id == 5 and one.workload_key == TASK.key and one.protocol == QUICK
    assert one.device_class == PLACEMENT.device.class_key and one.build_s > 0
    assert one.created_at > 0 and "tvm" in one.versions
    assert measurer.current_hashes([(TASK, generic())]) == [one.kernel_hash]


def test_hashes_of_kernels_that_do_not_build_are_none(measurer: KernelMeasurer) -> None:
    ways = ["right", "refuse", "abort", "right"]
    hashes = measurer.current_hashes([(TASK, candidate(way)) for way in ways])
    assert hashes[1] is None and hashes[2] is None
    assert hashes[0] == hashes[3] is not None


def test_evaluation_takes_logical_arrays_and_scalars(measurer: KernelMeasurer) -> None:
    task: Workload = workload([(4, 3), ()], step("multiply", 0, 1))
    plain = Candidate(implementation="generic", settings=(), forms=(PLAIN,) * 3)
    x, factor = np.ones((4, 3), np.float32), np.array(2.5, np.float32)
    result = measurer.evaluate(task, plain, [x, factor])
    assert not isinstance(result, Failure)
    np.testing.assert_array_equal(result, 2.5 * x)


def test_the_target_of_the_device_is_what_kernels_are_built_for() -> None:
    assert json.loads(PLACEMENT.tvm_target)["kind"] == "llvm"


@pytest.mark.skipif(len(PLACEMENT.binding.cpus) < 2, reason="needs two logical CPUs")
def test_a_kernel_beside_copies_of_itself() -> None:
    protocol = replace(QUICK, neighbours=1)
    with CrowdedMeasurer(local_placement(1), 1) as crowded:
        (one,) = crowded.measure(TASK, [generic()], protocol)
        (bad,) = crowded.measure(
            TASK, [structs.replace(generic(), implementation="gone")], protocol
        )
        (again,) = crowded.measure(TASK, [generic()], protocol)
    assert isinstance(one, Measurement) and one.protocol.neighbours == 1
    assert isinstance(bad, Failure) and bad.kind == "build"
    assert isinstance(again, Measurement)


@pytest.mark.skipif(len(PLACEMENT.binding.cpus) < 2, reason="needs two logical CPUs")
def test_two_kernels_beside_each_other() -> None:
    kernel, gone = (TASK, generic()), structs.replace(generic(), implementation="gone")
    with KernelPairs(beside(local_placement(1), 1)) as pairs:
        times = pairs.times([kernel, kernel], rounds=2)
        with pytest.raises(RemoteError, match="gone"):
            pairs.times([kernel, (TASK, gone)])
        assert pairs.times([kernel, kernel], rounds=1).alone_s, "the next pair is timed"
    assert all(len(each) == 2 for each in (*times.alone_s, *times.beside_s))
    assert min(min(each) for each in (*times.alone_s, *times.beside_s)) > 0.0


@pytest.mark.skipif(len(PLACEMENT.binding.cpus) < 2, reason="needs two logical CPUs")
def test_a_kernel_on_several_cores_and_beside_a_neighbour() -> None:
    kernel = (TASK, generic())
    with CoreGrid(local_placement(2), (1, 2), [Neighbour(name="n", kernel=kernel)]) as grid:
        neighbours_s = grid.neighbours_s()
        times_s = grid.times_s({1: kernel, 2: kernel}, rounds=1)
    assert times_s.keys() == {(1, ALONE), (2, ALONE), (1, "n")}
    assert min(*neighbours_s.values(), *times_s.values()) > 0.0
