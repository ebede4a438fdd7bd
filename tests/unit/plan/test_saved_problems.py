"""Solving a saved problem: Ctrl-C is heard while a solver is busy."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from tilewright.plan.assignment import solving
from tilewright.plan.assignment.problem import Problem, Table, Variable
from tilewright.plan.assignment.problem_file import write_problem


def test_an_interrupt_does_not_wait_for_the_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(
        variables=(Variable(name="x", kind="layout", values=("plain",)),),
        tables=(Table(variables=("x",), costs=np.array([1])),),
    )
    write_problem(problem, tmp_path / "net.json")
    over, heard_inside = Event(), Event()

    def busy(_problem: Problem, _solver: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(60)
        except KeyboardInterrupt:
            heard_inside.set()
            raise

    monkeypatch.setattr(solving, "solve", busy)
    # whoever starts the tests in the background has them ignore the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            solving.solve_file(tmp_path / "net.json")
    finally:
        signal.signal(signal.SIGINT, before)
        over.set()
    assert not heard_inside.is_set()
