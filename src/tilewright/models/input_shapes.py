"""Fixing the shapes of a model's inputs: `--batch`, `--shape`, and what stays unbound.

A name in `--shape` is that of an input, whose whole shape is given, or where no input is called so
that of an axis, whose size is given: `tokens=32` fixes the axis "tokens" of all inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import numpy_helper

from tilewright.core.errors import ModelError, UsageError, close_matches, quoted
from tilewright.models.loaded import ModelOptions

Axis = int | str | None
"""A size, the name of a dynamic axis, or None for a dynamic axis without a name."""
Axes = tuple[Axis, ...]
Inputs = Mapping[str, Axes | None]
"""The axes of inputs by name, None where a file tells no shape."""


def drop_weight_inputs(model: onnx.ModelProto) -> None:
    """Constants are no inputs, also in old files that list them."""
    constants = {tensor.name for tensor in model.graph.initializer}
    keep_inputs(model, [value.name for value in model.graph.input if value.name not in constants])


def keep_inputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Leave only the named inputs."""
    kept = [value for value in model.graph.input if value.name in names]
    if len(kept) < len(model.graph.input):
        copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
        del model.graph.input[:]
        model.graph.input.extend(copies)
        model.ir_version = max(model.ir_version, 4)


def bind_inputs(model: onnx.ModelProto, options: ModelOptions) -> bool:
    """Write the asked-for shapes into the model; whether anything changed.

    Raises UsageError for unknown inputs and impossible sizes, ModelError when axes stay unbound.
    """
    axes = {value.name: _axes(value) for value in model.graph.input}
    named = axis_sizes(axes, options.shapes)
    wanted: dict[str, Axes] = {n: s for n, s in options.shapes.items() if n not in named}
    _check_shapes(axes, wanted)
    symbols = _bound_symbols(axes, wanted, named)
    if options.batch is not None:
        free = {name: shape for name, shape in axes.items() if name not in wanted}
        wanted |= _with_batch(free, options.batch, symbols)
    bound = {
        name: shape and tuple(symbols.get(axis, axis) for axis in shape)
        for name, shape in {**axes, **wanted}.items()
    }
    _check_bound(bound, batch_helps=options.batch is None)
    if bound == axes:
        return False
    _refit_reshapes(model, axes, bound)
    write_shapes(model, bound)
    return True


def named_axes(axes: Inputs) -> list[str]:
    """The names of dynamic axes, in order of first use."""
    names = (axis for shape in axes.values() for axis in shape or () if isinstance(axis, str))
    return [*dict.fromkeys(names)]


def axis_sizes(axes: Inputs, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Those of the `shapes` that are sizes of a named axis."""
    names = named_axes(axes)
    return {n: sizes for n, sizes in shapes.items() if n not in axes and n in names}


def input_axes(model: onnx.ModelProto) -> dict[str, Axes | None]:
    """The axes of a model's inputs, constants left out."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return {v.name: _axes(v) for v in model.graph.input if v.name not in constants}


def _axes(value: onnx.ValueInfoProto) -> Axes | None:
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"input {quoted(value.name)} is no tensor, which is not supported")
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        d.dim_value
        if d.HasField("dim_value") and d.dim_value >= 0
        else (d.dim_param or None if d.HasField("dim_param") else None)
        for d in value.type.tensor_type.shape.dim
    )


def _check_shapes(axes: Inputs, shapes: Mapping[str, Axes]) -> None:
    """Raise UsageError for unknown inputs and for other numbers of axes."""
    for name, shape in shapes.items():
        if name not in axes:
            free = named_axes(axes)
            raise UsageError(
                f"the model has no input {quoted(name)}" + (" and no such axis" if free else ""),
                hint=close_matches(name, [*axes, *free], quoted),
            )
        known = axes[name]
        if known is not None and len(known) != len(shape):
            raise UsageError(
                f"input {quoted(name)} has {len(known)} axes {_listed(known)}, "
                f"shape {list(shape)} has {len(shape)}"
            )


