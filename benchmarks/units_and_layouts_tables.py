"""The tables of docs/reference/units-and-layouts.md, made from what `units_and_layouts.py` kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from convolution_sides import (
    BEST,
    DRAWN,
    FEW_CHANNELS,
    NETWORKS,
    SIDES,
    UNITS,
    Layer,
    fitting_tiles,
    layers,
    tile_loss,
)
from kept import Item
from pages import replace_between, table

PAGE = Path(__file__).parents[1] / "docs/reference/units-and-layouts.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
BASE, *OTHERS = (side.name for side in SIDES)
APART = 0.97
"""What takes at most so much of the time, its quartiles apart, is faster."""

Rows = Sequence[Item]


def write_tables(found: Mapping[str, Item]) -> None:
    """Replace what is between the page's marks."""
    replace_between(PAGE, (BEGIN, END), rendered(list(found.values()), layers()))


def rendered(rows: Rows, found: Sequence[Layer] = ()) -> str:
    """All sections that have results; register tiles are those of the layers that are `found`."""
    compared, sampled, again = (
        [row for row in rows if row["of"] == of] for of in ("comparison", "sample", "again")
    )
    compared = [row for row in compared if BASE in row["sides"]]
    parts = [
        f"{len(compared)} convolutions; {BEST + DRAWN} candidates of each side for each of them."
    ]
    sections: list[tuple[str, Sequence[Any], Callable[[Any], str]]] = [
        ("All convolutions", compared, _means),
        ("Whole networks", compared, _networks),
        ("Where AVX2 is faster", compared, partial(_faster, side="AVX2 NCHWc")),
        ("Where a layout is faster, looked at again", again, _again),
        ("How many settings there are", compared, _spaces),
        ("How good the register tiles in the spaces are", found, _tiles),
        ("What more candidates give", sampled, _samples),
        ("Every convolution", compared, _every),
    ]
    parts += [f"## {title}\n\n{made(these)}" for title, these, made in sections if these]
    return "\n\n".join(parts)


def suits_blocks(row: Item) -> bool:
    """Whether the results' channels fill registers of eight numbers."""
    return row["conv"]["out"][0] % 8 == 0


def kind(row: Item) -> str:
    """The group that a convolution is counted in."""
    conv = row["conv"]
    (high, wide), stride = conv["kernel"], conv["strides"][0]
    if not suits_blocks(row):
        return "results of channels that 8 does not divide"
    if conv["in"][0] <= FEW_CHANNELS:
        return "data of three channels"
    if high != wide:
        return "one axis (1×7, 7×1, 1×3, 3×1)"
    return f"{high}×{wide}{f', stride {stride}' if stride > 1 else ''}"


def ratio(row: Item, side: str, base: str = BASE) -> float:
    """The time of a side by that of the base."""
    return row["sides"][side]["us"] / row["sides"][base]["us"]


def faster(row: Item, side: str, base: str = BASE) -> bool:
    """Whether a side is faster than the base by more than the samples differ."""
    ours, theirs = row["sides"][side], row["sides"][base]
    return ours["us"] <= APART * theirs["us"] and ours["high"] < theirs["low"]


def _means(rows: Rows) -> str:
    groups = {
        name: [row for row in rows if kind(row) == name] for name in sorted({*map(kind, rows)})
    }
    suited = [row for row in rows if suits_blocks(row)]
    sums = {"**all but those that 8 does not divide**": suited, "**all**": rows}
    cells = [
        [name, str(len(each)), *(_mean(each, side) for side in OTHERS)]
        for name, each in {**groups, **sums}.items()
    ]
    counts = [
        f"{side} is faster than {BASE} {_count(suited, side, faster)} times and slower "
        f"{_count(suited, side, lambda row, s: faster(row, BASE, s))} times"
        for side in OTHERS
    ]
    told = f"Of the {len(suited)} whose channels 8 divides: {'; '.join(counts)}."
    return f"{table(['kernel', 'convolutions', *OTHERS], cells)}\n\n{told}"


def _count(rows: Rows, side: str, test: Callable[[Item, str], bool]) -> int:
    return sum(test(row, side) for row in rows if side in row["sides"])


def _mean(rows: Rows, side: str) -> str:
    found = [ratio(row, side) for row in rows if side in row["sides"]]
    if not found:
        return "–"
    return f"{geometric_mean(found):.3f} ({min(found):.2f} to {max(found):.2f})"


def _networks(rows: Rows) -> str:
    cells: list[list[str]] = []
    for network in NETWORKS:
        whole = [row for row in rows if len(row["sides"]) == len(SIDES) and suits_blocks(row)]
        mine = [row for row in whole if network in row["calls"]]
        sums = {
            side.name: sum(row["calls"][network] * row["sides"][side.name]["us"] for row in mine)
            for side in SIDES
        }
        ratios = [f"{sums[side] / sums[BASE]:.3f}" for side in OTHERS] if mine else []
        if mine:
            cells.append([network, str(len(mine)), f"{sums[BASE] / 1e3:.1f}", *ratios])
    return table(["network", "convolutions", f"{BASE}, ms", *OTHERS], cells)


