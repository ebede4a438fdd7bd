"""Plans as JSON files: a problem, a schedule of it, and which networks the calls are of.

    {"format": "tilewright plan 1", "problem": {…}, "networks": [{"name": "resnet18", …}],
     "schedule": {"planner": "cpsat", "slots": [{"call": "conv1", "mode": 0, …}], …}}

See docs/reference/scheduling-problem.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import msgspec

from tilewright.core.errors import ModelError
from tilewright.core.input_files import readable
from tilewright.core.output_files import replacing
from tilewright.core.records import KnobValue, Precision
from tilewright.core.schedules import PLAN_FILE, ScheduleResult
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.problem_file import format_problem, parse_problem
from tilewright.plan.scheduling.schedule import Schedule

FORMAT = "tilewright plan 1"


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """An implementation and its settings by knob, in the forms that the call has anyway."""

    implementation: str
    settings: dict[str, KnobValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNetwork:
    """A network of a plan: the name that its calls carry, the MODEL argument and its options by
    name, the settings that its kernels have, and the relative error that they may have (None: that
    of its precision). Where there were versions to choose from, `kernels` are those that the plan
    chose, by the network's calls.

    The MODEL may be an artifact's folder. `precision` is that in which it was planned; where that
    is not single precision, `forms` is by the devices' names a hash of the forms of all operands:
    the types of tensors may have been chosen anew since then (`forms_hash`). Devices that compute
    the network in another precision have theirs in `device_precisions`, by their names. The calls
    of each of `merges`, by their names in the network, are one call of the plan."""

    name: str
    model: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    settings: str = "default"
    max_error: float | None = None
    kernels: dict[str, PlannedKernel] = field(default_factory=dict[str, PlannedKernel])
    precision: Precision = get_args(Precision)[0]
    forms: dict[str, str] = field(default_factory=dict[str, str])
    merges: tuple[tuple[str, ...], ...] = ()
    device_precisions: dict[str, Precision] = field(default_factory=dict[str, Precision])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice:
    """A device of a plan: its name, the class of machines that it was, and the HOST:PORT of the
    tracker where one knows it; where nobody can run on it, `imagined` says what it is instead."""

    name: str
    machine: str
    tracker: str = ""
    imagined: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A schedule of a problem, the networks, and what the devices were when it was made; none of
    either where the problem was written by hand."""

    problem: SchedulingProblem
    schedule: Schedule
    networks: tuple[PlannedNetwork, ...] = ()
    devices: tuple[PlannedDevice, ...] = ()

    @property
    def precisions(self) -> dict[str, Precision]:
        """The precision of each network by its name."""
        return {each.name: each.precision for each in self.networks}

    def told(self, result: ScheduleResult) -> ScheduleResult:
        """A result about the plan with what it says of precisions."""
        own = {n.name: n.device_precisions for n in self.networks if n.device_precisions}
        return replace(result, precisions=self.precisions, device_precisions=own)


def forms_hash(forms: Mapping[str, Sequence[str]]) -> str:
    """What stands for the forms of the operands and results of calls, by the calls' names."""
    return sha256(repr(sorted((name, *each) for name, each in forms.items())).encode()).hexdigest()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    problem: msgspec.Raw
    schedule: Schedule
    networks: tuple[PlannedNetwork, ...] = ()
    devices: tuple[PlannedDevice, ...] = ()


def write_plan(plan: Plan, path: Path) -> None:
    """Save a plan; raises OutputError where the file cannot be written."""
    problem = msgspec.Raw(format_problem(plan.problem))
    file = _File(FORMAT, problem, plan.schedule, plan.networks, plan.devices)
    with replacing(path) as temporary:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(file)) + b"\n")


def read_plan(path: Path) -> Plan:
    """The plan in a file, or in the folder that `plan` wrote. Raises ModelError for one that is
    missing or broken, or that breaks what its problem asks."""
    named = path / PLAN_FILE if path.is_dir() else path
    with readable(named):
        text = named.read_bytes()
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise _no_plan(named, str(error)) from error
    if file.format != FORMAT:
        raise _no_plan(named, f"its format is {file.format!r}; known is {FORMAT!r}")
    problem = parse_problem(bytes(file.problem), str(named))
    broken = next(faults(problem, file.schedule), None)
    if broken is not None:
        raise _no_plan(named, f"its schedule breaks the problem: {broken}")
    networks = {call.network for call in problem.calls}
    unknown = [each.name for each in file.networks if each.name not in networks]
    if unknown:
        raise _no_plan(named, f"no call is of its network {unknown[0]!r}")
    return Plan(
        problem=problem,
        schedule=judged(problem, file.schedule),
        networks=file.networks,
        devices=file.devices,
    )


def read_times(path: Path) -> dict[str, float]:
    """Seconds of calls by name, from a file {"conv1": 9e-05, …}; raises ModelError."""
    with readable(path):
        text = path.read_bytes()
    try:
        return msgspec.json.decode(text, type=dict[str, float])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{str(path)!r} has no times: {error}.", hint='Seconds by call: {"conv1": 9e-05}'
        ) from error


def _no_plan(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{str(path)!r} is no plan: {reason}.",
        hint="`tilewright plan … --out FOLDER` writes plans.",
    )
