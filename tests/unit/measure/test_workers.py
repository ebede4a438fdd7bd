"""Workers are prepared once in each life of their process, before anything else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.core.processes import ChildCrash
from tilewright.measure.base import Worker

LONG_S = 60.0
MODULE = """
import os
from tilewright.core.child import serve

prepared = []

def prepare(*arguments):
    prepared.append(arguments)

def heard():
    return prepared, os.environ.get("TVM_NUM_THREADS"), sorted(os.sched_getaffinity(0))

if __name__ == "__main__":
    serve({"prepare": prepare, "heard": heard, "die": lambda: os._exit(3)})
"""
CPU = min(os.sched_getaffinity(0))
PLACED = altered(PLACEMENT, threads=1, cpus=(CPU,))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "small_worker.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "small_worker"


@pytest.fixture
def worker(module: str) -> Iterator[Worker]:
    with Worker(module, PLACED) as started:
        yield started


def test_it_is_prepared_once_with_its_threads_and_cpus(worker: Worker) -> None:
    worker.get_ready()
    worker.get_ready()
    heard, threads, cpus = worker.request(("heard",), LONG_S)
    assert heard == [(1, (CPU,))]
    assert (threads, cpus) == ("1", [CPU])


def test_one_that_was_launched_or_starts_anew_is_prepared_first(worker: Worker) -> None:
    worker.launch()
    assert len(worker.request(("heard",), LONG_S)[0]) == 1
    with pytest.raises(ChildCrash):
        worker.request(("die",), LONG_S)
    assert len(worker.request(("heard",), LONG_S)[0]) == 1
    worker.stop()
    worker.launch()
    assert len(worker.request(("heard",), LONG_S)[0]) == 1


def test_one_that_works_for_a_device_elsewhere_keeps_all_cpus(module: str) -> None:
    with Worker(module, PLACED, here=False) as worker:
        _, threads, cpus = worker.request(("heard",), LONG_S)
    assert threads == os.environ.get("TVM_NUM_THREADS")
    assert cpus == sorted(os.sched_getaffinity(0))
