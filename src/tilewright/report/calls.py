"""The calls of a network: as a graph with a box for each, and the memory in use at each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.core.accounts import CallReport
from tilewright.core.results import TaskReport
from tilewright.report import shown
from tilewright.report.layers import Layers, layers
from tilewright.report.vega import Chart, colour_of

_BOX, _WIRE, _GAP = 196, 4, 16
_HEIGHT, _BETWEEN, _EDGE = 58, 28, 12
"""Sizes in pixels: of boxes and edges side by side, of rows one below the other, of the margin."""

_STRIPE = 6
"""Pixels of the stripe at the left of a box, in the colour of the type of its result."""
_HUES = {"bfloat16": "s3", "float16": "s4", "int8": "s5", "uint8": "s5"}
_OTHERS = "faded"

_UNITS = ("B", "KiB", "MiB", "GiB")
_FAR, _HEADROOM = 4, 1.15
"""Weights are drawn where they are so many times the peak at most; room above all for labels."""
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
    hues = type_hues(calls)
    typed = {call.name: f"var(--{hues.get(call.dtype, _OTHERS)})" for call in calls}
    return Chart(
        name="network",
        label=f"The network as a graph of {len(calls)} calls",
        rows={
            "edges": [
                {**_edge(found, number), "typed": typed[found.edges[number][0][0]]}
                for number in range(len(found.edges))
            ],
            "calls": [
                {
                    **_corners(found, call.name),
                    **_told(call),
                    "typed": typed[call.name],
                    "stripe": _corners(found, call.name)["left"] + _STRIPE * bool(hues),
                    "colour": colour_of(bounds.get((call.task, call.layouts), "")),
                    "heat": (_time_s(call) or 0.0) / slowest_s,
                }
                for call in calls
            ],
        },
        width=round(found.width + 2 * _EDGE),
        height=rows * (_HEIGHT + _BETWEEN) - _BETWEEN + 2 * _EDGE,
    )


def type_hues(calls: Sequence[CallReport]) -> dict[str, str]:
    """The colour of each type that results are stored in, by its name in the style sheet; none
    where all have one colour."""
    hues = {call.dtype: _HUES.get(call.dtype, _OTHERS) for call in calls}
    return hues if len({*hues.values()}) > 1 else {}


def memory_chart(calls: Sequence[CallReport], weight_bytes: int) -> Chart | None:
    """The intermediate tensors that are alive at each call, the peak named, and the weights as a
    line where they are not far above; None where there are none."""
    most = max((call.alive_bytes for call in calls), default=0)
    if most == 0:
        return None
    power = min(len(_UNITS) - 1, (most.bit_length() - 1) // 10)
    heights = [call.alive_bytes / 1024**power for call in calls]
    alive = [
        {
            "call": number,
            "next": number + 1,
            "size": height,
            "name": call.name,
            "told": shown.size(call.alive_bytes),
            "peak": call.alive_bytes == most,
        }
        for number, (call, height) in enumerate(zip(calls, heights, strict=True))
    ]
    peak = next(row for row in alive if row["peak"])
    weights_height = weight_bytes / 1024**power
    weights = {
        "size": weights_height,
        "told": shown.size(weight_bytes),
        "label": f"weights {shown.size(weight_bytes)}",
    }
    drawn = 0 < weight_bytes <= _FAR * most
    return Chart(
        name="memory",
        label="Memory for intermediate tensors, call by call",
        rows={
            "alive": alive,
            "weights": [weights] if drawn else [],
            "peaks": [
                {
                    **peak,
                    "label": f"peak {peak['told']}: {_brief(str(peak['name']))}",
                    "right": alive.index(peak) > len(calls) / 2,
                }
            ],
        },
        parameters={
            "unit": _UNITS[power],
            "top": _HEADROOM * max([*heights, weights_height if drawn else 0.0]),
        },
    )


def _time_s(call: CallReport) -> float | None:
    return call.latency_s if call.in_place_s is None else call.in_place_s


def _top(layer: int) -> int:
    return _EDGE + layer * (_HEIGHT + _BETWEEN)


def _corners(found: Layers, name: str) -> dict[str, int]:
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
