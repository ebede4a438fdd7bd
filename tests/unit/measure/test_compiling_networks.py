"""Networks are compiled side by side, one per worker at a time; one failure ends all."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import cast

import pytest

from tilewright.core.errors import OutputError
from tilewright.core.processes import Child, ChildCrash, ChildError
from tilewright.graph.plan import NetworkPlan
from tilewright.measure.networks import NetworkWorker, ToCompile, compile_all

PATIENCE_S = 20.0


class FakeWorker:
    """Compiles nothing; `meet` is where workers wait for each other, `broken` folders fail, and
    `stuck` ones take until somebody aborts."""

    def __init__(self, meet: threading.Barrier | None = None) -> None:
        self.meet = meet
        self.compiled: list[str] = []
        self.launched = False
        self.aborted = threading.Event()

    def launch(self) -> None:
        self.launched = True

    def abort(self) -> None:
        self.aborted.set()

    def compile(self, _plan: object, _constants: object, folder: Path) -> None:
        assert self.launched
        if self.meet is not None:
            self.meet.wait(PATIENCE_S)
        if folder.name == "broken":
            raise OutputError("the disk is full")
        if folder.name == "stuck":
            assert self.aborted.wait(PATIENCE_S)
            raise RuntimeError("killed")
        self.compiled.append(folder.name)


def networks(*names: str) -> list[ToCompile]:
    plan = cast(NetworkPlan, None)
    return [ToCompile(plan=plan, constants={}, folder=Path(name)) for name in names]


def compiled(workers: list[FakeWorker], *names: str) -> None:
    compile_all(cast(list[NetworkWorker], workers), networks(*names))


def test_two_workers_compile_at_the_same_time() -> None:
    meet = threading.Barrier(2)
    workers = [FakeWorker(meet), FakeWorker(meet)]
    compiled(workers, "one", "two", "three", "four")
    assert sorted(name for worker in workers for name in worker.compiled) == [
        "four", "one", "three", "two",
    ]  # fmt: skip
    assert all(len(worker.compiled) == 2 for worker in workers)


def test_one_worker_keeps_the_order() -> None:
    worker = FakeWorker()
    compiled([worker], "one", "two", "three")
    assert worker.compiled == ["one", "two", "three"]


def test_a_failure_gives_up_the_others() -> None:
    workers = [FakeWorker(), FakeWorker()]
    with pytest.raises(OutputError, match="full"):
        compiled(workers, "stuck", "broken", "never", "never either")
    assert not [name for worker in workers for name in worker.compiled if "never" in name]
    assert all(worker.aborted.is_set() for worker in workers)


def test_a_child_can_be_aborted_from_another_thread() -> None:
    with Child("tilewright.measure.network_worker") as child:
        child.launch()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSTOP)  # so that it cannot answer before it is killed
        failures: list[ChildError] = []

        def ask() -> None:
            try:
                # Where it is gone before the thread runs, no other one may start and answer.
                child.request_again(("run", "nothing", []), PATIENCE_S)
            except ChildError as error:
                failures.append(error)

        waiting = threading.Thread(target=ask)
        waiting.start()
        child.abort()
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()
        assert isinstance(failures[0], ChildCrash)
