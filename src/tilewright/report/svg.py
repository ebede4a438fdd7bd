"""Small drawings as inline SVG; colours come from the page's style sheet by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from xml.sax.saxutils import escape, quoteattr

from tilewright.report.escape import visible
from tilewright.report.shown import number

SERIES = tuple(f"series{number}" for number in range(8))
_KINDS = frozenset(
    {"compute", "memory", "overhead", "roof", "other"}
    | {"best", "trial", "failed", "faded", "base", "axis", *SERIES}
)


class Scale(Protocol):
    """Where values lie between two pixels, and which of them are labelled."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...

    def at(self, value: float) -> float: ...

    def ticks(self) -> list[tuple[float, str]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis from `low` to `high`, drawn from pixel `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value; values outside stay at the edge."""
        inside = min(max(value, self.low), self.high)
        part = math.log(inside / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """The powers of ten on the axis; of short axes also multiples of them."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        short = last - first <= 2 or self.high / self.low <= 30
        steps = (1, 2, 5) if short else (1,)
        if self.high / self.low <= 10:
            steps = (1, 2, 3, 5, 7)
        ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [(tick, number(tick, 1)) for tick in ticks if self.low <= tick <= self.high]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAxis:
    """A linear axis from `low` to `high` with about `wanted` ticks."""

    low: float
    high: float
    start: float
    end: float
    wanted: int = 5

    def at(self, value: float) -> float:
        """The pixel of a value; values outside stay at the edge."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Multiples of a round step: 1, 2 or 5 times a power of ten."""
        least = (self.high - self.low) / self.wanted
        power = 10.0 ** math.floor(math.log10(least))
        step = next(s * power for s in (1, 2, 5, 10) if s * power >= least * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(index * step, f"{index * step:.6g}") for index in range(first, last + 1)]


@dataclass(slots=True, kw_only=True)
class Drawing:
    """An SVG element that grows piece by piece; all text is escaped here."""

    width: int
    height: int
    label: str
    _parts: list[str] = field(default_factory=list[str], init=False)

    def line(self, corners: Sequence[tuple[float, float]], *, kind: str) -> None:
        """A polyline."""
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self._parts.append(f'<polyline class="{_kind(kind)}" points="{points}"/>')

    def path(
        self, lines: Sequence[Sequence[tuple[float, float]]], *, kind: str, title: str = ""
    ) -> None:
        """Several lines as one element, with one tooltip."""
        if not any(lines):
            return
        moves = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line) for line in lines)
        inside = _title(title) if title else ""
        self._parts.append(f'<path class="{_kind(kind)}" d="{moves}">{inside}</path>')

    def points(self, places: Sequence[tuple[float, float]], *, kind: str, title: str) -> None:
        """Many dots as one element, with one tooltip."""
        moves = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in places)
        self._parts.append(
            f'<path class="{_kind(kind)} dots" d="{moves}">{_title(title)}</path>' if moves else ""
        )

    def area(self, corners: Sequence[tuple[float, float]]) -> None:
        """A pale polygon behind everything else."""
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self._parts.append(f'<polygon class="band" points="{points}"/>')

    def dot(self, x: float, y: float, *, radius: float, kind: str, title: str) -> None:
        """A circle with a tooltip."""
        self._parts.append(
            f'<circle class="{_kind(kind)}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
            f"{_title(title)}</circle>"
        )

    def bar(self, corner: tuple[float, float], *, width: float, kind: str, title: str) -> None:
        """A horizontal bar, 14 pixels high, with a tooltip."""
        x, y = corner
        self._parts.append(
            f'<rect class="{_kind(kind)}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" '
            f'height="14" rx="2">{_title(title)}</rect>'
        )

    def text(self, x: float, y: float, content: str, *, anchor: str = "start") -> None:
        """A line of text."""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor={quoteattr(anchor)}>'
            f"{escape(visible(content))}</text>"
        )

    def mark(self, x: float, y: float, content: str) -> None:
        """A line of text that stays legible on top of lines."""
        self._parts.append(
            f'<text class="label" x="{x:.1f}" y="{y:.1f}">{escape(visible(content))}</text>'
        )

    def grid(self, x_axis: Scale, y_axis: Scale, *, x_label: str, y_label: str) -> None:
        """Lines at the ticks of both axes, with numbers and labels."""
        for tick, label in x_axis.ticks():
            x = x_axis.at(tick)
            self._gridline((x, y_axis.start), (x, y_axis.end))
            self.text(x, y_axis.start + 16, label, anchor="middle")
        for tick, label in y_axis.ticks():
            y = y_axis.at(tick)
            self._gridline((x_axis.start, y), (x_axis.end, y))
            self.text(x_axis.start - 6, y + 4, label, anchor="end")
        self.text((x_axis.start + x_axis.end) / 2, y_axis.start + 36, x_label, anchor="middle")
        self.text(4, y_axis.end - 6, y_label)

    def _gridline(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        self._parts.append(
            f'<line class="grid" x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" '
            f'x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'
        )

    def svg(self) -> str:
        """The element, scaling with the page."""
        return f"<svg {self._attributes()}>{''.join(self._parts)}</svg>"

    def file(self, style: str) -> str:
        """A file of its own, with its style sheet."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {self._attributes()}>'
            f"<style>{escape(style)}</style>{''.join(self._parts)}</svg>\n"
        )

    def _attributes(self) -> str:
        label = quoteattr(visible(self.label))
        return f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label={label}'


def _kind(kind: str) -> str:
    return kind if kind in _KINDS else "other"


def _title(text: str) -> str:
    return f"<title>{escape(visible(text))}</title>"
