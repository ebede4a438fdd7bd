"""MetaSchedule's search: its proposals are kernels of ours, and its process may die."""

from __future__ import annotations

import os
import signal
import sys

import pytest
import tvm

from helpers.kernels.one_kernel import PLACEMENT, step
from helpers.kernels.packed_kernel import constants_workload, kernel_error
from helpers.processes import small_searches
from tilewright.compiler.build import kernel_identity
from tilewright.compiler.metaschedule import search as search_module
from tilewright.compiler.metaschedule.search import Search
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate, Measurement, Protocol
from tilewright.graph.workload import Workload
from tilewright.kernels.metaschedule import SPEC, TRACE
from tilewright.kernels.search_space import SearchSpace
from tilewright.measure import metaschedule
from tilewright.search.tuners.base import TuningTask
from tilewright.search.tuners.metaschedule import MetaScheduleTuner

CONV = constants_workload(
    [(1, 8, 6, 6), (16, 8, 3, 3), (16, 1, 1)],
    [1, 2],
    [
        step("conv2d", 0, 1, strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1),
        step("add", 3, 2),
        step("relu", 4),
    ],
)
DENSE = constants_workload([(4, 32), (32, 16)], [1], [step("dense", 0, 1), step("relu", 2)])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "POPULATION", small_searches.POPULATION)
    monkeypatch.setattr(search_module, "BATCH", small_searches.BATCH)
    monkeypatch.setattr(metaschedule, "WORKER", small_searches.__name__)


def candidate(trace: str, forms: tuple[Form, ...]) -> Candidate:
    return Candidate(implementation=SPEC.name, settings=((TRACE, trace),), forms=forms)


@pytest.mark.parametrize(
    ("task", "forms"), [(CONV, (blocked(8), PLAIN, PLAIN, blocked(8))), (DENSE, (PLAIN,) * 3)]
)
def test_proposals_are_right_kernels_and_all_different(
    task: Workload, forms: tuple[Form, ...]
) -> None:
    search = Search(task, forms, PLACEMENT.target, PLACEMENT.resources, seed=1)
    first = search.propose()
    search.learn([(trace, 1e-3 * (1 + place)) for place, trace in enumerate(first)])
    traces = [*first, *search.propose()]
    assert len(first) > 2
    hashes = [
        kernel_identity(task, candidate(trace, forms), PLACEMENT.target, PLACEMENT.resources)
        for trace in traces
    ]
    assert len(set(hashes)) == len(hashes) > len(first)
    for trace in traces[:3]:
        error = kernel_error(task, SPEC, forms, {TRACE: trace})
        assert error <= SPEC.error_bound(task)


def test_another_search_does_not_propose_what_it_was_told() -> None:
    forms = (PLAIN,) * 3
    first = Search(DENSE, forms, PLACEMENT.target, PLACEMENT.resources, seed=1).propose()
    again = Search(DENSE, forms, PLACEMENT.target, PLACEMENT.resources, seed=1)
    again.learn([*[(trace, 1e-3) for trace in first[:-1]], (first[-1], None)])
    again.learn([("[[", 1e-3), ('[[["GetSBlock",[],["nowhere","main"],["b0"]]],[]]', 1e-3)])
    found = again.propose()
    assert found and not set(found) & set(first)


ARM_DOTS = "tvm.s_tir.tensor_intrin.arm_cpu"


def test_only_a_search_for_arm_parses_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two to three seconds of a processor in each process that searches."""
    monkeypatch.delitem(sys.modules, ARM_DOTS, raising=False)
    imported: list[str] = []
    monkeypatch.setattr(search_module, "import_module", imported.append)
    keys = {
        text: [str(key) for key in tvm.target.Target({"kind": "llvm", "mtriple": text}).keys]
        for text in ("x86_64-linux-gnu", "aarch64-linux-gnu")
    }
    search_module._skip_elsewhere(keys["x86_64-linux-gnu"])
    assert sys.modules[ARM_DOTS].__spec__ is None and not imported
    search_module._skip_elsewhere(keys["aarch64-linux-gnu"])
    assert imported == [ARM_DOTS] and ARM_DOTS not in sys.modules


def measured(mine: Candidate) -> Measurement:
    return Measurement(
        workload_key=DENSE.key,
        candidate=mine,
        device_class=PLACEMENT.device.class_key,
        resources=PLACEMENT.resources,
        protocol=Protocol(),
        kernel_hash="",
        samples_s=(1e-3,),
        build_s=0.0,
    )


def tuner_of(forms: tuple[Form, ...], seed: int = 0) -> MetaScheduleTuner:
    space = SearchSpace([])
    task = TuningTask(space=space, seed=seed, workload=DENSE, forms=forms, placement=PLACEMENT)
    return MetaScheduleTuner(task)


def test_a_tuner_survives_the_death_of_its_process(capfd: pytest.CaptureFixture[str]) -> None:
    tuner = tuner_of((PLAIN,) * 3, seed=1)
    process = tuner._process
    assert process is not None
    try:
        first = tuner.ask(3)
        assert len(first) == 3 and process.pid is not None
        tuner.tell([measured(mine) for mine in first])
        rest = tuner.ask(100)
        os.kill(process.pid, signal.SIGKILL)
        found = tuner.ask(4)
        assert found and not set(found) & {*first, *rest}
        assert tuner.search_s > 0
        error = kernel_error(DENSE, SPEC, found[0].forms, dict(found[0].settings))
        assert error <= SPEC.error_bound(DENSE)
    finally:
        tuner.close()
        del tuner
    assert capfd.readouterr().out == "", "MetaSchedule's log stays off standard output"


def test_what_cannot_be_searched_ends_the_search() -> None:
    tuner = tuner_of((blocked(3),) * 3)
    assert tuner.ask(2) == [] and tuner.problem
    tuner.close()
