"""Whether TVM takes a target; it has the last word, asked in a process of its own."""

from __future__ import annotations

from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.measure.kernels import WORKER

_TIMEOUT_S = 60.0


def refused_by_tvm(placement: Placement) -> str | None:
    """Why TVM does not take the target, None when it does."""
    with Child(WORKER) as child:
        try:
            child.request(("target", placement.tvm_target), _TIMEOUT_S)
        except RemoteError as error:
            lines = error.message.strip().splitlines() or ["no reason given"]
            return lines[-1]
        except ChildError as error:
            return str(error)
    return None
