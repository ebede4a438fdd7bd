"""Workloads: fused subgraphs that can be rebuilt from their key alone.

A workload is a small program: arguments with types and roles, and steps (operator, attributes,
which values it reads). Value ids count arguments first, then the steps' results. The last step's
result is the workload's result. The anchor is the step whose schedule decides the kernel (a
convolution, a dense layer, a softmax …); a workload without one is elementwise or data movement.
The bare operator is the same thing with a single step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from tilewright.core.codec import canonical_json, digest
from tilewright.core.element_types import element_type
from tilewright.graph.network import Applied, AttributeValue, TensorType
from tilewright.graph.operators import OPERATORS

Role = Literal["data", "constant"]
_NO_ANCHOR = "elementwise"


def is_anchor_name(text: str) -> bool:
    """Whether workloads can have an anchor of this name."""
    return text in OPERATORS or text == _NO_ANCHOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A tensor a workload reads. Constants are known ahead, so kernels may have them repacked."""

    type: TensorType
    role: Role = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Applied):
    """One operator application inside a workload; `inputs` are value ids."""

    inputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A fused subgraph with static shapes: `arguments`, and `steps` that read them and each other.

    Value ids count the arguments first, then the steps' results; the last one is the workload's.
    """

    arguments: tuple[Argument, ...]
    steps: tuple[Step, ...]

    @cached_property
    def types(self) -> tuple[TensorType, ...]:
        """The type of every value, arguments first."""
        values = [argument.type for argument in self.arguments]
        for step in self.steps:
            kinds = tuple(values[i] for i in step.inputs)
            values.append(OPERATORS[step.operator].infer(kinds, step.named))
        return tuple(values)

    def is_constant(self, value: int) -> bool:
        """Whether a value is an argument that is known when the network is compiled."""
        return value < len(self.arguments) and self.arguments[value].role == "constant"

    @property
    def result(self) -> TensorType:
        """Type of the result."""
        return self.types[-1]

    @cached_property
    def anchor_index(self) -> int | None:
        """Index of the anchor among `steps`, None without one."""
        anchors = (i for i, step in enumerate(self.steps) if OPERATORS[step.operator].anchor)
        return next(anchors, None)

    @cached_property
    def anchor(self) -> Step | None:
        """The anchor step, None without one."""
        return None if self.anchor_index is None else self.steps[self.anchor_index]

    @property
    def anchor_name(self) -> str:
        """The anchor's operator, `elementwise` or the movement's operator without an anchor."""
        if self.anchor is not None:
            return self.anchor.operator
        kinds = (s.operator for s in self.steps if not OPERATORS[s.operator].elementwise)
        return next(kinds, _NO_ANCHOR)

    @property
    def element_type(self) -> str:
        """The element type of what the anchor computes with: its first operand's, without an anchor
        the first argument's."""
        return self.types[0 if self.anchor is None else self.anchor.inputs[0]].dtype

    @cached_property
    def computed_in(self) -> str:
        """The element type that kernels compute in: of the anchor's first operand, without an
        anchor of the result."""
        kind = self.result if self.anchor is None else self.types[self.anchor.inputs[0]]
        return element_type(kind.dtype).computed_in

    def step_types(self, index: int) -> tuple[tuple[TensorType, ...], TensorType]:
        """Input types and result type of step `index`."""
        inputs = tuple([self.types[value] for value in self.steps[index].inputs])
        return inputs, self.types[len(self.arguments) + index]

    @cached_property
    def text(self) -> str:
        """Canonical JSON: everything needed to rebuild the workload."""
        return canonical_json(
            {
                "arguments": [[a.type.dtype, list(a.type.shape), a.role] for a in self.arguments],
                "steps": [[s.operator, list(s.inputs), s.named] for s in self.steps],
            }
        )

    @cached_property
    def key(self) -> str:
        """Short stable identity: anchor name and a hash of `text`."""
        return f"{self.anchor_name}-{digest(self.text)}"

    @staticmethod
    def may_be_key(text: str) -> bool:
        """Whether a text has the form of a key: an anchor's name that is known, and a hash.

        `dense-51d92c1c40a0ed73`
        """
        anchor, _, rest = text.rpartition("-")
        return is_anchor_name(anchor) and re.fullmatch("[0-9a-f]{16}", rest) is not None

    @cached_property
    def flop(self) -> int:
        """Floating-point operations; a multiply-add counts two."""
        return sum(
            OPERATORS[step.operator].flop(*self.step_types(index), step.named)
            for index, step in enumerate(self.steps)
        )

    @cached_property
    def bytes(self) -> int:
        """Bytes of all arguments and the result, each moved once."""
        return sum(a.type.bytes for a in self.arguments) + self.result.bytes

    @cached_property
    def constant_bytes(self) -> int:
        """Bytes of the arguments that are known when the network is compiled."""
        return sum([a.type.bytes for a in self.arguments if a.role == "constant"])

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.text == other.text


def _revive(value: Any) -> AttributeValue:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]


def parse_workload(text: str) -> Workload:
    """Rebuild a workload from `Workload.text`."""
    data: Mapping[str, Any] = json.loads(text)
    return Workload(
        arguments=tuple(
            Argument(type=TensorType(tuple(shape), dtype), role=role)
            for dtype, shape, role in data["arguments"]
        ),
        steps=tuple(
            Step(
                operator=operator,
                inputs=tuple(inputs),
                attributes=tuple(sorted((k, _revive(v)) for k, v in named.items())),
            )
            for operator, inputs, named in data["steps"]
        ),
    )
