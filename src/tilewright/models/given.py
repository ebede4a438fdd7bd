"""Models that Python hands over as objects become files, and from there on are like any other.

The file is in the cache under the SHA-256 of its contents, so the same model is the same file, and
an artifact finds the network it was made from in another process, too.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tilewright.core.errors import (
    ModelError,
    OutputError,
    TilewrightError,
    UsageError,
    close_matches,
    quoted,
)
from tilewright.core.scratch import scratch_folder
from tilewright.models.cache import EXPORTS
from tilewright.models.exported.conversion import ExportRequest, keep, require_packages
from tilewright.models.loaded import ModelOptions

if TYPE_CHECKING:
    import onnx

Model: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | Any"
"""A MODEL text, a path, an ONNX model in memory, a module of Relax, a PyTorch module or exported
program, or a pair of a module and its example inputs (a tensor, several, or a dictionary by name),
or of a module of Relax and its weights (a dictionary by name, or the lists by function that
`tvm.relax.frontend.detach_params` gives)."""

_KNOWN = (
    "A model is a path or text as on the command line (network.onnx, zoo:resnet50, …), an "
    "onnx.ModelProto, a torch.nn.Module with its shapes in ModelOptions(shapes={…}), a pair "
    "(module, example inputs), a tvm.IRModule of Relax, or a pair (IRModule, weights)."
)
_LONGEST = 60
_OF_EXPORTING = (
    *(RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError),
    *(ArithmeticError, ImportError),
)
"""What PyTorch and a person's own code raise where a module cannot be traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenModel:
    """`argument` is the MODEL text; `origin` says in words what was handed over where that text is
    a file of our own making, and is empty otherwise."""

    argument: str
    origin: str = ""


def is_model(value: object) -> bool:
    """Whether a value is one model, not several."""
    path = isinstance(value, (str, os.PathLike))
    network = _with_example(value)[0]
    return path or _is_onnx(value) or _is_torch(network) or _is_relax(network)


def several_models(value: object) -> list[object]:
    """The models that a value holds, itself where it is one. Raises UsageError where it is none."""
    if is_model(value):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        return [*cast("Iterable[object]", value)]
    raise UsageError(f"{_kind(cast('object', value))} is no model", hint=_KNOWN)


def given_model(model: object, options: ModelOptions, cache: Path) -> GivenModel:
    """What stands for a model from here on; objects are written below `cache`.

    Raises UsageError for what is no model, ModelError for one that cannot be exported, TargetError
    where a package for that is missing, OutputError where the cache cannot be written.
    """
    if isinstance(model, (str, os.PathLike)):
        return GivenModel(argument=_at_home(os.fsdecode(cast("str | os.PathLike[str]", model))))
    if _is_onnx(model):
        return _of_onnx(cast("onnx.ModelProto", model), cache)
    network, example = _with_example(model)
    if _is_torch(network):
        return _of_torch(network, example, options, cache)
    if _is_relax(network):
        return _of_relax(network, example, cache)
    raise UsageError(f"{_kind(model)} is no model", hint=_KNOWN)


def _at_home(text: str) -> str:
    """A text, the home folder where a shell would put it."""
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError as error:
        raise UsageError(f"{quoted(text)}: {error}") from None


def _kind(value: object) -> str:
    if isinstance(value, (int, float, type(None))):
        return repr(value)
    return f"a {_name(value.__class__).removeprefix('builtins.')}"


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_onnx(value: object) -> bool:
    """Whoever has one has imported onnx."""
    library: Any = sys.modules.get("onnx")
    return library is not None and isinstance(value, library.ModelProto)


def _is_torch(value: object) -> bool:
    """Whoever has one has imported torch."""
    library: Any = sys.modules.get("torch")
    return library is not None and isinstance(
        value, (library.nn.Module, library.export.ExportedProgram)
    )


def _is_relax(value: object) -> bool:
    """Whoever has one has imported tvm."""
    library: Any = sys.modules.get("tvm")
    return library is not None and isinstance(value, library.IRModule)


def _with_example(value: object) -> tuple[object, object]:
    """The network of a pair of one and its example inputs or weights, and these; else the value,
    and None."""
    if isinstance(value, (tuple, list)):
        values = cast("Sequence[object]", value)
        network = len(values) == 2 and (_is_torch(values[0]) or _is_relax(values[0]))
        if network and not is_model(values[1]):
            return values[0], values[1]
    return cast("object", value), None


def _of_onnx(model: onnx.ModelProto, cache: Path) -> GivenModel:
    from tilewright.models.onnx_file import external_tensors, save_onnx

    name = model.graph.name
    for lacking in external_tensors(model):
        raise ModelError(
            f"the weight {quoted(lacking.name)} of the onnx.ModelProto is in another file",
            hint="Load it with onnx.load(path), which reads them, too; or give the path.",
        )
    maker = " ".join(filter(None, (model.producer_name, model.producer_version)))
    origin = f"onnx.ModelProto {name!r}" + (f" of {maker}" if maker else "")
    copy = type(model)()
    copy.CopyFrom(model)
    with scratch_folder() as folder:
        path = folder / _file_name(name)
        save_onnx(copy, path)
        return _kept(path, cache, origin)


def _of_torch(network: Any, example: Any, options: ModelOptions, cache: Path) -> GivenModel:
    from tilewright.models.exported.exporter import traced_module, write_program

    kind: type = network.__class__
    torch: Any = sys.modules["torch"]
    require_packages(ExportRequest(argument=kind.__qualname__, content={}))
    with scratch_folder() as folder:
        path = folder / _file_name(kind.__qualname__)
        with _exporting(kind), _evaluating(network):
            program = network
            if not isinstance(network, torch.export.ExportedProgram):
                program = traced_module(torch, network, example, options.shapes, options.batch)
            write_program(torch, program, path)
        what = "torch.export.ExportedProgram" if program is network else "torch.nn.Module"
        return _kept(path, cache, f"{what} {_name(kind)}")


