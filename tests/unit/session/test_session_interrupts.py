"""Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tilewright.session.interrupts import graceful_interrupt


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