def _faster(rows: Rows, side: str) -> str:
    found = sorted(
        (row for row in rows if side in row["sides"] and faster(row, side)),
        key=lambda r: ratio(r, side),
    )
    cells = [
        [
            *_shown(row),
            *(_kernel(row["sides"][s], s.split()[0]) for s in (BASE, side)),
            f"{ratio(row, side):.2f}",
        ]
        for row in found
    ]
    return table([*_SHOWN, BASE, side, "ratio"], cells)


def _again(rows: Rows) -> str:
    cells: list[list[str]] = []
    for row in sorted(rows, key=lambda r: ratio(r, r["layout"], "NCHWc")):
        layout = row["layout"]
        turned_us = sum(row["sides"][name]["us"] for name in ("in", "out"))
        whole = (row["sides"][layout]["us"] + turned_us) / row["sides"]["NCHWc"]["us"]
        cells.append(
            [
                *_shown(row),
                layout,
                _kernel(row["sides"]["NCHWc"], "AVX-512"),
                _kernel(row["sides"][layout], "AVX-512"),
                f"{ratio(row, layout, 'NCHWc'):.2f}",
                "yes" if faster(row, layout, "NCHWc") else "no",
                f"{whole:.2f}",
            ]
        )
    head = [*_SHOWN, "layout", "NCHWc", "layout's kernel", "ratio", "faster", "with conversions"]
    return table(head, cells)


def _spaces(rows: Rows) -> str:
    cells: list[list[str]] = []
    for side in SIDES:
        sizes = [row["settings"][side.name] for row in rows]
        places = [row["sides"][side.name]["place"] for row in rows if side.name in row["sides"]]
        late = sum(place >= BEST for place in places) / max(1, len(places))
        cells.append(
            [side.name, str(min(sizes)), f"{median(sizes):.0f}", str(max(sizes)), f"{late:.0%}"]
        )
    return table(["side", "fewest settings", "median", "most", "best one was drawn"], cells)


def _tiles(found: Sequence[Layer]) -> str:
    cells: list[list[str]] = []
    for unit in UNITS:
        tiles = sorted(fitting_tiles(unit), key=lambda tile: float(tile.slowdown))
        best = ", ".join(f"{tile.rows}×{tile.vectors}" for tile in tiles[:4])
        losses = sorted(tile_loss(layer.workload, unit) - 1 for layer in found)
        finite = [loss for loss in losses if loss < inf]
        shown = (median(finite), finite[int(0.9 * len(finite))])
        cells.append([unit, str(len(tiles)), best, *(f"{loss:.1%}" for loss in shown)])
    head = ["unit", "tiles that fit", "best of them", "loss: median", "90 %"]
    return table(head, cells)


def _samples(rows: Rows) -> str:
    cells: list[list[str]] = []
    for row in sorted(rows, key=lambda r: (r["unit"], r["conv"]["kernel"], r["conv"]["flop"])):
        sides = row["sides"]
        ratios = [
            f"{ratio(row, n, 'usual'):.3f}" if n in sides else "–" for n in ("drawn", "outside")
        ]
        cells.append([row["unit"], *_shown(row), _kernel(sides["usual"], row["unit"]), *ratios])
    for unit in UNITS:
        mine = [row for row in rows if row["unit"] == unit and suits_blocks(row)]
        direct = [r for r in mine if r["sides"]["usual"]["implementation"] == "conv2d_direct"]
        means = [
            geometric_mean([ratio(row, name, "usual") for row in these if name in row["sides"]])
            for name, these in (("drawn", mine), ("outside", direct))
            if these
        ]
        if means:
            cells.append(
                [f"**{unit}**", "geometric mean", "", "", "", *(f"{m:.3f}" for m in means)]
            )
    return table(["unit", *_SHOWN, "usual", "drawn", "from outside"], cells)


def _every(rows: Rows) -> str:
    cells = [
        [
            *_shown(row),
            _kernel(row["sides"][BASE], "AVX-512"),
            f"{row['conv']['flop'] / row['sides'][BASE]['us'] / 1e3:.0f}",
            *(f"{ratio(row, side):.2f}" if side in row["sides"] else "–" for side in OTHERS),
        ]
        for row in rows
    ]
    return table([*_SHOWN, BASE, "GFLOP/s", *OTHERS], cells)


_SHOWN = ("first seen in", "input → output", "kernel")
_LANES = {side.unit: 8 if side.unit == "AVX2" else 16 for side in SIDES}
_SHORT = {"conv2d_direct": "direct", "batch_matmul_tiled": "product"}


def _shown(row: Item) -> list[str]:
    conv = row["conv"]
    sizes = " → ".join("×".join(map(str, conv[name])) for name in ("in", "out"))
    stride = "" if conv["strides"] == [1, 1] else f"/{conv['strides'][0]}"
    return [row["name"], sizes, "×".join(map(str, conv["kernel"])) + stride]


def _kernel(side: Mapping[str, Any], unit: str) -> str:
    """The time, what was computed, and the rows and vectors of its register tile."""
    name, settings = side["implementation"], side["settings"]
    short = _SHORT.get(name, name.removeprefix("conv2d_"))
    rows = settings.get("tile_rows") or settings["tile_width"] * settings["tile_height"]
    columns = settings.get("block") or settings["tile_out"] * settings["lanes"]
    return f"{side['us']:.0f} µs ({short} {rows}×{-(-columns // _LANES[unit])})"
