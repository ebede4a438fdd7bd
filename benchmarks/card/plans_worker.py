"""The child process that computes parts of carried plans on a CPU. It needs TVM's runtime, not its
compiler, and otherwise does what `tilewright.serving.worker` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.runtime.vm import VirtualMachine

from card.plans import CPU_LIBRARY
from tilewright.core import child
from tilewright.core.weights import WEIGHTS
from tilewright.hardware.tile_permission import tiles_permitted
from tilewright.serving.batches import NO_BATCHES, Batches
from tilewright.serving.slots import SharedSlots, SlotPlan

_USE_GIVEN_CPUS = -2
_slots: list[SharedSlots] = []
_parts: dict[str, tuple[Any, list[Any], SlotPlan]] = {}


def prepare(descriptor: int, count: int, slot_bytes: int, cpus: Sequence[int]) -> None:
    """Take the shared slots, and the cores to compute on, with a thread on each."""
    _slots.append(SharedSlots(descriptor, count, slot_bytes))
    configure = tvm_ffi.get_global_func("runtime.config_threadpool")
    configure(_USE_GIVEN_CPUS, len(cpus), [str(cpu) for cpu in cpus])
    with suppress(OSError):
        os.sched_setaffinity(0, cpus[:1])
    tiles_permitted()


def load(
    name: str,
    folder: Path,
    order: Sequence[str],
    plan: SlotPlan,
    _batches: Batches = NO_BATCHES,
) -> None:
    """Load a compiled part as `name`; `order` are the names of its constants."""
    library = tvm.runtime.load_module(str((folder / CPU_LIBRARY).resolve()))
    weights = tvm.runtime.load_param_dict_from_file(str(folder / WEIGHTS))
    machine = VirtualMachine(library, tvm.cpu())
    _parts[name] = machine, [weights[each] for each in order], plan


def run(name: str, slot: int) -> dict[int, Any]:
    """Run once on the inputs in a slot, and leave the outputs there."""
    (slots,), (machine, weights, plan) = _slots, _parts[name]
    given = [tvm.runtime.tensor(slots.view(slot, place)) for place in plan.inputs]
    found = machine["main"](*given, *weights)
    several = [found] if hasattr(found, "numpy") else list(found)
    return slots.keep(slot, plan, [each.numpy() for each in several])


if __name__ == "__main__":
    child.serve({"prepare": prepare, "load": load, "run": run})