def _of_relax(module: Any, weights: Any, cache: Path) -> GivenModel:
    """Weights become constants of the module."""
    tvm: Any = sys.modules["tvm"]
    names = [variable.name_hint for variable in module.get_global_vars()]
    entry = _entry(tvm, module)
    if weights is not None:
        module = _with_weights(tvm, module, entry, weights)
    with scratch_folder() as folder:
        path = folder / _file_name(entry or "module", ".json")
        path.write_text(tvm.ir.save_json(module), encoding="utf-8")
        return _kept(path, cache, f"tvm.IRModule with the functions {', '.join(names)}")


def _entry(tvm: Any, module: Any) -> str:
    """The function to take: `main`, or the only one that is public; empty where there is none."""
    functions = {
        variable.name_hint: function
        for variable, function in module.functions_items()
        if isinstance(function, tvm.relax.Function)
    }
    if "main" in functions:
        return "main"
    public = [n for n, f in functions.items() if f.attrs and "global_symbol" in f.attrs]
    return public[0] if len(public) == 1 else ""


def _with_weights(tvm: Any, module: Any, entry: str, weights: Any) -> Any:
    """The module with values for parameters of its function: by their names, or in their order
    behind the inputs. Raises UsageError for other ones."""
    if not entry:
        raise UsageError(
            "the weights are those of 'main', or of the only public function, which "
            "the module does not have"
        )
    function = module[entry]
    count = _inputs(function)
    given = _by_name(function, entry, weights)
    try:
        bound = tvm.relax.transform.BindParams(entry, given)(module)
    except _OF_EXPORTING as error:
        raise ModelError(f"the weights do not fit the module: {_first_line(error)}") from error
    if count is not None:
        left = sum(each.name not in given for each in function.params[:count])
        if left < count:
            bound[entry] = bound[entry].with_attr("num_input", left)
    return bound


def _inputs(function: Any) -> int | None:
    """How many of its parameters are inputs, where a function says so."""
    attributes: Any = function.attrs
    return int(attributes["num_input"]) if attributes and "num_input" in attributes else None


def _by_name(function: Any, entry: str, weights: Any) -> dict[str, Any]:
    """The values for parameters by their names. Raises UsageError where they are not such."""
    parameters = list(function.params)
    if not isinstance(weights, Mapping):
        raise UsageError(
            f"the weights of a tvm.IRModule are {_kind(weights)}, not a dictionary",
            hint="{name: array}, or what tvm.relax.frontend.detach_params gives.",
        )
    given: dict[str, Any] = dict(cast("Mapping[str, Any]", weights))
    if isinstance(listed := given.get(entry), (list, tuple)):
        values = cast("Sequence[Any]", listed)
        count = _inputs(function)
        places = len(parameters) - (0 if count is None else count)
        if len(values) > places or (count is not None and len(values) < places):
            raise UsageError(
                f"{len(values)} weights for the {places} parameters of the module's function "
                f"{quoted(entry)} that may be weights"
            )
        last = parameters[len(parameters) - len(values) :]
        given = dict(zip((each.name for each in last), values, strict=True))
    known = {each.name: each.ty for each in parameters}
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"the module's function {quoted(entry)} has no parameter {quoted(str(name))}",
                hint=close_matches(str(name), list(known), quoted),
            )
        _require_fit(name, value, known[name])
    return given


def _require_fit(name: str, value: Any, kind: Any) -> None:
    """Raise UsageError for a weight of another shape or type than its parameter's."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        raise UsageError(f"the weight {quoted(name)} is {_kind(value)}, not an array")
    sizes = getattr(getattr(kind, "shape", None), "values", None)
    fits = sizes is None or len(sizes) == len(shape)
    for size, ours in zip(sizes or (), shape, strict=False):
        fits = fits and getattr(size, "value", ours) == ours
    if not fits or (kind.dtype is not None and str(kind.dtype) != str(dtype)):
        raise UsageError(
            f"the weight {quoted(name)} is {dtype}{[*shape]}, its parameter in the module {kind}"
        )


@contextmanager
def _exporting(kind: type) -> Generator[None]:
    """Turn what PyTorch says of a module that cannot be exported into a ModelError."""
    try:
        yield
    except TilewrightError:
        raise
    except _OF_EXPORTING as error:
        said = _first_line(error)
        raise ModelError(f"{_name(kind)} could not be exported to ONNX: {said}") from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return quoted(lines[0])[1:-1] if lines else type(error).__name__


@contextmanager
def _evaluating(network: Any) -> Generator[None]:
    """Inference, not training, while a module is traced; then as it was."""
    parts = [part for part in getattr(network, "modules", tuple)() if part.training]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True


def _file_name(name: str, ending: str = ".onnx") -> str:
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:_LONGEST]
    return (readable or "model") + ending


def _kept(path: Path, cache: Path, origin: str) -> GivenModel:
    """Put what was written beside `path`, and nothing else is there, into the cache."""
    checksum = sha256(path.name.encode())
    for file in sorted(path.parent.iterdir()):
        with file.open("rb") as content:
            file_digest(content, lambda: checksum)
    kept = cache / EXPORTS / checksum.hexdigest()
    if not keep(path.parent, kept, path.name):
        raise OutputError(
            f"cannot keep the model in {quoted(kept)}",
            hint="TILEWRIGHT_CACHE names another folder.",
        )
    return GivenModel(argument=str(kept / path.name), origin=origin)
