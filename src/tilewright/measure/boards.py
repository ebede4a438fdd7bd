"""Devices behind a TVM RPC tracker: asking the tracker for one, and the child process that holds
its session, with what may go wrong; every wait has an end.

The tracker's protocol is TVM's: a magic number, then JSON texts behind a length of four bytes.
TVM's own client retries a refused connection for a minute and waits for ever where nothing answers.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from tilewright.core.errors import TargetError, close_matches
from tilewright.core.grouping import grouped
from tilewright.core.processes import Child, ChildCrash, ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.hardware.remote import ServerFacts, remote_instance, same_kind
from tilewright.measure.base import START_TIMEOUT_S, BoardLost

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
        with self._connected() as connection:
            servers = _ask(connection, [_SUMMARY])[1]["server_info"]
            keys = grouped(
                (str(server["key"]).partition(":")[2], (str(host), int(port)))
                for server in servers
                for host, port in [server["addr"]]
            )
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


WORKER = "tilewright.measure.remote_worker"
SESSION_S = 60.0
"""A server ends a session after this long: a kernel that hangs blocks its device no longer."""
CONNECT_TIMEOUT_S = 30.0
_POLL_S = 0.3
_REQUEST_S = 2.0
_STOP_S = 5.0


class Board(Child):
    """A remote device of one key, whichever the tracker hands out.

    `instance` names the device, empty while there is none. A session lasts `session_s`, by default
    as long as kernels need. `worker` is the module of the child, and `inherited` are files that it
    has open.
    """

    def __init__(
        self,
        tracker: Tracker,
        key: str,
        *,
        session_s: float | None = None,
        worker: str = WORKER,
        inherited: Sequence[int] = (),
    ) -> None:
        super().__init__(worker, inherited=inherited)
        self.instance = ""
        self._tracker = tracker
        self._key = key
        self._session_s = session_s
        self._expires_s = -inf

    def get_ready(self) -> None:
        """Start the process where it does not run, and wait until it can be asked."""
        super().request(("disconnect",), START_TIMEOUT_S)

    def connect(self, wait_s: float) -> ServerFacts:
        """Get a device, waiting for a free one, and open a session on it; what it says of itself.

        Raises `TargetError` when the tracker cannot be asked, has no device of the key, none
        becomes free (`NoFreeDevice`), or the device does not answer.
        """
        self.disconnect()
        lease = self._tracker.request(self._key, wait_s)
        session_s = SESSION_S if self._session_s is None else self._session_s
        expires_s = time.monotonic() + session_s
        instance = remote_instance(self._key, lease.host, lease.port)
        message = ("connect", lease.host, lease.port, lease.match, session_s)
        try:
            facts: ServerFacts = super().request(message, CONNECT_TIMEOUT_S)
        except (ChildError, RemoteError) as error:
            reason = str(error).strip().splitlines()[-1:]
            raise TargetError(
                f"the device {instance} cannot be used: {''.join(reason)}",
                hint="Its server is registered at the tracker; is it reachable from here?",
            ) from error
        self.instance, self._expires_s = instance, expires_s
        return facts

    def connect_for(
        self, placement: Placement, told: ServerFacts | None, wait_s: float
    ) -> ServerFacts:
        """As `connect`, for kernels of `placement`; `told` is what an earlier device said.

        Raises `TargetError` when this one is of another kind.
        """
        facts, instance = self.connect(wait_s), self.instance
        if not same_kind(placement, facts, told):
            self.disconnect()
            raise TargetError(
                f"{instance} is another kind of device than the target, or has fewer threads",
                hint="Give different machines different keys; check the target given.",
            )
        try:
            super().request(("use_threads", placement.resources.threads), CONNECT_TIMEOUT_S)
        except (ChildError, RemoteError) as error:
            self.disconnect()
            raise TargetError(f"the device {instance} was lost: {error}") from error
        return facts

    def lasts(self, limit_s: float) -> bool:
        """Whether the session is open and will be for `limit_s`."""
        return bool(self.instance) and time.monotonic() + limit_s < self._expires_s

    def request(self, message: tuple[Any, ...], timeout_s: float) -> Any:
        """Ask the device. Raises `BoardLost`, another `ChildError`, or `RemoteError`; but for the
        last, there is no device afterwards."""
        try:
            return super().request(message, timeout_s)
        except RemoteError as error:
            if error.kind != "DeviceLost":
                raise
            self.instance = ""
            raise BoardLost(error.message) from error
        except ChildError as error:
            self.instance = ""
            if isinstance(error, ChildCrash):
                raise BoardLost(str(error)) from error
            raise

    def reconnect(
        self, attempt: Callable[[float], ServerFacts], limit_s: float, stop: Callable[[], bool]
    ) -> bool:
        """Try `attempt` until it works, `limit_s` is over or `stop` says so; whether it did.

        The tracker is asked for a device when one is free only: a request that is given up could
        still be granted one, which nobody would use for a while.
        """
        deadline_s = time.monotonic() + limit_s
        while not stop():
            with suppress(TargetError):
                if self._tracker.free(self._key):
                    attempt(_REQUEST_S)
                    return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return False

    def left_s(self) -> float:
        """Seconds until the server ends the last session by itself, 0 when it has."""
        return max(0.0, self._expires_s - time.monotonic())

    def disconnect(self) -> None:
        """Give the device back."""
        if self.instance:
            self.instance = ""
            with suppress(ChildError, RemoteError):
                super().request(("disconnect",), _STOP_S)

    def stop(self) -> None:
        """End the child, and with it the session."""
        self.instance = ""
        super().stop()
