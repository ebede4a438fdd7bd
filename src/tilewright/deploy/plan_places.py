"""Where a plan runs: its devices that are here or answer, and some cores of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.core.errors import TargetError, TilewrightError
from tilewright.core.records import Placement
from tilewright.core.targets import Binding, threads_alone
from tilewright.deploy.plan_models import require_machine
from tilewright.hardware.remote import is_behind_tracker
from tilewright.kernels.base import CPU
from tilewright.kernels.cuda.base import CUDA
from tilewright.measure.targeting import placement_of, usable_placement
from tilewright.plan.scheduling.parts import ScheduledCall
from tilewright.plan.scheduling.plan_file import Plan


def computes(call: ScheduledCall) -> bool:
    """Whether a call has a kernel: the inputs and outputs that a host has have none."""
    return any(mode.kernel for mode in call.modes)


def has_all(placement: Placement, cores: Sequence[int]) -> bool:
    """Whether cores in a plan are all of a placement; a GPU is one place in it."""
    return placement.target.kind not in CPU or len(cores) == placement.resources.threads


def on_cores(placement: Placement, cores: Sequence[int]) -> Placement:
    """These cores of a placement."""
    if has_all(placement, cores):
        return placement
    resources = replace(threads_alone(len(cores)), kind=placement.resources.kind)
    cpus = tuple(placement.binding.cpus[core] for core in cores)
    return replace(placement, resources=resources, binding=Binding(cpus=cpus))


def placements_in(plan: Plan, tracker: str | None) -> Iterator[tuple[str, Placement]]:
    """The devices of a plan that are here or answer. Raises TargetError where that is not one that
    the plan uses, or it is of another kind than when the plan was made."""
    said = {each.name: each for each in plan.devices}
    slots = plan.schedule.slots
    calls = {call.name: call for call in plan.problem.calls if computes(call)}
    used = {
        plan.schedule.mode_of(plan.problem, slot.call).device
        for slot in slots
        if slot.call in calls
    }
    for device in plan.problem.devices:
        known = said.get(device.name)
        if known is not None and known.imagined:
            if device.name in used:
                raise TargetError(
                    f"calls of the plan run on {device.name!r}, which is {known.imagined}: nothing "
                    "runs there",
                    hint="simulate tells what becomes of the plan; plan without that device to run "
                    "it.",
                )
            continue
        asked = (tracker or (known and known.tracker)) if is_behind_tracker(device.name) else None
        try:
            placement = _placement(device.name, device.cores, asked or None)
        except TilewrightError:
            if device.name in used:
                raise
            continue
        require_machine(plan, device.name, placement)
        yield device.name, placement


def _placement(device: str, cores: int, tracker: str | None) -> Placement:
    known = usable_placement(placement_of(device, tracker, None))
    if known.target.kind not in (*CPU, CUDA):
        raise TargetError(
            f"calls of the plan run on {device!r}; parts of networks are run on CPUs, here and "
            "behind a tracker, and on GPUs here",
            hint="Plan without that device.",
        )
    if known.target.kind in CPU and cores > known.resources.threads:
        raise TargetError(
            f"the plan is for {cores} cores of {device!r}, which has {known.resources.threads}",
            hint=f"Plan with --threads {known.resources.threads}.",
        )
    return on_cores(known, range(cores))
