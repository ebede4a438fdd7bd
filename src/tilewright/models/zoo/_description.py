"""Networks as text: the files in `networks`, and what appends their nodes to a graph.

A file holds sections, `network NAME` or `block NAME PARAMETER...`, of indented rows; `#` begins a
comment. This is a residual block, and a network of three of them:

    block basic width
        conv1+bn1+relu: conv_norm {width} 3 padding=1
        conv2: conv {width} 3 padding=1
        add: Add < conv2 in

    network tiny
        input: input 3,32,32
        layer.[0..2]: basic 3
        logits: output

A row is `NAME: OPERATOR ARGUMENTS < OPERANDS > LABEL`, where only the operator must be there.

- The operator is a block, a method of the builder (`conv` is `GraphBuilder.conv`), or, with a
  capital, an operator of ONNX with attributes as arguments; a number is one more operand.
- Nodes get the name, those of a block get it as a prefix; `conv_norm` and `add_relu` are several
  nodes, with a plus between their names. Without a name they have the one that their operator
  gives by itself. `identity` is the block of no rows.
- Operands are earlier rows by name or label, looked for among the names with this block's prefix
  and then further out; `in`, the operands of the block; `last`, the result of the row before,
  which is also read where none are given. Of a row with several results all are read, or one,
  `split.0`.
- `NAME = OPERATOR ARGUMENTS` reads nothing, makes a parameter or a constant, and leaves `last`.
- Arguments are numbers (`0.25`, `1/24`, `1e-5`), products (`4*64`), tuples (`1,7`; `64,` of one)
  or words, by place or by name. A section's `{parameter}` stands for what its caller wrote there,
  the last one for all that is left. `{batch}` is known everywhere.
- `[0..2]` in a name repeats the row for each number, which `[]` stands for. Among operands it
  stands for all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any, cast

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling
from tilewright.models.zoo._quantized import QuantizedBuilder

_ROW = re.compile(
    r"(?:(?P<name>[\w.+]+)(?P<mark>:| =) )?(?P<operator>\w+) ?(?P<arguments>[^<>]*)"
    r"(?:< (?P<operands>[^>]*))?(?:> (?P<label>\w+))?"
)
_RANGE = re.compile(r"\[(\d+)\.\.(\d+)\]")
_WINDOWS = {
    "conv": Convolution,
    "conv_norm": Convolution,
    "depthwise": Pooling,
    "max_pool": Pooling,
    "average_pool": Pooling,
}


@dataclass(frozen=True, slots=True)
class Section:
    """A block or a network: names of its parameters, and its rows."""

    parameters: tuple[str, ...] = ()
    rows: list[str] = field(default_factory=list[str])


def parse_sections(text: str) -> dict[str, Section]:
    """The sections of a file by name."""
    sections: dict[str, Section] = {}
    section = Section()
    for line in text.splitlines():
        row = line.partition("#")[0].rstrip()
        if row.startswith(" "):
            section.rows.append(row.strip())
        elif row:
            _, name, *parameters = row.split()
            sections[name] = section = Section(tuple(parameters))
    return sections


@cache
def zoo_sections() -> Mapping[str, Section]:
    """Everything that the zoo's files describe, by name."""
    sections = {"identity": Section()}
    for file in resources.files("tilewright.models.zoo").joinpath("networks").iterdir():
        sections |= parse_sections(file.read_text(encoding="utf-8"))
    return sections


def append_network(
    graph: GraphBuilder, name: str, sections: Mapping[str, Section], *, quantized: bool = False
) -> None:
    """Appends the network `name` to a graph; `quantized` takes its operators on 8-bit codes."""
    writer = _Writer(graph, QuantizedBuilder(graph) if quantized else graph, sections)
    writer.section(name, "", [])


class _Writer:
    """Appends rows to a graph; `layers` has the operators. Each result is a list of values."""

    def __init__(
        self,
        graph: GraphBuilder,
        layers: GraphBuilder | QuantizedBuilder,
        sections: Mapping[str, Section],
    ) -> None:
        self._graph, self._layers, self._sections = graph, layers, sections
        self._results: dict[str, list[Any]] = {}

    def section(self, name: str, arguments: str, inputs: list[Any]) -> list[Any]:
        """The result of a section's last row; its inputs, if there are no rows."""
        section = self._sections[name]
        given = arguments.strip().split(maxsplit=max(len(section.parameters) - 1, 0))
        holes = {"batch": self._graph.batch} | dict(zip(section.parameters, given, strict=True))
        last = inputs
        for row in section.rows:
            begin, arrow, end = row.format_map(holes).partition("<")
            for repeated in _spread(begin):
                last = self._row(repeated + arrow + end, {"in": inputs, "last": last})
        return last

    def _row(self, row: str, near: dict[str, list[Any]]) -> list[Any]:
        """What a row leaves as `last`. `near` has what only the block it stands in sees."""
        match = _ROW.fullmatch(row)
        if match is None:
            raise ValueError(f"not a row of a network's description: {row}")
        name, mark, operator, arguments, operands, label = match.groups()
        inputs = [] if mark == " =" else near["last"]
        if operands:
            names = [name for word in operands.split() for name in _spread(word)]
            inputs = [value for name in names for value in self._found(name, near)]
        if operator in self._sections:
            with self._graph.scope(name):
                results = self.section(operator, arguments, inputs)
        else:
            results = self._applied(operator, arguments, inputs, name)
        known = name.rpartition("+")[-1] if name else operator
        for key in (known, label or known):
            self._results[self._graph.path(key)] = results
        return near["last"] if mark == " =" else results

    def _found(self, name: str, near: dict[str, list[Any]]) -> list[Any]:
        """All results under a name, or the one that a number behind it tells."""
        scopes = self._graph.scopes
        for depth in range(len(scopes), -1, -1):
            path = ".".join((*scopes[:depth], name))
            if path in self._results:
                return self._results[path]
        if name in near:
            return near[name]
        whole, dot, place = name.rpartition(".")
        if not dot:
            raise LookupError(f"nothing is called {name}")
        return [self._found(whole, near)[int(place)]]

    def _applied(self, operator: str, arguments: str, inputs: list[Any], name: str) -> list[Any]:
        """The results of one operator."""
        words = [word.rpartition("=") for word in arguments.split()]
        values: list[Any] = [_value(value) for key, _, value in words if not key]
        named = {key: _value(value) for key, _, value in words if key}
        if operator in _WINDOWS:
            values, named = [_WINDOWS[operator](*values, **named)], {}
        if name:
            named["name"] = name
        if operator[0].isupper():
            return [self._graph.node(operator, *inputs, *values, **named)]
        result = getattr(self._layers, operator)(*inputs, *values, **named)
        return cast("list[Any]", result) if isinstance(result, list) else [result]


def _spread(text: str) -> list[str]:
    """Text with a range of numbers in brackets, once for each of them."""
    match = _RANGE.search(text)
    if match is None:
        return [text]
    first, last = map(int, match.groups())
    numbers = map(str, range(first, last + 1))
    return [text.replace(match.group(), number).replace("[]", number) for number in numbers]


def _value(text: str) -> Any:
    if "," in text:
        return tuple(_value(part) for part in text.split(",") if part)
    if "*" in text:
        return math.prod(map(_value, text.split("*")))
    try:
        number = Fraction(text)
    except ValueError:
        return text
    return int(number) if number.denominator == 1 else float(number)
