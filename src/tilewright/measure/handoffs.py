"""What handing over from core to core takes on this machine, measured and kept.

keep_handoffs(store, placement, part_handoffs)     0.7 µs between lanes, 0.5 ms between parts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.core.handoffs import HandoffSamples
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.core.targets import Binding, threads_alone
from tilewright.measure.base import BUILD_TIMEOUT_S
from tilewright.measure.kernels import open_worker
from tilewright.measure.targeting import in_this_process
from tilewright.store.base import Store
from tilewright.store.known_handoffs import HANDOFF_CORES, keep_handoff


def keep_handoffs(store: Store, placement: Placement, parts: HandoffSamples) -> None:
    """Measure what a hand-off takes between two lanes of a process, and between two processes as
    `parts` does, and keep both for the machine's class, where they could be measured: on a CPU of
    this machine with two cores."""
    if len(placement.binding.cpus) < HANDOFF_CORES or not in_this_process(placement):
        return
    two = replace(
        placement,
        resources=threads_alone(HANDOFF_CORES),
        binding=Binding(cpus=placement.binding.cpus[:HANDOFF_CORES]),
    )
    keep_handoff(store, two, "lanes", lane_handoffs(two))
    keep_handoff(store, two, "parts", parts(two))


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
