"""What `plan` answers, as tables."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.handoffs import Handoff
from tilewright.core.links import DeviceLink
from tilewright.core.schedules import MEASURE, MEASURES, MergingGain, ScheduleResult
from tilewright.report import shown
from tilewright.report.tables import Column, Heading, Table, facts_table

_GAINED = 1.02
"""Less than this many times as good is nothing to speak of."""


def _cores(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _marked(marks: Mapping[str, str | None]) -> str:
    return ", ".join(marks[name] or shown.MISSING for name in ("energy", "memory", "bandwidth"))


def _watts(power_w: float | None) -> str:
    return shown.number(power_w, suffix=" W")


_TIMES = (
    Column(field="begin_s", label="begin", show=shown.seconds, number=True),
    Column(field="end_s", label="end", show=shown.seconds, number=True),
)
SLOTS = Heading(
    title="Schedule",
    columns=(
        Column(field="call", label="call"),
        Column(field="network", label="network"),
        Column(field="device", label="device"),
        Column(field="cores", label="cores", show=_cores),
        *_TIMES,
        Column(field="kernel", label="kernel"),
        Column(field="source", label="time is"),
        Column(field="marks", label="energy, memory, traffic are", show=_marked),
    ),
)
TRANSFERS = Heading(
    title="Transfers",
    columns=(
        Column(field="call", label="result of"),
        Column(field="origin", label="from"),
        Column(field="destination", label="to"),
        *_TIMES,
        Column(field="link_is", label="link is"),
    ),
)
FRONT = Heading(
    title="Best in something",
    columns=(
        Column(field="planner", label="planner"),
        Column(field="devices", label="devices", show=", ".join),
        Column(field="cores", label="cores", number=True),
        Column(field="latency_s", label="latency", show=shown.seconds, number=True),
        Column(field="energy_j", label="energy", show=shown.joules, number=True),
        Column(field="price", label="price", show=shown.number, number=True),
        Column(field="memory_bytes", label="memory", show=shown.size, number=True),
        Column(field="chosen", label="chosen"),
    ),
)
DEVICES = Heading(
    title="Devices",
    columns=(
        Column(field="name", label="device"),
        Column(field="kind", label="kind"),
        Column(field="cores", label="cores", number=True),
        Column(field="busy", label="busy", show=shown.percent, number=True),
        Column(field="peak_memory_bytes", label="peak memory", show=shown.size, number=True),
        Column(field="memory_bytes", label="of", show=shown.size, number=True),
        Column(field="peak_power_w", label="peak power", show=_watts, number=True),
        Column(field="power_w", label="of", show=_watts, number=True),
    ),
)


def valued(result: ScheduleResult, value: float | None) -> str:
    """What a schedule's objective is in words, in its unit."""
    if result.objective == "energy":
        return shown.joules(value)
    return shown.number(value) if result.objective == "price" else shown.seconds(value)


def summary(result: ScheduleResult) -> Table:
    """The schedule in a few lines."""
    return facts_table(
        result.name,
        (
            ("planner", result.planner, f"{result.planner}: {result.note}".rstrip(": ")),
            ("objective", result.value, f"{valued(result, result.value)} of {result.objective}"),
            ("lower bound", result.bound, valued(result, result.bound)),
            ("gap", result.gap, shown.percent(result.gap)),
            ("one by one", result.sequential, valued(result, result.sequential)),
            ("latency", result.latency_s, shown.seconds(result.latency_s)),
            ("period", result.period_s, shown.seconds(result.period_s)),
            ("energy", result.energy_j, shown.joules(result.energy_j)),
            ("price", result.price, shown.number(result.price)),
            ("planning", result.solve_s, shown.seconds(result.solve_s)),
            *_handing(result.handoff),
            *map(_linked, result.links),
            *_precision(result),
            *_merged(result.merging),
        ),
    )


def _precision(result: ScheduleResult) -> list[tuple[str, str, str]]:
    """In which precision it was planned, of networks that differ in that each; nothing where a
    problem was written by hand."""
    beside = result.device_precisions
    each = {
        name: ", ".join(
            [own, *(f"{of} on {device}" for device, of in beside.get(name, {}).items())]
        )
        for name, own in result.precisions.items()
    }
    told = ("; " if beside else ", ").join(f"{name}: {of}" for name, of in each.items())
    told = next(iter(each.values())) if len({*each.values()}) == 1 else told
    return [("precision", told, told)] if told else []


