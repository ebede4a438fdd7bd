"""Fixing the shapes of a model's inputs: `--batch`, `--shape`, and what stays unbound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.core.errors import ModelError, UsageError
from tilewright.models.loaded import ModelOptions
from tilewright.models.naming import quoted, quoted_matches

Axis = int | str | None
"""A size, the name of a dynamic axis, or None for a dynamic axis without a name."""


def drop_weight_inputs(model: onnx.ModelProto) -> bool:
    """Constants are no inputs, also in old files that list them; whether any were listed."""
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    return keep_inputs(model, names)


def keep_inputs(model: onnx.ModelProto, names: Sequence[str]) -> bool:
    """Leave only the named inputs; whether there were others."""
    kept = [value for value in model.graph.input if value.name in names]
    if len(kept) == len(model.graph.input):
        return False
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del model.graph.input[:]
    model.graph.input.extend(copies)
    model.ir_version = max(model.ir_version, 4)
    return True


def bind_inputs(model: onnx.ModelProto, options: ModelOptions) -> bool:
    """Write the asked-for shapes into the model; whether anything changed.

    Raises UsageError for unknown inputs and impossible sizes, ModelError when axes stay unbound.
    """
    axes = {value.name: _axes(value) for value in model.graph.input}
    _check_options(axes, options)
    before = dict(axes)
    wanted: dict[str, tuple[Axis, ...]] = {
        name: _override(name, shape, axes[name]) for name, shape in options.shapes.items()
    }
    symbols = _bound_symbols(axes, wanted)
    free = {name: shape for name, shape in axes.items() if name not in wanted}
    if options.batch is not None:
        wanted |= _with_batch(free, options.batch, symbols)
    bound: dict[str, tuple[Axis, ...] | None] = {}
    for name, shape in axes.items():
        chosen = wanted.get(name, shape)
        bound[name] = chosen and tuple(
            symbols.get(axis, axis) if isinstance(axis, str) else axis for axis in chosen
        )
    _check_bound(bound, batch_helps=options.batch is None)
    if bound == before:
        return False
    _refit_reshapes(model, before, bound)
    _write(model, bound)
    return True


def _axes(value: onnx.ValueInfoProto) -> tuple[Axis, ...] | None:
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"input {quoted(value.name)} is no tensor, which is not supported")
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        d.dim_value
        if d.HasField("dim_value") and d.dim_value > 0
        else (d.dim_param or None if d.HasField("dim_param") else None)
        for d in value.type.tensor_type.shape.dim
    )


def _check_options(axes: Mapping[str, tuple[Axis, ...] | None], options: ModelOptions) -> None:
    if options.batch is not None and options.batch < 1:
        raise UsageError(f"a batch of {options.batch} is not possible")
    for name, shape in options.shapes.items():
        if name not in axes:
            raise UsageError(
                f"the model has no input {quoted(name)}", hint=quoted_matches(name, axes)
            )
        if any(size < 1 for size in shape):
            raise UsageError(f"shape {list(shape)} of input {quoted(name)} is not possible")


def _override(
    name: str, shape: tuple[int, ...], known: tuple[Axis, ...] | None
) -> tuple[Axis, ...]:
    if known is not None and len(known) != len(shape):
        raise UsageError(
            f"input {quoted(name)} has {len(known)} axes {_listed(known)}, "
            f"shape {list(shape)} has {len(shape)}"
        )
    return shape


def _bound_symbols(
    axes: Mapping[str, tuple[Axis, ...] | None], wanted: Mapping[str, tuple[Axis, ...]]
) -> dict[Axis, Axis]:
    """Sizes of named axes that follow from the given shapes."""
    symbols: dict[Axis, Axis] = {}
    for name, shape in wanted.items():
        for axis, size in zip(axes[name] or (), shape, strict=False):
            if isinstance(axis, str) and symbols.setdefault(axis, size) != size:
                raise UsageError(
                    f"axis {quoted(axis)} would be both {symbols[axis]} and {size}",
                    hint="Give the same size to all inputs that share the axis.",
                )
    return symbols


def _with_batch(
    axes: Mapping[str, tuple[Axis, ...] | None], batch: int, symbols: dict[Axis, Axis]
) -> dict[str, tuple[Axis, ...]]:
    """Every input's first dynamic axis, or axis 0 of all inputs that agree on it, becomes batch."""
    known = {name: shape for name, shape in axes.items() if shape}
    dynamic = {
        name: next(i for i, axis in enumerate(shape) if not isinstance(axis, int))
        for name, shape in known.items()
        if any(not isinstance(axis, int) for axis in shape)
    }
    if dynamic:
        named = [known[name][i] for name, i in dynamic.items() if known[name][i] is not None]
        if named:
            symbols.setdefault(named[0], batch)
        return {
            name: (*known[name][:i], batch, *known[name][i + 1 :])
            for name, i in dynamic.items()
            if known[name][i] is None
        }
    first = {shape[0] for shape in known.values()}
    if len(first) > 1:
        listed = ", ".join(f"{quoted(name)} {_listed(shape)}" for name, shape in known.items())
        raise ModelError(
            f"--batch {batch} does not say which axis is meant: inputs {listed}",
            hint="Give the shapes one by one: --shape NAME=...",
        )
    return {name: (batch, *shape[1:]) for name, shape in known.items()}


