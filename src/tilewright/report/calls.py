"""The calls of a network as a graph: a box each, with what it computes, how and in what time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.core.results import CallReport, TaskReport
from tilewright.report import shown
from tilewright.report.layers import Layers, layers
from tilewright.report.vega import Chart, colour_of

_BOX, _WIRE, _GAP = 196, 4, 16
_HEIGHT, _BETWEEN, _EDGE = 58, 28, 12
"""Sizes in pixels: of boxes and edges side by side, of rows one below the other, of the margin."""

_LONGEST, _KEPT = 27, 8
"""Characters of a name in a box, and how many of its beginning stay where it is longer."""


def chart(calls: Sequence[CallReport], tasks: Sequence[TaskReport]) -> Chart | None:
    """The graph from the inputs down to the outputs; None without calls."""
    if not calls:
        return None
    names = {call.name for call in calls}
    read = {call.name: [name for name in call.inputs if name in names] for call in calls}
    found = layers(read, box=_BOX, wire=_WIRE, gap=_GAP)
    bounds = {(task.key, task.layouts): task.bound for task in tasks}
    slowest_s = max((_time_s(call) or 0.0 for call in calls), default=0.0) or 1.0
    rows = 1 + max(layer for _, layer in found.places)
    return Chart(
        name="network",
        label=f"The network as a graph of {len(calls)} calls",
        rows={
            "edges": [_edge(found, number) for number in range(len(found.edges))],
            "calls": [
                {
                    **_corners(found, call.name),
                    **_told(call),
                    "colour": colour_of(bounds.get((call.task, call.layouts), "")),
                    "heat": (_time_s(call) or 0.0) / slowest_s,
                }
                for call in calls
            ],
        },
        width=round(found.width + 2 * _EDGE),
        height=rows * (_HEIGHT + _BETWEEN) - _BETWEEN + 2 * _EDGE,
    )


def _time_s(call: CallReport) -> float | None:
    return call.latency_s if call.in_place_s is None else call.in_place_s


def _top(layer: int) -> int:
    return _EDGE + layer * (_HEIGHT + _BETWEEN)


def _corners(found: Layers, name: str) -> dict[str, object]:
    point = found.nodes[name]
    left, top = round(_EDGE + found.places[point] - _BOX / 2), _top(point[1])
    return {"left": left, "right": left + _BOX, "top": top, "bottom": top + _HEIGHT}


def _edge(found: Layers, number: int) -> dict[str, object]:
    """From the bottom of one row to the top of the next, and through that where it goes on."""
    upper, lower = found.edges[number]
    begin, end = round(_EDGE + found.places[upper]), round(_EDGE + found.places[lower])
    top, bottom = _top(lower[1]) - _BETWEEN, _top(lower[1])
    middle = (top + bottom) // 2
    through = [] if found.nodes[lower[0]] == lower else [bottom + _HEIGHT]
    return {
        "edge": number,
        "x": [begin, begin, end, end, *(end for _ in through)],
        "y": [top, middle, middle, bottom, *through],
    }


def _brief(name: str) -> str:
    """A name that fits a box; of a long one the end tells most."""
    return name if len(name) <= _LONGEST else f"{name[:_KEPT]}…{name[_KEPT + 1 - _LONGEST :]}"


def _told(call: CallReport) -> Mapping[str, object]:
    """What a box and its tooltip say."""
    *read, made = call.layouts or ("",)
    layouts = " → ".join(dict.fromkeys([*read[:1], made]))
    kernel = call.kind == "kernel"
    return {
        "name": call.name,
        "brief": _brief(call.name),
        "operator": call.operator if kernel else call.kind,
        "kernel": kernel,
        "layout": f"{layouts} {call.dtype}",
        "implementation": call.implementation,
        "layouts": " → ".join(filter(None, (", ".join(read), made))),
        "result": f"{call.dtype}{list(call.shape)}",
        "time": shown.seconds(_time_s(call)),
        "alone": shown.seconds(call.latency_s),
        "alive": shown.size(call.alive_bytes),
    }
