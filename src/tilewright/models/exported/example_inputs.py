"""The tensors a network is traced with: shapes from the request, else the example's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tilewright.core.errors import UsageError
from tilewright.models.naming import quoted, quoted_matches

Shapes = Mapping[str, Sequence[int]]


def tensors_of(torch: Any, shapes: Shapes, types: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor for each name: N(0,1) floats, integers 0, truths; float32 where no type is given."""
    kinds = {name: types.get(name, torch.float32) for name in shapes}
    return {
        name: torch.randn(tuple(shapes[name]), dtype=kind)
        if kind.is_floating_point
        else torch.full(tuple(shapes[name]), kind == torch.bool, dtype=kind)
        for name, kind in kinds.items()
    }


def inputs_of_module(
    torch: Any, forward: Any, example: Any, shapes: Shapes, batch: int | None
) -> dict[str, Any]:
    """The inputs of a user's module by the names of `forward`, in its order.

    `example` is a tensor, a sequence of them, a mapping by name, or None. `shapes` replaces its
    shapes; `batch` replaces the first axis of those that `shapes` does not name.

    Raises UsageError for names that `forward` does not have, for required ones that are left out,
    and for examples that are no tensors.
    """
    parameters = inspect.signature(forward).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = [p.name for p in parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    given = _example(torch, example, named)
    for name in (*given, *shapes):
        if name not in named and not open_ended:
            raise UsageError(
                f"the module has no input {quoted(name)}", hint=quoted_matches(name, named)
            )
    missing = [
        name
        for name in named
        if name not in given
        and name not in shapes
        and parameters[name].default is inspect.Parameter.empty
    ]
    if missing or not (given or shapes):
        example_of = "x=1,3,224,224" if not missing else f"{missing[0]}=1,3,224,224"
        raise UsageError(
            f"the shape of input {', '.join(map(quoted, missing or ['?']))} is not known",
            hint=f"Give it with --shape {example_of}; or let the function return the module and "
            "its example inputs, which also say the type where that is not float32.",
        )
    wanted = {name: list(tensor.shape) for name, tensor in given.items()}
    if batch is not None:
        wanted = {name: [batch, *shape[1:]] if shape else [] for name, shape in wanted.items()}
    wanted |= {name: list(shape) for name, shape in shapes.items()}
    kept = {name: t for name, t in given.items() if list(t.shape) == wanted[name]}
    types = {name: tensor.dtype for name, tensor in given.items()}
    made = {**tensors_of(torch, wanted, types), **kept}
    order = [*(name for name in named if name in made), *(n for n in made if n not in named)]
    return {name: made[name] for name in order}


def _example(torch: Any, example: Any, named: Sequence[str]) -> dict[str, Any]:
    """Example inputs by name."""
    if example is None:
        return {}
    if isinstance(example, Mapping):
        given = {str(name): value for name, value in cast("Mapping[Any, Any]", example).items()}
    else:
        several = isinstance(example, tuple | list)
        values = list(cast("Sequence[Any]", example)) if several else [example]
        if len(values) > len(named):
            raise UsageError(f"{len(values)} example inputs for a module with {len(named)} inputs")
        given = dict(zip(named, values, strict=False))
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            kind = type(value).__name__
            raise UsageError(f"the example of input {quoted(name)} is no tensor but a {kind}")
    return given