def _bound_symbols(
    axes: Inputs, wanted: Mapping[str, Axes], named: Mapping[str, tuple[int, ...]]
) -> dict[Axis, Axis]:
    """Sizes of named axes that are given, and that follow from the given shapes."""
    symbols: dict[Axis, Axis] = {}
    for axis, sizes in named.items():
        if len(sizes) != 1:
            raise UsageError(
                f"axis {quoted(axis)} has one size, not {list(sizes)}",
                hint=f"--shape {axis}={sizes[0] if sizes else 1}; `optimize` takes several.",
            )
        symbols[axis] = sizes[0]
    for name, shape in wanted.items():
        for axis, size in zip(axes[name] or (), shape, strict=False):
            if isinstance(axis, str) and symbols.setdefault(axis, size) != size:
                raise UsageError(
                    f"axis {quoted(axis)} would be both {symbols[axis]} and {size}",
                    hint="Give the same size to all inputs that share the axis.",
                )
    return symbols


def _with_batch(axes: Inputs, batch: int, symbols: dict[Axis, Axis]) -> dict[str, Axes]:
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


def _check_bound(bound: Inputs, *, batch_helps: bool) -> None:
    problems = [
        f"input {quoted(name)} {fault}" for name, s in bound.items() if (fault := _loose(s))
    ]
    if problems:
        batch = "--batch 1 or " if batch_helps and _only_batches(bound) else ""
        raise ModelError(
            "the model has unbound dynamic axes: " + "; ".join(problems),
            hint=f"Fix them with {batch}{_shapes_that_fix(bound)}",
        )


def _loose(shape: Axes | None) -> str:
    """What is not known of a shape; empty where all is."""
    if shape is None:
        return "has no shape at all"
    loose = [
        f"{i} ({quoted(axis)})" if isinstance(axis, str) else str(i)
        for i, axis in enumerate(shape)
        if not isinstance(axis, int)
    ]
    word = "axis" if len(loose) == 1 else "axes"
    return f"{_listed(shape)}: {word} {', '.join(loose)}" if loose else ""


def _only_batches(bound: Inputs) -> bool:
    """Whether `--batch` alone fixes all: the first axes are free, under one name, no others."""
    shapes = list(bound.values())
    fixed = all(
        shape is not None and all(isinstance(axis, int) for axis in shape[1:]) for shape in shapes
    )
    return fixed and len({s[0] for s in shapes if s and isinstance(s[0], str)}) <= 1


def _shapes_that_fix(bound: Inputs) -> str:
    """A `--shape` for each input with free axes that do not follow from the ones before."""
    known: set[Axis] = set()
    shapes: list[str] = []
    for name, shape in bound.items():
        free = {axis for axis in shape or (None,) if not isinstance(axis, int)}
        if free - known:
            known |= free - {None}
            shown = ",".join(str(axis) if isinstance(axis, int) else "1" for axis in shape or (1,))
            shapes.append(f"--shape {quoted(f'{name}={shown}')}")
    return " ".join(shapes)


def _listed(shape: Axes) -> str:
    inner = ",".join(
        str(axis) if isinstance(axis, int) else "?" if axis is None else quoted(axis)
        for axis in shape
    )
    return f"[{inner}]"


def _refit_reshapes(model: onnx.ModelProto, before: Inputs, bound: Inputs) -> None:
    """Where a static model gets another batch, reshapes that spell the old one spell the new one.

    Before: Reshape to [1, 2048]; after `--batch 4`: Reshape to [4, 2048].
    """
    changes = {
        (old[0], new[0])
        for old, new in zip(before.values(), bound.values(), strict=True)
        if old and new and old[1:] == new[1:] and isinstance(old[0], int)
    } - {(new[0], new[0]) for new in bound.values() if new}
    if len(changes) != 1:
        return
    ((old_batch, new_batch),) = changes
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    tensors |= {
        node.output[0]: node.attribute[0].t
        for node in model.graph.node
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value"
    }
    shapes = [n.input[1] for n in model.graph.node if n.op_type == "Reshape" and len(n.input) > 1]
    readers = [name for node in model.graph.node for name in node.input]
    for name in tensors.keys() & set(shapes):
        values = numpy_helper.to_array(tensors[name]).copy()
        alone = readers.count(name) == shapes.count(name)
        if alone and values.ndim == 1 and values.size and values[0] == old_batch:
            values[0] = new_batch
            tensors[name].CopyFrom(numpy_helper.from_array(values, tensors[name].name))


def write_shapes(model: onnx.ModelProto, bound: Inputs) -> None:
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
