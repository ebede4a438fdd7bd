"""Trackers that are not there, refuse, hang, or talk nonsense."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tilewright.core.errors import TargetError, UsageError
from tilewright.measure import boards as module
from tilewright.measure.boards import NoFreeDevice, Tracker
from tilewright.measure.targeting import placement_of

MAGIC = struct.pack("<i", 0x2F271)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_TIMEOUT_S", 0.5)


def address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def answering(server: socket.socket, talk: Callable[[socket.socket], None]) -> None:
    """Let `talk` handle the next connection."""

    def work() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            talk(connection)

    threading.Thread(target=work, daemon=True).start()


def asked(where: str) -> TargetError:
    with pytest.raises(TargetError) as found:
        placement_of("rpc:box", where, None)
    assert found.value.exit_code == 3 and found.value.hint
    return found.value


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = address(server)
    assert "refuses" in asked(where).message


def test_no_such_host() -> None:
    assert "cannot be reached" in asked("no-such-host.invalid:9190").message


def test_it_hangs_before_the_greeting(listening: socket.socket) -> None:
    assert "does not answer" in asked(address(listening)).message


def test_it_hangs_after_the_greeting(listening: socket.socket) -> None:
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.sendall(MAGIC)
        over.wait(10.0)

    answering(listening, talk)
    assert "does not answer" in asked(address(listening)).message
    over.set()


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        MAGIC,
        MAGIC + struct.pack("<i", -1),
        MAGIC + struct.pack("<i", 1 << 30),
        MAGIC + struct.pack("<i", 3) + b"{{{",
        MAGIC + struct.pack("<i", 4) + b"null",
        MAGIC + struct.pack("<i", 6) + b"[0, 1]",
    ],
)
def test_it_is_something_else(listening: socket.socket, words: bytes) -> None:
    def talk(connection: socket.socket) -> None:
        connection.sendall(words)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 10):
            pass

    answering(listening, talk)
    assert "is no TVM RPC tracker" in asked(address(listening)).message


def test_every_device_is_busy(listening: socket.socket) -> None:
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.sendall(MAGIC)
        over.wait(10.0)

    answering(listening, talk)
    host, port = listening.getsockname()
    with pytest.raises(NoFreeDevice, match="became free within 0.2 s"):
        Tracker(host=host, port=port).request("box", 0.2)
    over.set()


@pytest.mark.parametrize(
    "text", [None, "", "host", "host:", ":9190", "host:0", "host:70000", "a:b"]
)
def test_addresses_that_are_none(text: str | None) -> None:
    with pytest.raises(UsageError):
        placement_of("rpc:box", text, None)


def test_a_tracker_without_a_remote_target() -> None:
    with pytest.raises(UsageError, match="rpc: targets"):
        placement_of("llvm", "127.0.0.1:9190", None)
