"""The schedules that are best in something: latency against energy, price and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.core.schedules import Alternative, ScheduleResult
from tilewright.plan.scheduling.pareto import undominated
from tilewright.report import shown
from tilewright.report.vega import Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """What a chart has upwards: a field of alternatives, its name, its unit, how ticks are written
    (as d3-format has it), and how a person is told a value."""

    field: str
    name: str
    unit: str
    pattern: str
    show: Callable[[float | None], str]


_AXES = (
    _Axis(field="energy_j", name="Energy", unit="J", pattern="~s", show=shown.joules),
    _Axis(field="price", name="Price", unit="", pattern="~g", show=shown.number),
    _Axis(field="memory_bytes", name="Memory", unit="B", pattern="~s", show=shown.size),
)


def charts(result: ScheduleResult) -> Sequence[tuple[str, Chart]]:
    """A chart for each thing that alternatives take more or less of; none where the plan is alone
    on the front."""
    found: list[tuple[str, Chart]] = []
    for axis in _AXES:
        known = [each for each in result.front if getattr(each, axis.field) is not None]
        if len({getattr(each, axis.field) for each in known}) > 1:
            found.append((f"{axis.name} against latency", _chart(axis, known)))
    return found


def _chart(axis: _Axis, alternatives: Sequence[Alternative]) -> Chart:
    """All of them, and a line through those that none beats in these two."""
    front = undominated(alternatives, lambda each: (each.latency_s, getattr(each, axis.field)))
    return Chart(
        name="front",
        label=f"{axis.name} against latency",
        rows={
            "line": [_point(axis, each) for each in front],
            "points": [_point(axis, each) for each in alternatives],
        },
        parameters={"unit": axis.unit, "pattern": axis.pattern},
    )


def _point(axis: _Axis, each: Alternative) -> dict[str, object]:
    return {
        "latency_s": each.latency_s,
        "value": getattr(each, axis.field),
        "latency": shown.seconds(each.latency_s),
        "told": axis.show(getattr(each, axis.field)),
        "made": f"{each.planner}, {', '.join(each.devices)}, cores: {each.cores}",
        "colour": "var(--best)" if each.chosen else "var(--s0)",
        "size": 140 if each.chosen else 60,
        "label": "chosen" if each.chosen else "",
    }
