"""From a MODEL argument to a `LoadedModel`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from tilewright.core.errors import (
    ModelError,
    OutputError,
    UsageError,
    all_known,
    close_matches,
    near_names,
    reason_of,
)
from tilewright.core.scratch import FolderInUse, scratch_folder
from tilewright.core.settings import read_settings
from tilewright.graph.network import Graph
from tilewright.models import contained
from tilewright.models.cache import shrink
from tilewright.models.contained import inline_functions
from tilewright.models.download import download
from tilewright.models.exported.conversion import export
from tilewright.models.exported.sources import (
    program_request,
    torch_request,
    transformer_request,
)
from tilewright.models.inferred_types import infer_here, infer_types
from tilewright.models.input_shapes import bind_inputs, drop_weight_inputs, keep_inputs
from tilewright.models.loaded import LoadedModel, ModelOptions, OnnxReference
from tilewright.models.naming import quoted
from tilewright.models.onnx_file import load_saved, read_onnx, save_onnx
from tilewright.models.onnx_import.translate import InferredModel, translate
from tilewright.models.operator_forms import SKETCHED
from tilewright.models.single_operator import build_operator
from tilewright.models.source import Source, parse_source
from tilewright.models.weights import weights_bytes
from tilewright.models.well_formed import check_model

_DEFAULT = ModelOptions()
_SOME_NUMBERS = np.random.default_rng(0).standard_normal(4096, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """What has to be known of a model when it is no longer in memory."""

    inputs: tuple[str, ...]
    weights_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """The first sizes of inputs and outputs, None where not static, before shapes were bound."""

    before: dict[str, int | None]
    options: ModelOptions


def load(argument: str, options: ModelOptions = _DEFAULT) -> LoadedModel:
    """Load a model of any of the forms of docs/reference/models.md.

    Raises UsageError for an argument or option that means nothing, ModelError for a file that is
    missing, broken or not supported, TargetError where a package is missing that the form needs.
    """
    source = parse_source(argument)
    if source.kind == "file":
        return _load_file(Path(source.text), options)
    if source.kind == "url":
        settings = read_settings()
        path, held = download(source.text, settings.cache)
        shrink(settings.cache, settings.cache_limit_bytes)
        return _load_file(path, options, held)
    try:
        if source.kind in ("transformer", "torch", "program"):
            return _load_exported(source, options)
        name, model, rest = _built(source, options)
        return load_model(model, name, rest)
    except ModelError as error:
        if source.kind == "operator":
            raise UsageError(f"{quoted(argument)} is not possible: {error.message}") from error
        raise


def sketch(argument: str, options: ModelOptions = _DEFAULT) -> LoadedModel:
    """A single operator for what its shapes alone decide, such as its kernels and their times: many
    times as fast as `load`, which answers for all other models, and where options change shapes.

    Raises as `load`.
    """
    source = parse_source(argument)
    if source.kind != "operator" or options.batch is not None or options.shapes:
        return load(argument, options)
    try:
        name, model = build_operator(source.text, seed=options.seed, sketched=True)
        absent = [value.name for value in model.graph.input if value.doc_string == SKETCHED]
        inferred, weights, types = infer_types(model, Path(), infer_here)
        keep_inputs(inferred, [v.name for v in model.graph.input if v.name not in absent])
        for place, each in enumerate(absent):
            # no two weights are equal, or cleaning would merge them
            weights[each] = np.resize(_SOME_NUMBERS + place, types[each].shape)
        graph = translate(InferredModel(model=inferred, weights=weights, types=types), name)
    except ModelError as error:
        raise UsageError(f"{quoted(argument)} is not possible: {error.message}") from error
    return _loaded(graph, name, None, folded=False)


def load_model(model: onnx.ModelProto, name: str, options: ModelOptions = _DEFAULT) -> LoadedModel:
    """Load an ONNX model that is already in memory. The model is used up: pass a copy to keep it.

    Raises as `load`.
    """
    where = f"model {quoted(name)}"
    check_model(model, where)
    drop_weight_inputs(model)
    checks = _Bound(before=_first_sizes(model), options=options)
    bind_inputs(model, options)
    inlined = _inlined(model, where)
    return _imported(_described(inlined), _stored(inlined), name, checks)


def _built(source: Source, options: ModelOptions) -> tuple[str, onnx.ModelProto, ModelOptions]:
    """Name, model and the options that still have to be applied."""
    if source.kind == "operator":
        name, model = build_operator(source.text, seed=options.seed)
        return name, model, options
    from tilewright.models import zoo

    if options.batch is not None and options.batch < 1:
        raise UsageError(f"a batch of {options.batch} is not possible")
    names = zoo.names()
    if source.text not in names:
        near = near_names(source.text, names)
        guess = f"{close_matches(source.text, names)} " if near else ""
        raise UsageError(
            f"the zoo has no network {quoted(source.text)}", hint=guess + all_known(names)
        )
    model = zoo.build(source.text, batch=options.batch or 1, seed=options.seed)
    return source.text, model, replace(options, batch=None)


def _load_exported(source: Source, options: ModelOptions) -> LoadedModel:
    """A model of PyTorch, by way of its ONNX export; one the cache keeps stays where it is."""
    if source.kind == "program":
        name, request = program_request(Path(source.text))
    else:
        made = transformer_request if source.kind == "transformer" else torch_request
        name, request = made(source.text, options)
    settings = read_settings()
    exported = export(request, settings.cache)
    if exported.folder is None:
        shrink(settings.cache, settings.cache_limit_bytes)
        return replace(_load_file(exported.path, options, exported.use), name=name)
    model, _ = read_onnx(exported.path)
    return load_model(model, name, options)


def _load_file(path: Path, options: ModelOptions, held: FolderInUse | None = None) -> LoadedModel:
    """A file that needs no change stays where it is and is its own reference; one of the cache is
    `held`."""
    model, external = read_onnx(path)
    drop_weight_inputs(model)
    checks = _Bound(before=_first_sizes(model), options=options)
    changed = bind_inputs(model, options)
    inlined = _inlined(model, quoted(path))
    described = _described(inlined)
    if changed or inlined is not model:
        reference = _stored(inlined)
    else:
        reference = OnnxReference(path=path.absolute(), external=external, keeper=held)
    del model, inlined
    return _imported(described, reference, path.stem, checks)


def _inlined(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The model without functions of its own; what was inside them is checked in its place."""
    inlined = inline_functions(model)
    if inlined is not model:
        check_model(inlined, where)
    return inlined


