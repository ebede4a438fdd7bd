"""A worker of `tilewright.serving` without TVM: y = 2 x + 1, and z is as long as x says.

The folder of a network holds what it does: `seconds` how long it takes, which is read anew for
every run, be it of one request or a batch, `start` why it does not start, and `mixes` what is added
to the x of a batch, in Python. An x that begins with
one of the numbers below ends the process, or keeps it busy for ever; one of `ONCE` does so until a
file says that it did; one of them in a file `fault` of the folder does so for every x. In a batch a
second output may be -x, as a column.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.core import child
from tilewright.core.errors import InputError
from tilewright.serving.batches import NO_BATCHES, Batches
from tilewright.serving.slots import SharedSlots, SlotPlan

CRASH, HANG, CRASH_ONCE, HANG_ONCE, REFUSE = -101.0, -102.0, -103.0, -104.0, -105.0
ONCE = {CRASH_ONCE: CRASH, HANG_ONCE: HANG}
SECONDS, STARTS_NOT, MIXES, FAULT = "seconds", "start", "mixes", "fault"
_slots: list[SharedSlots] = []
_networks: dict[str, tuple[Path, SlotPlan]] = {}
_batches: dict[str, Batches] = {}


def prepare(descriptor: int, count: int, slot_bytes: int, cpus: Sequence[int]) -> None:
    assert os.sched_getaffinity(0) == set(cpus)
    _slots.append(SharedSlots(descriptor, count, slot_bytes))


def load(
    name: str,
    folder: Path,
    order: Sequence[str],
    plan: SlotPlan,
    batches: Batches = NO_BATCHES,
) -> None:
    del order
    _batches[name] = batches
    if (folder / STARTS_NOT).exists():
        os._exit(3)
    _networks[name] = folder, plan


def run(name: str, slot: int) -> dict[int, Any]:
    folder, plan = _networks[name]
    x = _slots[0].view(slot, plan.inputs[0])
    _wished(folder, float(x.reshape(-1)[0]))
    time.sleep(float((folder / SECONDS).read_text()))
    place, others = plan.outputs[0], dict[int, Any]()
    assert place is not None
    np.copyto(_slots[0].view(slot, place), 2 * x + 1)
    if len(plan.outputs) > 1:
        others[1] = np.arange(int(x.reshape(-1)[1]))
    return others


def run_batch(name: str, size: int, slots: Sequence[int]) -> dict[int, Any]:
    (folder, plan), batches, (memory,) = _networks[name], _batches[name], _slots
    assert len(slots) <= size and size in batches.sizes
    x = memory.joined(slots, plan.inputs[0], batches.inputs[0])
    for wish in x[:, 0]:
        _wished(folder, float(wish))
    time.sleep(float((folder / SECONDS).read_text()))
    if (folder / MIXES).exists():
        x = x + eval((folder / MIXES).read_text(), {"np": np, "x": x})
    for place, axis, array in zip(plan.outputs, batches.outputs, (2 * x + 1, -x.T), strict=False):
        assert place is not None
        memory.spread(slots, place, axis, array)
    return {}


def _wished(folder: Path, wish: float) -> None:
    if (folder / FAULT).exists():
        wish = float((folder / FAULT).read_text())
    if wish in ONCE and not (folder / str(wish)).exists():
        (folder / str(wish)).touch()
        wish = ONCE[wish]
    if wish == CRASH:
        os.kill(os.getpid(), signal.SIGSEGV)
    if wish == HANG:
        time.sleep(1000)
    if wish == REFUSE:
        raise InputError("x is refused")


if __name__ == "__main__":
    child.serve({"prepare": prepare, "load": load, "run": run, "run_batch": run_batch})
