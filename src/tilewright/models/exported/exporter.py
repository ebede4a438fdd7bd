"""The process that exports: the only module that imports torch and transformers to make a model.

`python -m tilewright.models.exported.exporter FOLDER PARENT` reads a request as JSON from stdin and
writes `model.onnx`, or `result.json` with an error, told without a traceback of ours, into the
folder. It ends with the process numbered PARENT. Without arguments it prints what of the packages
that an export may import does not load.
"""

from __future__ import annotations

import inspect
import json
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import Any, cast

import onnx

from tilewright.core.errors import (
    ModelError,
    TargetError,
    TilewrightError,
    UsageError,
    close_matches,
    quoted,
)
from tilewright.core.signals import die_with_parent
from tilewright.models.exported.conversion import MODEL, RESULT

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
                f"the module has no input {quoted(name)}", hint=close_matches(name, named, quoted)
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


Request = Mapping[str, Any]
_JITTER = 0.1


def export_program(folder: Path, request: Request) -> None:
    """Write what a request for a model of PyTorch asks for."""
    torch: Any = import_module("torch")
    write_program(torch, traced(torch, request), folder / MODEL, request.get("outputs"))


def main(
    folder: Path, request: Request, write: Callable[[Path, Request], None] = export_program
) -> int:
    """Let `write` export a request into a folder; errors raised on purpose become `result.json`."""
    try:
        write(folder, request)
        return 0
    except (ModelError, TargetError, UsageError) as error:
        refused: TilewrightError = error
    except Exception as error:  # noqa: BLE001 - the user's code and torch raise what they like
        refused = _told(error, quoted(request["argument"]))
    answer = {"kind": type(refused).__name__, "message": refused.message, "hint": refused.hint}
    (folder / RESULT).write_text(json.dumps(answer), encoding="utf-8")
    return TilewrightError.exit_code


def _told(error: Exception, argument: str) -> TilewrightError:
    """An error of torch, of a package beside it or of the user's code, in words."""
    broken = broken_companion(error)
    if broken is not None:
        name, fault = broken
        return TargetError(
            f"{argument} could not be exported: the package {name} does not load ({fault})",
            hint=f"Install the {name} that fits the installed torch, or remove it: "
            f"pip uninstall {name}",
        )
    return ModelError(
        f"{argument} could not be exported: {described(error)}", hint=where_raised(error)
    )


def write_program(
    torch: Any, program: Any, path: Path, outputs: Sequence[str] | None = None
) -> None:
    """Write a `torch.export.ExportedProgram` as ONNX, with names for its outputs where given."""
    with torch.no_grad():
        made: Any = torch.onnx.export(
            program,
            dynamo=True,
            optimize=True,
            verbose=False,
            output_names=None if outputs is None else list(outputs),
        )
    made.save(str(path))
    _without_traces(path)


def traced(torch: Any, request: Request) -> Any:
    """The `torch.export.ExportedProgram` of a request.

    Raises UsageError and TargetError for what the request names and is not there; errors of the
    user's code and of torch come as they are.
    """
    if request["kind"] == "program":
        return _program(torch, request)
    torch.manual_seed(request["seed"])
    if request["kind"] == "transformer":
        return _transformer(torch, request)
    return _users_own(torch, request)


def _program(torch: Any, request: Request) -> Any:
    try:
        return torch.export.load(request["path"])
    except Exception as error:  # noqa: BLE001 - it raises whatever a damaged file provokes
        raise ModelError(
            f"{quoted(request['argument'])} is not what torch.export.save writes, or is damaged: "
            f"{described(error)}"
        ) from error


def _without_traces(path: Path) -> None:
    """Drop where in whose files each node came from: it is of no use here, and half of the file."""
    model = onnx.load_model_from_string(path.read_bytes())
    graph, nodes = model.graph, [*model.graph.node, *(n for f in model.functions for n in f.node)]
    values = (*graph.value_info, *graph.input, *graph.output)
    for part in (graph, *model.functions, *nodes, *values):
        del part.metadata_props[:]
    for node in nodes:
        node.doc_string = ""
    path.write_bytes(model.SerializeToString(deterministic=True))


def _transformer(torch: Any, request: Request) -> Any:
    """An architecture of transformers, traced; its weights are what it starts training from."""
    library: Any = import_module("transformers")
    for name in (request["configuration"], request["model"]):
        if not hasattr(library, name):
            raise TargetError(
                f"{quoted(request['argument'])}: transformers {library.__version__} has no {name}",
                hint="pip install 'tilewright[transformers]'",
            )
    configuration = getattr(library, request["configuration"])(**request["fields"])
    configuration._attn_implementation = "eager"
    network = getattr(library, request["model"])(configuration).eval()
    generator = torch.Generator().manual_seed(request["seed"])
    _disturb_constants(torch, network, generator)
    wrapped = _returning(torch, network, request["outputs"], request["positions"])
    types = {name: torch.int64 for name in request["integers"]}
    given = tensors_of(torch, request["inputs"], types)
    return torch.export.export(wrapped, (), kwargs=given)


def _disturb_constants(torch: Any, network: Any, generator: Any) -> None:
    """Biases and scales start as zeros and ones, which hide errors and fold away: move them."""
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            if tensor.is_floating_point() and tensor.numel() > 1 and tensor.min() == tensor.max():
                noise = torch.rand(tensor.shape, generator=generator) * 2 - 1
                tensor.add_(_JITTER * noise)


