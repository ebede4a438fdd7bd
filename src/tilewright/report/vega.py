"""Charts as data: a Vega-Lite specification of the folder `charts`, and the rows that it draws.

A page has the libraries and the charts' data in it, and draws them where it is opened. Colours are
variables of the page's style sheet, so the same chart is light and dark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any, cast

from markupsafe import Markup, escape

from tilewright.core.codec import digest
from tilewright.core.errors import OutputError
from tilewright.core.output_files import write_text
from tilewright.core.settings import read_settings
from tilewright.report.escape import visible

Rows = Sequence[Mapping[str, object]]

SERIES = tuple(f"s{number}" for number in range(8))
"""The style sheet's colours for groups, the most important group first."""

_BAR_PIXELS = 38
"""The height of a bar with its name above it."""

_BOUNDS = frozenset({"compute", "memory", "overhead"})

_BEYOND = 1e30
"""No time is as long; scales would overflow beyond."""


def usable(time_s: float | None) -> bool:
    """Whether a time can be drawn."""
    return time_s is not None and 1e-15 < time_s < _BEYOND


def colour_of(bound: str) -> str:
    """The colour of what bounds a task; grey for several tasks or none."""
    return f"var(--{bound if bound in _BOUNDS else 'other'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The specification `charts/NAME.vl.json` with its data sets; `label` says what is shown.

    `width` and `height` are in pixels, where the specification leaves them open; `parameters` are
    values that its expressions know by name.
    """

    name: str
    label: str
    rows: Mapping[str, Rows]
    width: int | None = None
    height: int | None = None
    parameters: Mapping[str, object] = field(default_factory=dict[str, object])

    def specification(self) -> dict[str, Any]:
        """What Vega-Lite draws; no text in it can steer anything."""
        given = [{"name": name, "value": value} for name, value in self.parameters.items()]
        found = json.loads(_text(f"{self.name}.vl.json"))
        if "layer" in found:
            found["layer"] = [layer for layer in found["layer"] if self._draws(layer)]
        sizes = {"width": self.width, "height": self.height}
        return {
            **found,
            **{name: size for name, size in sizes.items() if size},
            "config": json.loads(_text("config.json")),
            "description": visible(self.label),
            "params": given,
            "datasets": _plain(self.rows),
        }

    def _draws(self, layer: Mapping[str, Any]) -> bool:
        """Whether a layer has rows of its own, or those of all layers."""
        return "data" not in layer or bool(self.rows[layer["data"]["name"]])

    def __html__(self) -> str:
        """The chart's place in a page, with its data."""
        data = json.dumps(self.specification(), allow_nan=False, separators=(",", ":"))
        safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        return (
            f'<div class="chart {escape(self.name)}" role="img" '
            f'aria-label="{escape(visible(self.label))}">'
            f'<script type="application/json">{safe}</script></div>'
        )

    def svg(self, style: str, *, width: int) -> str:
        """A picture of its own, with its style sheet."""
        import vl_convert

        drawn = vl_convert.vegalite_to_svg({**self.specification(), "width": width})
        head, rest = drawn.split(">", 1)
        title = escape(visible(self.label))
        return f"{head}><title>{title}</title><style>{style}</style>{rest}\n"


def bars(label: str, rows: Rows) -> Chart | None:
    """Horizontal bars, one below the other; None where there are none."""
    height = _BAR_PIXELS * len(rows)
    return Chart(name="bars", label=label, rows={"bars": rows}, height=height) if rows else None


_GLOBALS = "window.vegaEmbed = vegaEmbed;"


@cache
def libraries() -> Markup:
    """Vega, Vega-Lite and their embedding as one script. Making it takes a second, so the cache
    keeps what a version made."""
    import vl_convert

    made = digest(version("vl-convert-python") + _GLOBALS)
    kept = read_settings().cache / "charts" / f"vega-{made}.js"
    with suppress(OSError, UnicodeDecodeError):
        return Markup(kept.read_text(encoding="utf-8"))
    script = vl_convert.javascript_bundle(_GLOBALS)
    with suppress(OutputError):
        write_text(kept, script)
    return Markup(script)


@cache
def _text(name: str) -> str:
    return files("tilewright.report").joinpath("charts", name).read_text(encoding="utf-8")


def _plain(value: Any) -> Any:
    """Rows as JSON has them: text made visible, numbers that are none left out."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in cast(Mapping[str, Any], value).items()}
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Sequence):
        return [_plain(each) for each in cast(Sequence[Any], value)]
    return value
