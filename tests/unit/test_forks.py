"""Native libraries that keep a pool of threads, in forked processes."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from helpers.processes.forking import in_child
from tilewright.core.forks import call_native, calls_native, is_forked
from tilewright.predict.regressors import Trees

pytestmark = pytest.mark.regression


@calls_native
def native_thread(*, nested: bool = False) -> int:
    """The thread on which native functions are called, here or in a native function."""
    return native_thread() if nested else threading.get_ident()


def test_calls_stay_on_their_thread_unless_fork_made_the_process() -> None:
    assert not is_forked()
    assert native_thread(nested=True) == threading.get_ident()

    def child() -> None:
        assert is_forked()
        first = native_thread()
        assert first != threading.get_ident()
        assert native_thread(nested=True) == first
        in_child(grandchild)
        assert native_thread() == first

    def grandchild() -> None:
        assert native_thread(nested=True) != threading.get_ident()

    in_child(child)


def test_errors_come_out_as_they_are() -> None:
    def fail() -> None:
        raise ValueError("as it is")

    def child() -> None:
        with pytest.raises(ValueError, match="as it is"):
            call_native(fail)

    in_child(child)


def test_predictors_learn_and_answer_in_a_child() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((8000, 3))
    margin = -np.log(1 + values[:, 0])
    trees = Trees(rounds=3, threads=2)
    wanted = trees.fit(values, margin, 0).margin(values)

    def child() -> None:
        found = trees.fit(values, margin, 0).margin(values)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)

    in_child(child)
