"""What handing over from core to core takes on this machine, measured and kept.

keep_handoffs(store, placement, parts, events)     0.7 µs between lanes, 0.5 ms between parts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.core.events import EventSink, Note
from tilewright.core.handoffs import HandoffKind, HandoffSamples
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.core.targets import Binding, threads_alone
from tilewright.measure.base import BUILD_TIMEOUT_S
from tilewright.measure.kernels import open_worker
from tilewright.measure.targeting import in_this_process
from tilewright.store.base import Store
from tilewright.store.known_handoffs import HANDOFF_CORES, keep_handoff

_BETWEEN: dict[HandoffKind, str] = {"lanes": "lanes of a process", "parts": "processes"}


def keep_handoffs(
    store: Store, placement: Placement, parts: HandoffSamples, events: EventSink
) -> None:
    """Measure what a hand-off takes between two lanes of a process, and between two processes as
    `parts` does, and keep both for the machine's class, on a CPU of this machine with two cores. A
    note says which of them could not be measured there."""
    if len(placement.binding.cpus) < HANDOFF_CORES or not in_this_process(placement):
        return
    two = replace(
        placement,
        resources=threads_alone(HANDOFF_CORES),
        binding=Binding(cpus=placement.binding.cpus[:HANDOFF_CORES]),
    )
    measured: dict[HandoffKind, HandoffSamples] = {"lanes": lane_handoffs, "parts": parts}
    for kind, samples_s in measured.items():
        if not keep_handoff(store, two, kind, samples_s(two)):
            events(
                Note(
                    message=f"Hand-offs between {_BETWEEN[kind]} could not be measured: plans "
                    "count with what was measured before, or else with what is assumed."
                )
            )


def lane_handoffs(placement: Placement) -> Sequence[float]:
    """Seconds of hand-offs between lanes of one core in a process on a placement; none where it
    could not be asked."""
    worker = open_worker(placement)
    try:
        return worker.request(
            ("lane handoffs", placement.target, placement.resources), BUILD_TIMEOUT_S
        )
    except (ChildError, RemoteError):
        return ()
    finally:
        worker.stop()
