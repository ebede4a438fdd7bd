"""Ctrl-C, and timing in turn."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tilewright.session.interrupts import graceful_interrupt
from tilewright.session.timing import Timing, time_together


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_asks_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with graceful_interrupt() as interruption:
        assert not interruption()
        press()
        assert interruption() and interruption.requested
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_the_handler_is_put_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError), graceful_interrupt():
        raise ValueError
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with graceful_interrupt() as interruption:
            seen.append(signal.getsignal(signal.SIGINT))
            seen.append(interruption())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, False]


def test_runners_take_turns() -> None:
    log: list[str] = []

    def runner(name: str, seconds: float):
        def run(repeats: int, warmup: int) -> list[float]:
            log.append(name)
            return [seconds] * repeats

        return run

    timings = time_together({"a": runner("a", 0.1), "b": runner("b", 0.02)}, rounds=3)
    assert log[:2] == ["a", "b"]
    turns = log[2:]
    assert all(one != other for one, other in zip(turns, turns[1:], strict=False))
    assert turns.count("a") == turns.count("b") == 3
    assert timings["a"].latency_s == pytest.approx(0.1)
    assert len(timings["a"].samples_s) == 3 * 6
    assert len(timings["b"].samples_s) == 3 * 30


def test_slow_networks_run_a_few_times_only() -> None:
    asked: list[int] = []

    def run(repeats: int, warmup: int) -> list[float]:
        asked.append(repeats)
        return [5.0] * repeats

    time_together({"a": run}, rounds=2)
    assert max(asked) == 2


def test_median_and_spread() -> None:
    timing = Timing(samples_s=(1.0, 1.0, 1.0, 100.0, 1.0, 1.0, 1.0, 1.0))
    assert timing.latency_s == 1.0
    assert timing.spread == 0.0
    assert Timing(samples_s=(1.0, 2.0)).spread == pytest.approx(1 / 1.5)
    assert Timing(samples_s=(2.0,)).spread == 0.0
