"""`op:conv2d[n=1,c=64,...]`: a single operator as an ONNX model with seeded random weights."""

from __future__ import annotations

import re

import onnx

from tilewright.core.errors import UsageError, close_matches
from tilewright.models.naming import quoted
from tilewright.models.operator_forms import FORMS, Form, Parameters, Value

_SHAPE = re.compile(r"-?\d+(x-?\d+)*")


def build_operator(text: str, *, seed: int = 0) -> tuple[str, onnx.ModelProto]:
    """A readable name and the model for the text after `op:`.

    Raises UsageError for unknown operators and parameters, missing ones, and impossible values.
    """
    name, bracket, rest = text.partition("[")
    if bracket and not rest.endswith("]"):
        raise UsageError(f"{quoted('op:' + text)} does not end with ']'")
    if name not in FORMS:
        raise UsageError(f"no single operator {quoted(name)}", hint=close_matches(name, FORMS))
    form = FORMS[name]
    given = _given(name, form, rest.removesuffix("]"))
    missing = [key for key, value in form.defaults.items() if value is None and key not in given]
    if missing:
        raise UsageError(
            f"op:{name} needs {', '.join(missing)}", hint=f"For instance: op:{name}[{form.example}]"
        )
    values = {key: value for key, value in form.defaults.items() if value is not None} | given
    label = "-".join([name, *(f"{key}{_shown(value)}" for key, value in given.items())])
    return label, form.build(Parameters(operator=name, values=values, seed=seed))


def _given(name: str, form: Form, text: str) -> dict[str, Value]:
    known = {*form.defaults, *form.refinements}
    values: dict[str, Value] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (item.strip() for item in part.partition("="))
        if key not in known:
            raise UsageError(
                f"op:{name} has no parameter {quoted(key)}", hint=close_matches(key, known)
            )
        if not equals or not _SHAPE.fullmatch(value):
            raise UsageError(
                f"op:{name}: {quoted(part)} is no number or shape",
                hint="Write numbers as k=3 and shapes as shape=1x64x56x56.",
            )
        if key in values:
            raise UsageError(f"op:{name}: {key} is given twice")
        values[key] = _value(name, key, value, listed=key in form.lists)
    return values


def _value(name: str, key: str, text: str, *, listed: bool) -> Value:
    numbers = tuple(int(item) for item in text.split("x"))
    if listed:
        return numbers
    if len(numbers) != 1:
        raise UsageError(f"op:{name}: {key} is one number, not {quoted(text)}")
    return numbers[0]


def _shown(value: Value) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
