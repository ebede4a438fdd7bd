"""Small drawings as inline SVG; colours come from the page's style sheet by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from tilewright.report.escape import visible
from tilewright.report.shown import number

_KINDS = frozenset({"compute", "memory", "overhead", "roof", "other"})


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

    def decades(self) -> list[float]:
        """The powers of ten on the axis; of short axes also 2 and 5 times them."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1, 2, 5) if last - first <= 2 else (1,)
        ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [tick for tick in ticks if self.low <= tick <= self.high]


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

    def grid(self, x_axis: Axis, y_axis: Axis, *, x_label: str, y_label: str) -> None:
        """Lines at the ticks of both axes, with numbers and labels."""
        for tick in x_axis.decades():
            x = x_axis.at(tick)
            self._gridline((x, y_axis.start), (x, y_axis.end))
            self.text(x, y_axis.start + 16, number(tick, 1), anchor="middle")
        for tick in y_axis.decades():
            y = y_axis.at(tick)
            self._gridline((x_axis.start, y), (x_axis.end, y))
            self.text(x_axis.start - 6, y + 4, number(tick, 1), anchor="end")
        self.text((x_axis.start + x_axis.end) / 2, y_axis.start + 36, x_label, anchor="middle")
        self.text(4, y_axis.end - 6, y_label)

    def _gridline(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        self._parts.append(
            f'<line class="grid" x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" '
            f'x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'
        )

    def svg(self) -> str:
        """The element, scaling with the page."""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" '
            f"aria-label={quoteattr(visible(self.label))}>" + "".join(self._parts) + "</svg>"
        )


def _kind(kind: str) -> str:
    return kind if kind in _KINDS else "other"


def _title(text: str) -> str:
    return f"<title>{escape(visible(text))}</title>"
