"""`op:conv2d[n=1,c=64,...]`: a single operator as an ONNX model with seeded random weights, or
without most of them."""

from __future__ import annotations

import onnx

from tilewright.core.errors import UsageError, close_matches
from tilewright.models.bracketed import label, read_values, split_brackets
from tilewright.models.naming import quoted
from tilewright.models.operator_forms import FORMS, Parameters


def build_operator(
    text: str, *, seed: int = 0, sketched: bool = False
) -> tuple[str, onnx.ModelProto]:
    """A readable name and the model for the text after `op:`; `sketched` as in `Parameters`.

    Raises UsageError for unknown operators and parameters, missing ones, and impossible values.
    """
    name, inside = split_brackets("op", text)
    if name not in FORMS:
        raise UsageError(f"no single operator {quoted(name)}", hint=close_matches(name, FORMS))
    form = FORMS[name]
    given = read_values(f"op:{name}", inside, {*form.defaults, *form.refinements}, form.lists)
    missing = [key for key, value in form.defaults.items() if value is None and key not in given]
    if missing:
        raise UsageError(
            f"op:{name} needs {', '.join(missing)}", hint=f"For instance: op:{name}[{form.example}]"
        )
    values = {key: value for key, value in form.defaults.items() if value is not None} | given
    request = Parameters(operator=name, values=values, seed=seed, sketched=sketched)
    return label(name, given), form.build(request)


def with_default(text: str, parameter: str) -> str:
    """`op:conv2d[c=8]`, "pad" → `op:conv2d[c=8,pad=0]`: a parameter that has a default number and
    was left out is written out; any other text stays as it is."""
    name, inside = split_brackets("op", text.removeprefix("op:"))
    default = FORMS[name].defaults.get(parameter) if name in FORMS else None
    written = {part.partition("=")[0].strip() for part in inside.split(",")}
    if not isinstance(default, int) or parameter in written:
        return text
    parts = [*filter(None, [inside]), f"{parameter}={default}"]
    return f"op:{name}[{','.join(parts)}]"
