"""Asking a TVM RPC tracker for its devices; every wait has an end.

The protocol is TVM's: a magic number, then JSON texts behind a length of four bytes. TVM's own
client retries a refused connection for a minute and waits for ever where nothing answers.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilewright.core.errors import TargetError, close_matches

ANSWER_TIMEOUT_S = 5.0
_MAGIC = 0x2F271
_SUCCESS, _REQUEST, _SUMMARY = 0, 4, 6
_MOST_BYTES = 1 << 24
_INT = struct.Struct("<i")


class NoFreeDevice(TargetError):
    """All devices of a key are in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A device the tracker has handed out: its server's address, and the key that opens it."""

    host: str
    port: int
    match: str


@dataclass(frozen=True, slots=True)
class Tracker:
    """A tracker's address and what can be asked of it.

    All methods raise `TargetError` when nothing is there, when it refuses, when it is no tracker,
    or when it does not answer in time.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def servers(self, key: str) -> list[tuple[str, int]]:
        """Addresses of the servers registered under a key, busy ones included.

        Raises `TargetError`, naming the keys there are, when there is none.
        """
        keys: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        with self._connected() as connection:
            for server in _ask(connection, [_SUMMARY])[1]["server_info"]:
                host, port = server["addr"]
                keys[str(server["key"]).partition(":")[2]].append((str(host), int(port)))
        if key not in keys:
            raise TargetError(
                f"the tracker at {self} knows no device {key!r}",
                hint=close_matches(key, keys)
                if keys
                else "No server has registered there yet: python -m tvm.exec.rpc_server "
                f"--tracker {self} --key {key}",
            )
        return keys[key]

    def free(self, key: str) -> int:
        """How many devices of a key nobody uses now."""
        with self._connected() as connection:
            queues = _ask(connection, [_SUMMARY])[1]["queue_info"]
            return int(queues.get(key, {}).get("free", 0))

    def request(self, key: str, wait_s: float) -> Lease:
        """The next free device of a key. Raises `NoFreeDevice` after `wait_s`."""
        with self._connected() as connection:
            connection.settimeout(wait_s)
            try:
                code, (host, port, match) = _ask(connection, [_REQUEST, key, "tilewright", 1])
            except TimeoutError as error:
                raise NoFreeDevice(
                    f"no device {key!r} of the tracker at {self} became free within {wait_s:g} s",
                    hint="Others may be using them; try again later.",
                ) from error
            if code != _SUCCESS:
                raise ValueError("it refuses")
            return Lease(host=str(host), port=int(port), match=str(match))

    @contextmanager
    def _connected(self) -> Generator[socket.socket]:
        where = f"the tracker at {self}"
        hint = "Is this its address, and is `python -m tvm.exec.rpc_tracker` running there?"
        try:
            with socket.create_connection((self.host, self.port), ANSWER_TIMEOUT_S) as connection:
                connection.sendall(_INT.pack(_MAGIC))
                if _receive(connection, _INT.size) != _INT.pack(_MAGIC):
                    raise ValueError("it has another magic number")
                yield connection
        except ConnectionRefusedError as error:
            raise TargetError(f"{where} refuses: nothing listens there", hint=hint) from error
        except TimeoutError as error:
            raise TargetError(
                f"{where} does not answer within {ANSWER_TIMEOUT_S:g} s", hint=hint
            ) from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise TargetError(
                f"what answers at {self} is no TVM RPC tracker",
                hint="The port of a tracker is 9190 unless it was started with another.",
            ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise TargetError(f"{where} cannot be reached: {reason}", hint=hint) from error


def _ask(connection: socket.socket, message: list[Any]) -> Any:
    text = json.dumps(message).encode()
    connection.sendall(_INT.pack(len(text)) + text)
    (size,) = _INT.unpack(_receive(connection, _INT.size))
    if not 0 < size <= _MOST_BYTES:
        raise ValueError(f"its answer has {size} bytes")
    return json.loads(_receive(connection, size))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ValueError("its answer was cut short")
        received += chunk
    return received
