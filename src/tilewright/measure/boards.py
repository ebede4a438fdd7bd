"""One remote device: the child process that holds its session, and what may go wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from tilewright.core.errors import TargetError
from tilewright.core.processes import Child, ChildCrash, ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.hardware.remote import ServerFacts, remote_instance, same_kind
from tilewright.measure.base import START_TIMEOUT_S, BoardLost
from tilewright.measure.tracker import Tracker

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
    as long as kernels need.
    """

    def __init__(self, tracker: Tracker, key: str, *, session_s: float | None = None) -> None:
        super().__init__(WORKER)
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