def _described(model: onnx.ModelProto) -> _Described:
    names = tuple(value.name for value in model.graph.input)
    return _Described(inputs=names, weights_bytes=weights_bytes(model))


def _stored(model: onnx.ModelProto) -> OnnxReference:
    folder = scratch_folder()
    path = folder.path / "model.onnx"
    try:
        external = save_onnx(model, path)
    except OSError as error:
        folder.close()
        raise OutputError(
            f"cannot write the model to the temporary folder {quoted(path.parent)}: "
            f"{reason_of(error)}"
        ) from error
    return OnnxReference(path=path, external=external, keeper=folder)


def _imported(
    described: _Described, reference: OnnxReference, name: str, checks: _Bound
) -> LoadedModel:
    with scratch_folder() as scratch:
        target = scratch / "folded.onnx"
        folded = contained.fold(reference.path, target, described.weights_bytes)
        model = folded or load_saved(reference.path)
        keep_inputs(model, described.inputs)
        inferred, weights, types = infer_types(model, target.parent, contained.infer)
    del model
    source = InferredModel(model=inferred, weights=weights, types=types)
    graph = translate(source, name)
    _check_batch(graph.outputs, {n: graph.types[n].shape for n in graph.types}, checks)
    return _loaded(graph, name, reference, folded=folded is not None)


def _loaded(
    graph: Graph, name: str, reference: OnnxReference | None, *, folded: bool
) -> LoadedModel:
    return LoadedModel(
        name=name,
        graph=graph,
        reference=reference,
        inputs={entry: graph.types[entry] for entry in graph.inputs},
        outputs=graph.outputs,
        folded=folded,
    )


def _first_sizes(model: onnx.ModelProto) -> dict[str, int | None]:
    """The first size of every input and output, None where it is not static."""
    sizes: dict[str, int | None] = {}
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        sizes[value.name] = (dims[0].dim_value or None) if dims else None
    return sizes


def _check_batch(
    outputs: tuple[str, ...],
    shapes: dict[str, tuple[int, ...]],
    checks: _Bound,
) -> None:
    """A static model with another batch must carry it through to its outputs."""
    before, batch = checks.before, checks.options.batch
    old = {size for name, size in before.items() if name in shapes and name not in outputs}
    if batch is None or len(old) != 1 or None in old:
        return
    (was,) = old
    if was == batch:
        return
    for output in outputs:
        first = shapes[output][:1]
        if first != (batch,) and (before.get(output) == was or first == (was,)):
            raise ModelError(
                f"the model is made for a batch of {was}: with {batch}, output {quoted(output)} "
                f"would have shape {list(shapes[output])}",
                hint="Export the model with a dynamic batch axis.",
            )