def _check_bound(bound: Mapping[str, tuple[Axis, ...] | None], *, batch_helps: bool) -> None:
    problems: list[str] = []
    for name, shape in bound.items():
        if shape is None:
            problems.append(f"input {quoted(name)} has no shape at all")
            continue
        loose = [
            f"{i} ({quoted(axis)})" if isinstance(axis, str) else str(i)
            for i, axis in enumerate(shape)
            if not isinstance(axis, int)
        ]
        if loose:
            word = "axis" if len(loose) == 1 else "axes"
            problems.append(f"input {quoted(name)} {_listed(shape)}: {word} {', '.join(loose)}")
    if problems:
        batch = "--batch 1 or " if batch_helps and _only_batches(bound) else ""
        raise ModelError(
            "the model has unbound dynamic axes: " + "; ".join(problems),
            hint=f"Fix them with {batch}{_shapes_that_fix(bound)}",
        )


def _only_batches(bound: Mapping[str, tuple[Axis, ...] | None]) -> bool:
    """Whether `--batch` alone fixes all: the first axes are free, under one name, no others."""
    names: set[str] = set()
    for shape in bound.values():
        if shape is None or any(not isinstance(axis, int) for axis in shape[1:]):
            return False
        names.update(axis for axis in shape[:1] if isinstance(axis, str))
    return len(names) <= 1


def _shapes_that_fix(bound: Mapping[str, tuple[Axis, ...] | None]) -> str:
    """A `--shape` for each input with free axes that do not follow from the ones before."""
    known: set[str] = set()
    shapes: list[str] = []
    for name, shape in bound.items():
        free = [axis for axis in shape or (None,) if not isinstance(axis, int)]
        if all(axis in known for axis in free):
            continue
        known.update(axis for axis in free if axis is not None)
        shown = ",".join(str(axis) if isinstance(axis, int) else "1" for axis in shape or (1,))
        shapes.append(f"--shape {quoted(f'{name}={shown}')}")
    return " ".join(shapes)


def _listed(shape: tuple[Axis, ...]) -> str:
    inner = ",".join(
        str(axis) if isinstance(axis, int) else "?" if axis is None else quoted(axis)
        for axis in shape
    )
    return f"[{inner}]"


def _refit_reshapes(
    model: onnx.ModelProto,
    before: Mapping[str, tuple[Axis, ...] | None],
    bound: Mapping[str, tuple[Axis, ...] | None],
) -> None:
    """Where a static model gets another batch, reshapes that spell the old one spell the new one.

    Before: Reshape to [1, 2048]; after `--batch 4`: Reshape to [4, 2048].
    """
    changes = {
        (old[0], new[0])
        for old, new in ((before[name], bound[name]) for name in bound)
        if old and new and old[1:] == new[1:] and isinstance(old[0], int)
    } - {(new[0], new[0]) for new in bound.values() if new}
    if len(changes) != 1:
        return
    ((old_batch, new_batch),) = changes
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    shapes = [n.input[1] for n in model.graph.node if n.op_type == "Reshape" and len(n.input) > 1]
    readers = [name for node in model.graph.node for name in node.input]
    for name in dict.fromkeys(shapes):
        tensor = tensors.get(name)
        if tensor is None or readers.count(name) != shapes.count(name):
            continue
        values = numpy_helper.to_array(tensor).copy()
        if values.ndim == 1 and values.size and values[0] == old_batch:
            values[0] = np.int64(int(new_batch)) if isinstance(new_batch, int) else values[0]
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _write(model: onnx.ModelProto, bound: Mapping[str, tuple[Axis, ...] | None]) -> None:
    """Set the inputs' shapes and drop every shape in the model that may no longer hold."""
    for value in model.graph.input:
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for size in bound[value.name] or ():
            shape.dim.add().dim_value = int(size) if isinstance(size, int) else 0
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
