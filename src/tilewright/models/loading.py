"""From a MODEL argument to a `LoadedModel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from tilewright.core.errors import (
    ModelError,
    UsageError,
    all_known,
    close_matches,
    near_names,
    quoted,
)
from tilewright.core.output_files import attempting
from tilewright.core.scratch import FolderInUse, scratch_folder
from tilewright.core.settings import read_settings
from tilewright.graph.network import Graph
from tilewright.models import contained
from tilewright.models.cache import shrink
from tilewright.models.download import download
from tilewright.models.exported.conversion import (
    REMARK,
    export,
    module_request,
    program_request,
    torch_request,
    transformer_request,
)
from tilewright.models.input_shapes import (
    Inputs,
    bind_inputs,
    drop_weight_inputs,
    input_axes,
    keep_inputs,
)
from tilewright.models.loaded import (
    BY_NOISE,
    ON_CODES,
    Islands,
    LoadedModel,
    ModelOptions,
    OnnxReference,
)
from tilewright.models.onnx_file import load_saved, parse_onnx, read_onnx, save_onnx
from tilewright.models.onnx_import.islands import as_island
from tilewright.models.onnx_import.translate import translate
from tilewright.models.onnx_model import check_model, weights_bytes
from tilewright.models.quantizing import Quantizer, require_calibrator
from tilewright.models.single_operator import UNDRAWN, build_operator
from tilewright.models.source import Source, parse_source

_DEFAULT = ModelOptions()
_SOME_NUMBERS = np.random.default_rng(0).standard_normal(4096, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What has to be known of a model when it is no longer in memory.

    `first_sizes` are those of inputs and outputs before shapes were bound, None where not static;
    `batch` is the one that was asked for.
    """

    first_sizes: dict[str, int | None]
    batch: int | None
    islands: Islands
    inputs: tuple[str, ...]
    weights_bytes: int


def load(argument: str, options: ModelOptions = _DEFAULT) -> LoadedModel:
    """Load a model of any of the forms of docs/reference/models.md.

    Raises UsageError for an argument or option that means nothing, ModelError for a file that is
    missing, broken or not supported, TargetError where a package is missing that the form, or the
    calibrator, needs.
    With the precision `int8` the network is put on codes, and it raises as a `Quantizer` does.
    """
    require_calibrator(options)
    model = _loaded(parse_source(argument), options)
    if options.precision != ON_CODES:
        return model
    made = Quantizer(model, options)
    return with_codes(model, made.quantized(), made.remark)


def with_codes(model: LoadedModel, file: OnnxReference, remark: str = "") -> LoadedModel:
    """A network in single precision as an ONNX file has it on codes; what it was is the reference
    for its errors. `remark` is said of it, too."""
    codes = _load_file(file.path, _DEFAULT, as_quantized=True)
    told = f"{model.remark} {remark}".strip()
    return replace(model, graph=codes.graph, quantized=file, remark=told)


def _loaded(source: Source, options: ModelOptions) -> LoadedModel:
    match source.kind:
        case "file":
            return _load_file(Path(source.text), options)
        case "url":
            settings = read_settings()
            path, held = download(source.text, settings.cache)
            shrink(settings.cache, settings.cache_limit_bytes)
            return _load_file(path, options, held)
        case "operator":
            return _load_operator(source, options, outline=False)
        case "zoo":
            return _load_zoo(source.text, options)
        case _:
            return _load_exported(source, options)


def with_islands(model: LoadedModel, refusals: Mapping[str, ModelError]) -> LoadedModel:
    """The model with some of its opaque nodes, by name, as islands; why is what is said there.
    Raises that where ONNX Runtime does not take a node either."""
    nodes = [
        as_island(node, refusals[node.name], contained.judged) if node.name in refusals else node
        for node in model.graph.nodes
    ]
    return replace(model, graph=replace(model.graph, nodes=tuple(nodes)))


def load_outline(argument: str, options: ModelOptions = _DEFAULT) -> LoadedModel:
    """A single operator for what its shapes alone decide, such as its kernels and their times: many
    times as fast as `load`, which answers for all other models, and where options change shapes.

    Raises as `load`, and UsageError for a precision that is a choice for each tensor.
    """
    source = parse_source(argument)
    if source.kind != "operator" or options.batch is not None or options.shapes:
        return load(argument, options)
    if options.precision in BY_NOISE:
        raise UsageError(
            f"a single operator is looked at in one precision, not in {options.precision}",
            hint="Use --precision bfloat16 or float16, or name a network.",
        )
    return _load_operator(source, options, outline=True)


def load_model(model: onnx.ModelProto, name: str, options: ModelOptions = _DEFAULT) -> LoadedModel:
    """Load an ONNX model that is already in memory. The model is used up: pass a copy to keep it.

    Raises as `load`.
    """
    where = f"model {quoted(name)}"
    check_model(model, where)
    bound, _, facts = _bound(model, options, where)
    return _imported(facts, _stored(bound), name)


def _load_operator(source: Source, options: ModelOptions, *, outline: bool) -> LoadedModel:
    try:
        name, model = build_operator(source.text, seed=options.seed, outline=outline)
        return _outline(model, name) if outline else load_model(model, name, options)
    except ModelError as error:
        what = quoted(f"op:{source.text}")
        raise UsageError(f"{what} is not possible: {error.message}") from error


