"""`hf:`, `torch:` and `.pt2` arguments as requests to a process that exports, and what was exported
before.

PyTorch never enters this process: its threads would spin beside what is timed here, and a user's
own code may print, crash or call exit.

`hf:bert[layers=2,...]` is an architecture of transformers, by configuration, with random weights.
Nothing of transformers is imported here: a table says which classes make the network and how our
parameters map to the fields of its configuration.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.core.codec import digest
from tilewright.core.errors import ModelError, TargetError, UsageError, close_matches, quoted
from tilewright.core.input_files import require_regular
from tilewright.core.scratch import PrivateFolder, remove_unused, scratch_folder
from tilewright.core.settings import child_environment
from tilewright.models.cache import EXPORTS, PARTIAL, use
from tilewright.models.loaded import ModelOptions, OnnxReference
from tilewright.models.source import Value, label, read_values, reading, shown, split_brackets

FORMAT = 1
"""Rises when the same request is exported to another file, so that older ones are not taken."""

EXPORTER = "tilewright.models.exported.exporter"
_OTHERS = {"relax": "tilewright.compiler.relax_export"}
"""Exporters of other things than models of PyTorch, by the kind of a request."""
MODEL, RESULT, SIZES = "model.onnx", "result.json", "sizes.json"
REMARK = "tilewright.remark"
"""The key of a model's metadata under which an exporter says something about it."""
_TAIL_LINES = 8
_ERRORS = {kind.__name__: kind for kind in (UsageError, ModelError, TargetError)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is to be exported.

    `argument` is what the user wrote, for messages; `content` all that the result depends on, as
    JSON; `packages` what must be installed, and `extra` the name of tilewright's extra that brings
    it. `lasting` says that equal contents give equal files: only such results are kept.
    """

    argument: str
    content: Mapping[str, Any]
    packages: Sequence[str] = ("torch", "onnxscript")
    extra: str = "torch"
    lasting: bool = True


def export(request: ExportRequest, cache: Path) -> OnnxReference:
    """Export, or find what was exported before by the same versions.

    Raises TargetError where a package is missing, what the exporter raised, and ModelError where
    it broke down, with the last lines it said.
    """
    require_packages(request)
    kept = cache / EXPORTS / _key(request)
    if request.lasting and (found := _kept_export(kept)):
        return found
    folder = scratch_folder()
    run_exporter({**request.content, "argument": request.argument}, folder.path)
    if request.lasting and keep(folder.path, kept, MODEL) and (found := _kept_export(kept)):
        return found
    return OnnxReference(path=folder.path / MODEL, keeper=folder)


def require_packages(request: ExportRequest) -> None:
    """Raise TargetError, with the command that helps, where a package is not installed."""
    missing = [name for name in request.packages if find_spec(name) is None]
    if missing:
        raise TargetError(
            f"{quoted(request.argument)} needs {' and '.join(missing)}, not installed here",
            hint=f"pip install 'tilewright[{request.extra}]', or: pip install {' '.join(missing)}",
        )


def broken_packages() -> Mapping[str, str]:
    """The packages for PyTorch's models that are installed and do not load, with what they say.

    They are loaded in a process of their own; one that crashes it is told as `torch`.
    """
    if find_spec("torch") is None:
        return {}
    done = _run(EXPORTER, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        found: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        return {"torch": f"importing it ends with exit code {done.returncode}"}
    return found


def _run(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[str]:
    """Run a module with our search path; what it prints, also what is no text."""
    search_path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        env=child_environment(PYTHONPATH=search_path, **(environment or {})),
        check=False,
        **streams,
    )


def run_exporter(content: Mapping[str, Any], folder: Path) -> None:
    """Run the exporter in a process of its own: it writes `model.onnx` into the folder. Raises as
    `export`."""
    with scratch_folder() as scratch:
        places = str(folder), str(os.getpid())
        done = _run(
            _OTHERS.get(content.get("kind", ""), EXPORTER),
            *places,
            environment={"TMPDIR": str(scratch)},
            input=json.dumps(content),
            stderr=subprocess.STDOUT,
        )
    with suppress(FileNotFoundError):
        answer = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        raise _ERRORS[answer["kind"]](answer["message"], hint=answer["hint"])
    if done.returncode or not (folder / MODEL).is_file():
        said = [line for line in done.stdout.splitlines() if line.strip(" ^~")][-_TAIL_LINES:]
        last = quoted(said[-1].strip())[1:-1] if said else f"exit code {done.returncode}"
        raise ModelError(
            f"{quoted(content['argument'])} could not be exported: {last}",
            hint="\n".join(["The last it said:", *said]) if said else None,
        )


def _key(request: ExportRequest) -> str:
    versions = {name: _version(name) for name in (*request.packages, "onnx")}
    return digest(json.dumps([FORMAT, request.content, versions], sort_keys=True), length=32)


def _version(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return "unknown"


def _kept_export(kept: Path) -> OnnxReference | None:
    """An earlier export, held from now on; None where it is not there or not whole."""
    held = use(kept)
    return OnnxReference(path=kept / MODEL, keeper=held) if held and _whole(kept, MODEL) else None


def _whole(kept: Path, model: str) -> bool:
    """Whether every file of an earlier export is there in its length."""
    try:
        sizes = json.loads((kept / SIZES).read_text(encoding="utf-8"))
        return model in sizes and all(
            (kept / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def keep(made: Path, kept: Path, model: str) -> bool:
    """Put a folder with the file `model` into the cache at once, or leave a faster process's;
    whether one is there."""
    try:
        with PrivateFolder(kept.parent, PARTIAL) as folder:
            partial = folder / kept.name
            shutil.copytree(made, partial)
            sizes = {path.name: path.stat().st_size for path in partial.iterdir()}
            (partial / SIZES).write_text(json.dumps(sizes), encoding="utf-8")
            if not _whole(kept, model):
                remove_unused(kept)
                partial.replace(kept)
    except (OSError, shutil.Error):
        return _whole(kept, model)
    return True


_PLACE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def transformer_request(text: str, options: ModelOptions) -> tuple[str, ExportRequest]:
    """A readable name, and the request for the text after `hf:`.

    The network is traced with the shapes that are asked for. Raises UsageError as
    `transformer_model`, for unknown inputs and for shapes of another number of axes.
    """
    name, model = transformer_model(text)
    shapes: dict[str, tuple[int, ...]] = {
        name: (options.batch or 1, *shape) for name, shape in model["inputs"].items()
    }
    for entry, shape in options.shapes.items():
        if entry not in shapes:
            raise UsageError(
                f"the model has no input {quoted(entry)}", hint=close_matches(entry, shapes, quoted)
            )
        if len(shape) != len(shapes[entry]):
            raise UsageError(
                f"shape {list(shape)} of input {quoted(entry)} is not possible: without --shape it "
                f"is {list(shapes[entry])}"
            )
        shapes[entry] = shape
    content = {**model, "kind": "transformer", "inputs": shapes, "seed": options.seed}
    request = ExportRequest(
        argument=f"hf:{text}",
        content=content,
        packages=("torch", "onnxscript", "transformers"),
        extra="transformers",
    )
    return name, request


def torch_request(text: str, options: ModelOptions) -> tuple[str, ExportRequest]:
    """A readable name, and the request for the text after `torch:`.

    It is exported anew each time, for the user's code may have changed. Raises UsageError for what
    is not of the form MODULE:NAME.
    """
    place = _PLACE.fullmatch(text)
    if place is None:
        raise UsageError(
            f"{quoted('torch:' + text)} is not of the form torch:MODULE:NAME",
            hint="For instance torch:torchvision.models:resnet50, or torch:mine:network for "
            "`network` in mine.py of the current folder.",
        )
    content = {
        "kind": "torch",
        "module": place[1],
        "name": place[2],
        "shapes": {name: list(shape) for name, shape in options.shapes.items()},
        "batch": options.batch,
        "seed": options.seed,
    }
    return text, ExportRequest(argument=f"torch:{text}", content=content, lasting=False)


def program_request(path: Path) -> tuple[str, ExportRequest]:
    """A readable name, and the request for a file that torch.export.save wrote.

    Raises ModelError where it cannot be read.
    """
    with reading(path, ".pt2"):
        require_regular(path)
        with path.open("rb") as file:
            checksum = file_digest(file, "sha256").hexdigest()
    content = {"kind": "program", "path": str(path.absolute()), "sha256": checksum}
    return path.stem, ExportRequest(argument=str(path), content=content)


def module_request(path: Path, options: ModelOptions) -> tuple[str, ExportRequest]:
    """A readable name, and the request for a file with a module of Relax. It is read anew each
    time, for that takes little more than TVM takes to load.

    Raises ModelError where it cannot be read.
    """
    with reading(path, path.suffix):
        require_regular(path)
    content = {"kind": "relax", "path": str(path.absolute()), "seed": options.seed}
    return path.stem, ExportRequest(argument=str(path), content=content, packages=(), lasting=False)


Values = Mapping[str, Value]
Field = int | bool | str | list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A kind of network: of text where it has a vocabulary, else of images.

    `configuration` and `model` are class names in transformers; `defaults` our parameters (None:
    follows from the others, see `_completed`); `fields` maps them to the configuration's;
    `extras` gives further fields; `outputs` are the fields of the result that the network returns.
    `positions` is the first position a token can have where the network is to be told them.
    """

    configuration: str
    model: str
    defaults: Mapping[str, Value | None]
    fields: Mapping[str, str]
    outputs: Sequence[str]
    extras: Callable[[Values], Mapping[str, Field]] = lambda _: {}
    positions: int | None = None


def transformer_model(text: str) -> tuple[str, dict[str, Any]]:
    """A readable name and what the exporter has to know of the network for the text after `hf:`:
    classes, fields of the configuration, and inputs without the batch.

    Raises UsageError for unknown architectures and parameters and for impossible values.
    """
    name, inside = split_brackets("hf", text)
    if name not in ARCHITECTURES:
        raise UsageError(
            f"no architecture {quoted(name)} by configuration",
            hint=f"{close_matches(name, ARCHITECTURES)} Trained weights are not fetched: export "
            "the model to ONNX, or write torch:MODULE:NAME.",
        )
    kind = ARCHITECTURES[name]
    lists = [key for key, value in kind.defaults.items() if isinstance(value, tuple)]
    given = read_values(f"hf:{name}", inside, kind.defaults, lists)
    values = _completed(f"hf:{name}", {**kind.defaults, **given})
    text_inputs = {"input_ids": ("sequence",)} if "vocabulary" in kind.defaults else {}
    inputs = text_inputs or {"pixel_values": ("channels", "image", "image")}
    return label(name, given), {
        "configuration": kind.configuration,
        "model": kind.model,
        "fields": {theirs: values[ours] for ours, theirs in kind.fields.items()}
        | dict(kind.extras(values)),
        "inputs": {
            key: tuple(_number(values, axis) for axis in axes) for key, axes in inputs.items()
        },
        "integers": list(text_inputs),
        "outputs": kind.outputs,
        "positions": kind.positions,
    }


def _completed(owner: str, given: Mapping[str, Value | None]) -> dict[str, Value]:
    """Heads of 64 values and a fourfold intermediate width where they are not given; checked."""
    for key, value in given.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(number is not None and number < _LEAST.get(key, 1) for number in numbers):
            raise UsageError(f"{owner}: {key} cannot be {shown(value)}")
    values = {key: value for key, value in given.items() if value is not None}
    if "heads" in given:
        hidden = _number(values, "hidden")
        heads = values.setdefault("heads", max(1, hidden // 64))
        values.setdefault("intermediate", 4 * hidden)
        if hidden % _number(values, "heads"):
            raise UsageError(f"{owner}: {heads} heads do not divide hidden={hidden}")
    if "patch" in given and _number(values, "image") % _number(values, "patch"):
        raise UsageError(
            f"{owner}: patch={values['patch']} does not divide image={values['image']}"
        )
    stages = {key: value for key, value in values.items() if isinstance(value, tuple)}
    if len({len(value) for value in stages.values()}) > 1:
        listed = ", ".join(f"{key} {shown(value)}" for key, value in stages.items())
        raise UsageError(f"{owner}: not the same number of stages: {listed}")
    return values


def _number(values: Values, key: str) -> int:
    """A parameter that is one number."""
    return _listed(values, key)[0]


def _listed(values: Values, key: str) -> tuple[int, ...]:
    """A parameter that is one number per stage."""
    value = values[key]
    return value if isinstance(value, tuple) else (value,)


_LEAST = {"bottleneck": 0}
_BASE: dict[str, Value | None] = {
    "layers": 12, "hidden": 768, "heads": None, "intermediate": None,
}  # fmt: skip
_ENCODER = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
}
_IMAGES: dict[str, Value | None] = {"image": 224, "channels": 3, "classes": 1000}
_STAGES = {"depths": "depths", "widths": "hidden_sizes", "channels": "num_channels"}

ARCHITECTURES: Mapping[str, Architecture] = {
    "bert": Architecture(
        configuration="BertConfig",
        model="BertModel",
        defaults={**_BASE, "vocabulary": 30522, "sequence": 128},
        fields={**_ENCODER, "vocabulary": "vocab_size"},
        outputs=("last_hidden_state", "pooler_output"),
        extras=lambda v: {"max_position_embeddings": max(512, _number(v, "sequence"))},
    ),
    "roberta": Architecture(
        configuration="RobertaConfig",
        model="RobertaModel",
        defaults={**_BASE, "vocabulary": 50265, "sequence": 128},
        fields={**_ENCODER, "vocabulary": "vocab_size"},
        outputs=("last_hidden_state", "pooler_output"),
        extras=lambda v: {
            "max_position_embeddings": max(512, _number(v, "sequence")) + 2,
            "type_vocab_size": 1,
        },
        positions=2,
    ),
    "gpt2": Architecture(
        configuration="GPT2Config",
        model="GPT2LMHeadModel",
        defaults={**_BASE, "vocabulary": 50257, "sequence": 64},
        fields={
            "layers": "n_layer",
            "hidden": "n_embd",
            "heads": "n_head",
            "intermediate": "n_inner",
            "vocabulary": "vocab_size",
        },
        outputs=("logits",),
        extras=lambda v: {"n_positions": max(1024, _number(v, "sequence")), "use_cache": False},
    ),
    "vit": Architecture(
        configuration="ViTConfig",
        model="ViTForImageClassification",
        defaults={**_BASE, "patch": 16, **_IMAGES},
        fields={
            **_ENCODER, "patch": "patch_size", "image": "image_size", "channels": "num_channels",
            "classes": "num_labels",
        },
        outputs=("logits",),
    ),
    "convnext": Architecture(
        configuration="ConvNextConfig",
        model="ConvNextForImageClassification",
        defaults={"depths": (3, 3, 9, 3), "widths": (96, 192, 384, 768), **_IMAGES},
        fields={**_STAGES, "classes": "num_labels"},
        outputs=("logits",),
        extras=lambda v: {
            "num_stages": len(_listed(v, "depths")), "image_size": _number(v, "image"),
        },
    ),
    "resnet": Architecture(
        configuration="ResNetConfig",
        model="ResNetForImageClassification",
        defaults={
            "depths": (3, 4, 6, 3), "widths": (256, 512, 1024, 2048), "embedding": 64,
            "bottleneck": 1, **_IMAGES,
        },
        fields={**_STAGES, "embedding": "embedding_size", "classes": "num_labels"},
        outputs=("logits",),
        extras=lambda v: {"layer_type": "bottleneck" if _number(v, "bottleneck") else "basic"},
    ),
}  # fmt: skip
"""Every architecture by name; the defaults are BERT base, RoBERTa base, GPT-2 small, ViT-B/16,
ConvNeXt-T and ResNet-50."""
