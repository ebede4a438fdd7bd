"""Where the boxes of a graph lie: in layers from the top, with few crossings and straight edges.

A node's layer is the longest path that leads to it. An edge that passes layers gets a point in
each, which keeps its room between the boxes there; edges of one node share these points. Row by
row, down and up again, nodes are put in the order of their neighbours' places and as near to these
as there is room: least squares under the order, by isotonic regression. Sugiyama, Tagawa and Toda,
Methods for Visual Understanding of Hierarchical System Structures, 1981.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

_SWEEPS, _SETTLED = 16, 8
"""Sweeps over the rows; so many of them look at the neighbours of one side only."""
_STRAIGHT = 8.0
"""How much more a point in the middle of an edge than a box insists on its place."""

Point = tuple[str, int]
"""A node in its own layer, or where an edge of it passes another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """`places` are the middles of all points, from 0 to `width`; `edges` lead from point to point
    one layer below."""

    nodes: Mapping[str, Point]
    places: Mapping[Point, float]
    edges: Sequence[tuple[Point, Point]]
    width: float


def layers(inputs: Mapping[str, Sequence[str]], *, box: float, wire: float, gap: float) -> Layers:
    """The places of nodes, each named before what reads it, with boxes, edges and gaps between them
    of these widths."""
    nodes: dict[str, Point] = {}
    for name, sources in inputs.items():
        nodes[name] = name, max((nodes[source][1] + 1 for source in sources), default=0)
    edges: dict[tuple[Point, Point], None] = {}
    for name, sources in inputs.items():
        for source in sources:
            passed = range(nodes[source][1], nodes[name][1])
            path = [*((source, layer) for layer in passed), nodes[name]]
            edges.update(dict.fromkeys(pairwise(path)))
    points = dict.fromkeys([*nodes.values(), *(end for edge in edges for end in edge)])
    rows = [
        [point for point in points if point[1] == layer]
        for layer in range(1 + max(layer for _, layer in points))
    ]
    widths = {point: box if nodes[point[0]] == point else wire for point in points}
    places = _placed(rows, list(edges), widths, gap)
    left = min(places[point] - widths[point] / 2 for point in points)
    right = max(places[point] + widths[point] / 2 for point in points)
    return Layers(
        nodes=nodes,
        places={point: place - left for point, place in places.items()},
        edges=list(edges),
        width=right - left,
    )


def _placed(
    rows: Sequence[Sequence[Point]],
    edges: Sequence[tuple[Point, Point]],
    widths: Mapping[Point, float],
    gap: float,
) -> dict[Point, float]:
    """The middles of all points after some sweeps over the rows."""
    from scipy.optimize import isotonic_regression

    above: dict[Point, list[Point]] = {point: [] for point in widths}
    below: dict[Point, list[Point]] = {point: [] for point in widths}
    for upper, lower in edges:
        above[lower].append(upper)
        below[upper].append(lower)
    places = {point: float(index) for row in rows for index, point in enumerate(row)}
    box = max(widths.values())
    either = {point: [*above[point], *below[point]] for point in widths}
    for sweep in range(_SWEEPS):
        beside = (below if sweep % 2 else above) if sweep < _SETTLED else either
        for row in reversed(rows) if sweep % 2 else rows:
            wanted = {p: fmean([places[o] for o in beside[p]] or [places[p]]) for p in row}
            ordered = sorted(row, key=lambda point: wanted[point])
            wide = np.array([widths[point] for point in ordered])
            needed = np.cumsum(wide + gap) - wide / 2
            inner = [all(widths[p] < box for p in (point, *beside[point])) for point in ordered]
            asked = np.array([wanted[point] for point in ordered]) - needed
            found: Any = isotonic_regression(asked, weights=np.where(inner, _STRAIGHT, 1.0))
            places.update(zip(ordered, (found.x + needed).tolist(), strict=True))
    return places