def _outline(model: onnx.ModelProto, name: str) -> LoadedModel:
    absent = [value.name for value in model.graph.input if value.doc_string == UNDRAWN]
    inferred = contained.infer_types(model, Path(), trusted=True)
    keep_inputs(inferred.model, [v.name for v in model.graph.input if v.name not in absent])
    made = {  # no two weights are equal, or cleaning would merge them
        each: np.resize(_SOME_NUMBERS + place, inferred.types[each].shape)
        for place, each in enumerate(absent)
    }
    inferred = replace(inferred, weights={**inferred.weights, **made})
    return LoadedModel(name=name, graph=translate(inferred, name), reference=None)


def _load_zoo(name: str, options: ModelOptions) -> LoadedModel:
    from tilewright.models import zoo

    names = zoo.names()
    if name not in names:
        guess = f"{close_matches(name, names)} " if near_names(name, names) else ""
        raise UsageError(f"the zoo has no network {quoted(name)}", hint=guess + all_known(names))
    model = zoo.build(name, batch=options.batch or 1, seed=options.seed)
    return load_model(model, name, replace(options, batch=None))


def open_axes(argument: str, options: ModelOptions = _DEFAULT) -> Inputs:
    """The axes of the inputs of a model whose file may leave some open; of other models none.
    Raises as `load`."""
    source = parse_source(argument)
    match source.kind:
        case "file":
            held = OnnxReference(path=Path(source.text))
        case "url":
            path, keeper = download(source.text, read_settings().cache)
            held = OnnxReference(path=path, keeper=keeper)
        case "program" | "relax":
            _, held = _exported(source, options)
        case _:
            return {}
    return input_axes(parse_onnx(held.path))


def _exported(source: Source, options: ModelOptions) -> tuple[str, OnnxReference]:
    """A readable name of a model that is exported, and its ONNX file."""
    if source.kind == "program":
        name, request = program_request(Path(source.text))
    elif source.kind == "relax":
        name, request = module_request(Path(source.text), options)
    else:
        made = transformer_request if source.kind == "transformer" else torch_request
        name, request = made(source.text, options)
    return name, export(request, read_settings().cache)


def _load_exported(source: Source, options: ModelOptions) -> LoadedModel:
    """A model of PyTorch, by way of its ONNX export; one the cache keeps stays where it is."""
    name, exported = _exported(source, options)
    if isinstance(exported.keeper, FolderInUse):
        settings = read_settings()
        shrink(settings.cache, settings.cache_limit_bytes)
        return replace(_load_file(exported.path, options, exported.keeper), name=name)
    model = read_onnx(exported.path)
    remark = next((each.value for each in model.metadata_props if each.key == REMARK), "")
    return replace(load_model(model, name, options), remark=remark)


def _load_file(
    path: Path,
    options: ModelOptions,
    held: FolderInUse | None = None,
    *,
    as_quantized: bool = False,
) -> LoadedModel:
    """A file that needs no change stays where it is and is its own reference; one of the cache is
    `held`; one of ours is taken `as_quantized`."""
    model, changed, facts = _bound(read_onnx(path), options, quoted(path))
    own = OnnxReference(path=path.absolute(), keeper=held)
    reference = _stored(model) if changed else own
    del model
    return _imported(facts, reference, path.stem, as_quantized)


def _bound(
    model: onnx.ModelProto, options: ModelOptions, where: str
) -> tuple[onnx.ModelProto, bool, _Facts]:
    """The model with the asked-for shapes and without functions of its own, whether anything
    changed, and its facts; what was inside functions is checked in its place."""
    drop_weight_inputs(model)
    values = (*model.graph.input, *model.graph.output)
    sizes = {value.name: value.type.tensor_type.shape.dim[:1] for value in values}
    first = {name: size[0].dim_value or None if size else None for name, size in sizes.items()}
    changed = bind_inputs(model, options)
    inlined = contained.inline_functions(model)
    if inlined is not model:
        check_model(inlined, where)
    facts = _Facts(
        first_sizes=first,
        batch=options.batch,
        islands=options.islands,
        inputs=tuple(value.name for value in inlined.graph.input),
        weights_bytes=weights_bytes(inlined),
    )
    return inlined, changed or inlined is not model, facts


def _stored(model: onnx.ModelProto) -> OnnxReference:
    folder = scratch_folder()
    path = folder.path / "model.onnx"
    with attempting(f"write the model to the temporary folder {quoted(path.parent)}"):
        save_onnx(model, path)
    return OnnxReference(path=path, keeper=folder)


def _imported(
    facts: _Facts, reference: OnnxReference, name: str, as_quantized: bool = False
) -> LoadedModel:
    with scratch_folder() as scratch:
        target = scratch / "folded.onnx"
        folded = contained.fold(
            reference.path, target, facts.weights_bytes, as_quantized=as_quantized
        )
        model = folded or load_saved(reference.path)
        keep_inputs(model, facts.inputs)
        inferred = contained.infer_types(model, scratch)
    del model, folded
    graph = translate(inferred, name, contained.judged if facts.islands == "run" else None)
    _check_batch(graph, facts)
    return LoadedModel(name=name, graph=graph, reference=reference)


def _check_batch(graph: Graph, facts: _Facts) -> None:
    """A static model with another batch must carry it through to its outputs."""
    before, batch = facts.first_sizes, facts.batch
    old = {before[name] for name in before if name in graph.types and name not in graph.outputs}
    if batch is None or len(old) != 1 or old & {None, batch}:
        return
    (was,) = old
    for output in graph.outputs:
        shape = graph.types[output].shape
        if not graph.types[output].is_static:
            continue
        if shape[:1] != (batch,) and (before.get(output) == was or shape[:1] == (was,)):
            raise ModelError(
                f"the model is made for a batch of {was}: with {batch}, output {quoted(output)} "
                f"would have shape {list(shape)}",
                hint="Export the model with a dynamic batch axis.",
            )
