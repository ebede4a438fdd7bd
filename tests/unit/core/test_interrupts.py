"""Ctrl-C and its like."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tilewright.core.signals import STOPPING, as_interrupts, graceful_interrupt


@pytest.fixture(autouse=True)
def unheeded():
    """Signals as a program finds them that was started from a shell."""
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", STOPPING)
@pytest.mark.parametrize("second", STOPPING)
def test_the_first_asks_the_second_interrupts(first: int, second: int) -> None:
    before = [signal.getsignal(number) for number in STOPPING]
    with graceful_interrupt() as interruption:
        assert not interruption()
        os.kill(os.getpid(), first)
        assert interruption()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), second)
    assert [signal.getsignal(number) for number in STOPPING] == before


@pytest.mark.parametrize("number", STOPPING)
def test_elsewhere_it_interrupts_at_once(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), as_interrupts():
        os.kill(os.getpid(), number)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_between_the_two_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    with as_interrupts(), graceful_interrupt() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_what_a_program_or_nohup_decided_stays(handler) -> None:
    signal.signal(signal.SIGHUP, handler)
    with as_interrupts(), graceful_interrupt() as interruption:
        assert signal.getsignal(signal.SIGHUP) == handler
        os.kill(os.getpid(), signal.SIGHUP)
        assert not interruption()


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