def _returning(torch: Any, network: Any, outputs: list[str], positions: int | None) -> Any:
    """The network with plain tensors as results, told the positions of tokens where asked."""

    def forward(_: Any, **given: Any) -> Any:
        if positions is not None:
            length = next(iter(given.values())).shape[1]
            given["position_ids"] = torch.arange(positions, positions + length)[None]
        result = network(**given)
        return tuple(result[name] for name in outputs)

    wrapped = type("Returning", (torch.nn.Module,), {"forward": forward})()
    wrapped.network = network
    return wrapped


def _users_own(torch: Any, request: Request) -> Any:
    """`MODULE:NAME` from the user's search path and the current folder, traced."""
    sys.path.insert(0, str(Path.cwd()))
    found, example = _called(torch, _attribute(request), request["argument"])
    if isinstance(found, torch.export.ExportedProgram):
        return found
    found.eval()
    return traced_module(torch, found, example, request["shapes"], request["batch"])


def traced_module(torch: Any, network: Any, example: Any, shapes: Shapes, batch: int | None) -> Any:
    """The `torch.export.ExportedProgram` of a module; arguments as of `inputs_of_module`."""
    given = inputs_of_module(torch, network.forward, example, shapes, batch)
    return torch.export.export(network, (), kwargs=given)


def _attribute(request: Request) -> Any:
    """What MODULE:NAME is. An error while the module is imported is the user's to see as it is."""
    argument, module, name = quoted(request["argument"]), request["module"], request["name"]
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"{argument}: no module {quoted(error.name)} here",
            hint="MODULE is searched as `python -m` does: the current folder, then what is "
            "installed.",
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            known = [entry for entry in dir(found) if not entry.startswith("_")]
            raise UsageError(
                f"{argument}: {quoted(module)} has no {quoted(part)}",
                hint=close_matches(part, known, quoted),
            )
        found = getattr(found, part)
    return found


def _called(torch: Any, found: Any, argument: str) -> tuple[Any, Any]:
    """The module or exported program that a thing is or returns, and its example inputs."""
    kinds = (torch.nn.Module, torch.export.ExportedProgram)
    made: Any = found if isinstance(found, kinds) or not callable(found) else _made(found, argument)
    paired = isinstance(made, tuple) and len(cast("tuple[Any, ...]", made)) == 2
    network, example = cast("tuple[Any, Any]", made if paired else (made, None))
    if not isinstance(network, kinds):
        raise UsageError(
            f"{quoted(argument)} gives a {type(network).__name__}, not a torch.nn.Module",
            hint="NAME is a module, a class, or a function without arguments that returns a "
            "module, or a module and its example inputs.",
        )
    return network, example


def _made(function: Any, argument: str) -> Any:
    """What a class or function gives that is called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise UsageError(
            f"{quoted(argument)} needs arguments: {', '.join(needed)}",
            hint="NAME is a module, or a class or function that can be called without arguments: "
            "write one that fills them in.",
        )
    return function()


COMPANIONS = ("torchvision", "torchaudio")
"""Packages that transformers and models import where they are installed, and that fit one version
of torch alone."""
PACKAGES = ("torch", "onnxscript", "transformers", *COMPANIONS)
"""Everything that an export may import."""
_LINES = 4


def described(error: BaseException) -> str:
    """The kind of an error and the first line that it says, printable."""
    lines = _said(error)
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def where_raised(error: BaseException) -> str | None:
    """The rest of what an error says, and the place in the user's code that it comes from."""
    lines = _said(error)[1:_LINES]
    ours = (Path(__file__).parents[2], *_folder_of("torch"), _STANDARD_LIBRARY)
    frames = extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if not frame.filename.startswith("<")
        and not any(Path(frame.filename).is_relative_to(folder) for folder in ours)
    ]
    if theirs:
        last = theirs[-1]
        lines.append(
            f"It comes from {quoted(last.filename)}, line {last.lineno}, in {quoted(last.name)}."
        )
    return "\n".join(lines) or None


def broken_companion(error: BaseException) -> tuple[str, str] | None:
    """The package that is behind an error, and what its import says; None where none is broken."""
    told = " ".join(_chain_texts(error))
    for name, fault in load_faults([name for name in COMPANIONS if name in told]).items():
        return name, fault
    return None


def load_faults(names: Sequence[str]) -> Mapping[str, str]:
    """What is said by the imports, in this process, of those packages that are installed and do not
    load."""
    faults: dict[str, str] = {}
    for name in names:
        try:
            if find_spec(name) is not None:
                import_module(name)
        except Exception as error:  # noqa: BLE001 - a package says what it likes when it breaks
            faults[name] = described(error)
    return faults


def print_faults() -> None:
    """Write what of `PACKAGES` does not load as JSON: the part of `broken_packages` that runs in a
    process of its own."""
    with redirect_stdout(sys.stderr):
        faults = load_faults(PACKAGES)
    sys.stdout.write(json.dumps(faults))


def _said(error: BaseException) -> list[str]:
    return [quoted(line.strip())[1:-1] for line in str(error).splitlines() if line.strip(" ^~")]


def _chain_texts(error: BaseException | None) -> Iterator[str]:
    """Messages and files of an error and of those behind it."""
    while error is not None:
        yield str(error)
        yield from (frame.filename for frame in extract_tb(error.__traceback__))
        error = error.__cause__ or error.__context__


def _folder_of(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(spec.origin).parent] if spec is not None and spec.origin else []


_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(print_faults())
    die_with_parent(int(sys.argv[2]))
    sys.exit(main(Path(sys.argv[1]), json.load(sys.stdin)))