def _merged(promise: MergingGain | None) -> list[tuple[str, float, str]]:
    """What merging calls promises, and whether that is sure; nothing where nobody knows it."""
    if promise is None:
        return []
    ends = f"{promise.gain_low:.2f}× to {promise.gain_high:.2f}×"
    told = promise.doubt or f"merging promises {promise.gain:.2f}×"
    told += "" if ends in told else f"; by the intervals of its times {ends}"
    return [("merging", promise.gain, f"{'sure' if promise.sure else 'not sure'}: {told}")]


def _handing(handoff: Handoff | None) -> list[tuple[str, float, str]]:
    """What a hand-off takes, and where that is from; nothing where a problem says it itself."""
    if handoff is None:
        return []
    where = "assumed; profile --beside measures it"
    if handoff.day:
        ends = f"{shown.seconds(handoff.low_s)} to {shown.seconds(handoff.high_s)}"
        where = f"measured on this kind of machine on {handoff.day}, half of them {ends}"
    told = f"{shown.seconds(handoff.seconds)} between {handoff.kind} ({where})"
    return [("hand-off", handoff.seconds, told)]


def _linked(link: DeviceLink) -> tuple[str, str, str]:
    """How fast the link of a device is, and where that is from."""
    told = [
        f"{shown.seconds(way.latency_s)}, {shown.speed(way.bytes_per_s)}"
        for way in (link.there, link.back)
    ]
    ways = told[0] if link.there == link.back else f"{told[0]} there, {told[1]} back"
    where = f"measured from this machine on {link.day}" if link.day else f"as {link.of} says"
    known = f"at least, by {link.of}" if link.link_is == "bound" else where
    return f"link {link.device}", link.device, f"{ways} ({known})"


def gained(result: ScheduleResult) -> str:
    """Whether there was anything to gain, and how much of it the schedule has."""
    shape = (
        f"Calls that could run at a time: {result.width} at most, "
        f"{shown.number(result.work_over_span)} in the mean (work ÷ span)."
    )
    most = result.most_gain
    if result.sequential is None or most is None:
        return shape
    if most <= _GAINED:
        return f"There is nothing to gain over one call after the other. {shape}"
    now = shown.ratio(result.sequential / result.value)
    beside = result.gain_beside
    left = "" if beside is None else f" Beside each other calls are slower: {beside:.2f}× is left."
    return (
        f"One call after the other takes {now} what this schedule takes of {result.objective}; "
        f"no schedule gains more than {shown.ratio(most)}.{left}{_surely(result)} {shape}"
    )


def _surely(result: ScheduleResult) -> str:
    """How sure a gain in latency is, where one is promised."""
    low, high = result.gain_low, result.gain_high
    gain = result.gain if result.objective == "latency" else None
    if low is None or high is None or gain is None or gain <= _GAINED:
        return ""
    told = f" By the intervals of its times that is {low:.2f}× to {high:.2f}×"
    told += ": it is not sure that anything is gained." if low <= _GAINED else "."
    one = result.handoff is not None and result.handoff.kind == "lanes"
    if one and any(slot.marks.get("latency") != "measured" for slot in result.slots):
        told += (
            " Predicted times have promised gains that no run showed "
            "(docs/benchmarks-cores.md#two-lanes-of-one-core): --time-calls times the calls of "
            "this network in their places, and run keeps the faster way."
        )
    return told


def compromises(result: ScheduleResult) -> str:
    """How many of the schedules that were considered are best in something; empty where none
    were."""
    if not result.front:
        return ""
    names = {"latency": MEASURES[0], **MEASURE}
    known = [
        name
        for name, field in names.items()
        if all(getattr(each, field) is not None for each in result.front)
    ]
    if result.front_of:
        known = ["latency", result.front_of]
    words = ", ".join(known[:-1]) + f" and {known[-1]}"
    if len(result.front) == 1:
        return (
            f"The plan is best in everything of the schedules that were considered, "
            f"{result.considered}: {words}."
        )
    return (
        f"Of {result.considered} schedules that were considered {len(result.front)} are listed: "
        f"the plan, and those that no other beats in {words} alike. Calls that run beside each "
        "other are counted as slower."
    )
