"""Why a server does not answer a request."""

from __future__ import annotations

from tilewright.core.errors import NegativeVerdict, UsageError


class QueueFull(NegativeVerdict):
    """As many requests wait as may; this one was not taken."""


class DeadlineMissed(NegativeVerdict):
    """A request cannot be answered in time, and was not computed."""


class RequestFailed(NegativeVerdict):
    """A request was tried and ended the process that computed it, as often as it may; or no
    instance is left."""


class ServerClosed(UsageError):
    """The server takes no requests any more."""
