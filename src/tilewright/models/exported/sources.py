"""`hf:`, `torch:` and `.pt2` arguments as requests to the exporter.

`hf:bert[layers=2,...]` is an architecture of transformers, by configuration, with random weights.
Nothing of transformers is imported here: a table says which classes make the network and how our
parameters map to the fields of its configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from tilewright.core.errors import UsageError, close_matches, quoted
from tilewright.core.input_files import require_regular
from tilewright.models.exported.conversion import ExportRequest
from tilewright.models.loaded import ModelOptions
from tilewright.models.source import Value, label, read_values, reading, shown, split_brackets

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
            key: tuple(_whole(values, axis) for axis in axes) for key, axes in inputs.items()
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
        hidden = _whole(values, "hidden")
        heads = values.setdefault("heads", max(1, hidden // 64))
        values.setdefault("intermediate", 4 * hidden)
        if hidden % _whole(values, "heads"):
            raise UsageError(f"{owner}: {heads} heads do not divide hidden={hidden}")
    if "patch" in given and _whole(values, "image") % _whole(values, "patch"):
        raise UsageError(
            f"{owner}: patch={values['patch']} does not divide image={values['image']}"
        )
    stages = {key: value for key, value in values.items() if isinstance(value, tuple)}
    if len({len(value) for value in stages.values()}) > 1:
        listed = ", ".join(f"{key} {shown(value)}" for key, value in stages.items())
        raise UsageError(f"{owner}: not the same number of stages: {listed}")
    return values


def _whole(values: Values, key: str) -> int:
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
        extras=lambda v: {"max_position_embeddings": max(512, _whole(v, "sequence"))},
    ),
    "roberta": Architecture(
        configuration="RobertaConfig",
        model="RobertaModel",
        defaults={**_BASE, "vocabulary": 50265, "sequence": 128},
        fields={**_ENCODER, "vocabulary": "vocab_size"},
        outputs=("last_hidden_state", "pooler_output"),
        extras=lambda v: {
            "max_position_embeddings": max(512, _whole(v, "sequence")) + 2,
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
        extras=lambda v: {"n_positions": max(1024, _whole(v, "sequence")), "use_cache": False},
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
            "num_stages": len(_listed(v, "depths")), "image_size": _whole(v, "image"),
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
        extras=lambda v: {"layer_type": "bottleneck" if _whole(v, "bottleneck") else "basic"},
    ),
}  # fmt: skip
"""Every architecture by name; the defaults are BERT base, RoBERTa base, GPT-2 small, ViT-B/16,
ConvNeXt-T and ResNet-50."""
