"""The process that exports: the only module that imports torch and transformers to make a model.

`python -m tilewright.models.exported.exporter FOLDER PARENT` reads a request as JSON from stdin and
writes `model.onnx`, or `result.json` with an error, into the folder. It ends with the process
numbered PARENT.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import onnx

from tilewright.core.errors import ModelError, TargetError, TilewrightError, UsageError
from tilewright.core.signals import die_with_parent
from tilewright.models.exported.conversion import MODEL, RESULT
from tilewright.models.exported.example_inputs import Shapes, inputs_of_module, tensors_of
from tilewright.models.exported.failures import broken_companion, described, where_raised
from tilewright.models.naming import quoted, quoted_matches

Request = Mapping[str, Any]
_JITTER = 0.1


def main(folder: Path, request: Request) -> int:
    """Export a request into a folder; errors raised on purpose become `result.json`."""
    try:
        torch: Any = import_module("torch")
        write_program(torch, traced(torch, request), folder / MODEL, request.get("outputs"))
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
                hint=quoted_matches(part, known),
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


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    sys.exit(main(Path(sys.argv[1]), json.load(sys.stdin)))
