"""`tilewright plan` and `tilewright simulate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from tilewright.cli.flags import (
    AnswerFlags,
    ForecastChoiceFlags,
    PredictedModelFlags,
    SharedFlags,
    TargetFlag,
)
from tilewright.cli.work import working
from tilewright.core.errors import UsageError
from tilewright.core.schedules import Second
from tilewright.core.units import parse_bytes, parse_duration
from tilewright.plan.scheduling.parts import Objective

if TYPE_CHECKING:
    from tilewright.plan.network_scheduling import Wanted

_Number = TypeVar("_Number")
_MEASURED = "measured"
"""What `--link` says of links that nobody says."""


def _said(help: str) -> Parameter:
    return Parameter(help=help, negative="", consume_multiple=False, show_default=False)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFlags:
    """On which devices what is to be least, within which limits, on what terms."""

    devices: Annotated[
        tuple[str, ...],
        _said(
            "Targets that calls may run on, instead of --target (repeat the flag). They need not "
            "be here; '8*cuda -model=H100' are eight."
        ),
    ] = ()
    table: Annotated[
        tuple[str, ...],
        _said(
            "NAME=FILE: a device of which a table (.json, .csv) is all that is known; repeat for "
            "several."
        ),
    ] = ()
    objective: Annotated[
        Objective,
        Parameter(
            help="What is to be least: latency, throughput (the time between two "
            "answers), energy, or price."
        ),
    ] = "latency"
    deadline: Annotated[str | None, Parameter(help="The latest end of everything: 20ms, 1.5s.")] = (
        None
    )
    max_energy: Annotated[float | None, Parameter(help="The most joules of an inference.")] = None
    idle_power: Annotated[
        tuple[str, ...], _said("DEVICE=WATTS that it draws when idle; repeat for several.")
    ] = ()
    max_power: Annotated[tuple[str, ...], _said("DEVICE=WATTS that it may draw.")] = ()
    max_memory: Annotated[tuple[str, ...], _said("DEVICE=SIZE that may be used: 8GB.")] = ()
    price: Annotated[tuple[str, ...], _said("DEVICE=MONEY for an hour of it.")] = ()
    link: Annotated[
        tuple[str, ...],
        _said(
            "DEVICE=TIME,SIZE: the way between it and this host takes so long, and each second "
            "so many bytes go over it: rpc:pi=0.3ms,100MB. 'measured': those of devices behind a "
            "tracker that are not said must be measured; without, a note says which could not be."
        ),
    ] = ()

    def wanted(self) -> Wanted:
        """The same as the planners want it. Raises UsageError for what is no number."""
        from tilewright.plan.network_scheduling import DeviceTerms, Wanted

        said = [each for each in self.link if each.strip() != _MEASURED]
        idle, most = _named("idle-power", self.idle_power), _named("max-power", self.max_power)
        memory = _named("max-memory", self.max_memory, parse_bytes)
        prices, links = _named("price", self.price), _named("link", said, _link)
        deadline_s = None if self.deadline is None else parse_duration(self.deadline.strip())
        if self.deadline is not None and not deadline_s:
            raise UsageError(f"--deadline {self.deadline!r} is no time.", hint="--deadline 20ms")
        return Wanted(
            objective=self.objective,
            deadline_s=deadline_s,
            energy_j=self.max_energy,
            terms={
                name: DeviceTerms(
                    idle_w=idle.get(name),
                    power_w=most.get(name),
                    memory_bytes=memory.get(name),
                    price_per_hour=prices.get(name),
                    link=links.get(name),
                )
                for name in dict.fromkeys((*idle, *most, *memory, *prices, *links))
            },
            measured_links=len(said) < len(self.link),
        )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerFlags:
    """Who plans, how long, and for which times."""

    planner: Annotated[
        str | None,
        Parameter(
            help="auto (the default), sequential, heft, threads, ios, stages, nash, chain_dp, "
            "cpsat, or another package's (see doctor)."
        ),
    ] = None
    seconds: Annotated[int, Parameter(help="The longest that a planner searches.")] = 10
    robust: Annotated[
        bool, Parameter(help="Plan with the upper ends of predicted intervals.", negative="")
    ] = False
    time_calls: Annotated[
        bool,
        Parameter(
            help="Compile the network, one on this CPU, and plan with what each call takes in its "
            "place, on each number of cores.",
            negative="",
        ),
    ] = False
    merge: Annotated[
        bool,
        Parameter(
            help="Calls that compute alike from one tensor may become one, where that gains.",
            negative="",
        ),
    ] = False
    front: Annotated[
        Second | None,
        Parameter(
            help="List what more latency buys: energy, price or memory, by up to eight more "
            "searches of so many seconds each."
        ),
    ] = None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _link(text: str) -> tuple[float, float] | None:
    seconds, _, size = text.partition(",")
    found = parse_duration(seconds.strip()), parse_bytes(size.strip())
    return (found[0], float(found[1])) if found[0] is not None and found[1] else None


def _named(
    flag: str,
    texts: Sequence[str],
    read: Callable[[str], _Number | None] = _number,
    form: str = "DEVICE=NUMBER",
    cut: Callable[[str, str], tuple[str, str, str]] = str.rpartition,
) -> dict[str, _Number]:
    """`NAME=VALUE`, where a name may contain `=`, too, unless it is cut elsewhere."""
    found: dict[str, _Number] = {}
    for text in texts:
        name, _, value = cut(text, "=")
        number = read(value)
        if not (name and value) or number is None:
            raise UsageError(f"--{flag} {text!r} is no {form}.")
        if name in found:
            raise UsageError(f"--{flag} names {name!r} twice.")
        found[name] = number
    return found


def plan(
    what: Annotated[
        tuple[str, ...],
        Parameter(
            help="MODEL, or a folder that optimize wrote; or several, which run at a time; or a "
            "scheduling problem (.json)."
        ),
    ],
    /,
    *,
    wanted: WantedFlags = WantedFlags(),
    search: PlannerFlags = PlannerFlags(),
    choice: ForecastChoiceFlags = ForecastChoiceFlags(),
    model_flags: PredictedModelFlags = PredictedModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Say what runs where, beside what: a schedule of the calls of networks on devices, from
    predicted times, or of a problem's; what it takes, and what there was to gain. Nothing is
    measured, but for --time-calls and links of devices behind a tracker that --link does not say.
    With --out the plan is kept, with a page and a trace."""
    if wanted.devices and model_flags.target != TargetFlag().target:
        raise UsageError("--devices goes without --target.", hint="Name that device, too.")
    with working(flags, model_flags) as work:
        found = work.session.plan(
            what,
            wanted.devices,
            planner=search.planner,
            seconds=search.seconds,
            robust=search.robust,
            front=search.front,
            time_calls=search.time_calls,
            merge=search.merge,
            wanted=wanted.wanted(),
            tables=_named("table", wanted.table, Path, "NAME=FILE", str.partition) or None,
            options=model_flags.options(flags.seed),
            settings=choice.settings,
            max_error=choice.max_error,
            out=flags.out,
        )
        work.tell("plan", found)


def simulate(
    plan: Annotated[Path, Parameter(help="A plan: the folder that plan wrote, or its file.")],
    /,
    *,
    times: Annotated[
        Path | None, Parameter(help="Seconds that calls really take, by name (.json).")
    ] = None,
    upper: Annotated[
        bool, Parameter(help="Calls take the upper ends of their intervals.", negative="")
    ] = False,
    slower: Annotated[tuple[str, ...], _said("DEVICE=FACTOR: its calls take so many times.")] = (),
    flags: AnswerFlags = AnswerFlags(),
) -> None:
    """Say what a plan takes where calls take other times; what runs where, in which order, stays
    as planned."""
    with working(flags) as work:
        found = work.session.simulate(
            plan,
            times_s=times,
            upper=upper,
            slower=_named("slower", slower),
            out=flags.out,
        )
        work.tell("simulate", found)
