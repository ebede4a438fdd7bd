"""`hf:bert[layers=2,...]`: architectures of transformers, by configuration, with random weights.

Nothing of transformers is imported here: a form says which classes make the network and how our
parameters map to the fields of its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.core.errors import UsageError, close_matches
from tilewright.models.bracketed import Value, label, read_values, split_brackets
from tilewright.models.naming import quoted

Values = Mapping[str, Value]
Field = int | bool | str | list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputForm:
    """An input: its shape without the batch from the parameters, integers below `limit` or not."""

    name: str
    shape: Callable[[Values], tuple[int, ...]]
    integer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerForm:
    """An architecture.

    `configuration` and `model` are class names in transformers; `defaults` our parameters (None:
    follows from the others, see `_completed`); `fields` maps them to the configuration's;
    `extras` gives further fields; `outputs` are the fields of the result that the network returns.
    `positions` is the first position a token can have where the network is to be told them.
    """

    configuration: str
    model: str
    defaults: Mapping[str, Value | None]
    fields: Mapping[str, str]
    inputs: Sequence[InputForm]
    outputs: Sequence[str]
    extras: Callable[[Values], Mapping[str, Field]] = lambda _: {}
    positions: int | None = None

    @property
    def lists(self) -> tuple[str, ...]:
        """The parameters that are one number per stage."""
        return tuple(name for name, value in self.defaults.items() if isinstance(value, tuple))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerModel:
    """A network to be made: classes, fields of the configuration, and inputs without the batch."""

    name: str
    configuration: str
    model: str
    fields: Mapping[str, Field]
    inputs: Mapping[str, tuple[int, ...]]
    integers: Sequence[str] = field(default_factory=tuple[str, ...])
    outputs: Sequence[str] = field(default_factory=tuple[str, ...])
    positions: int | None = None


def transformer_model(text: str) -> TransformerModel:
    """The network for the text after `hf:`.

    Raises UsageError for unknown architectures and parameters and for impossible values.
    """
    name, inside = split_brackets("hf", text)
    if name not in FORMS:
        raise UsageError(
            f"no architecture {quoted(name)} by configuration",
            hint=f"{close_matches(name, FORMS)} Trained weights are not fetched: export the model "
            "to ONNX, or write torch:MODULE:NAME.",
        )
    form = FORMS[name]
    given = read_values(f"hf:{name}", inside, form.defaults, form.lists)
    values = _completed(f"hf:{name}", {**form.defaults, **given})
    fields: dict[str, Field] = {
        theirs: list(value) if isinstance(value := values[ours], tuple) else value
        for ours, theirs in form.fields.items()
    }
    return TransformerModel(
        name=label(name, given),
        configuration=form.configuration,
        model=form.model,
        fields={**fields, **form.extras(values)},
        inputs={entry.name: entry.shape(values) for entry in form.inputs},
        integers=tuple(entry.name for entry in form.inputs if entry.integer),
        outputs=form.outputs,
        positions=form.positions,
    )


def _completed(owner: str, given: Mapping[str, Value | None]) -> dict[str, Value]:
    """Heads of 64 values and a fourfold intermediate width where they are not given; checked."""
    for key, value in given.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(number is not None and number < _LEAST.get(key, 1) for number in numbers):
            raise UsageError(f"{owner}: {key} cannot be {_shown(value)}")
    values = {key: value for key, value in given.items() if value is not None}
    if "heads" in given:
        hidden = whole(values, "hidden")
        heads = values.setdefault("heads", max(1, hidden // 64))
        values.setdefault("intermediate", 4 * hidden)
        if hidden % whole(values, "heads"):
            raise UsageError(f"{owner}: {heads} heads do not divide hidden={hidden}")
    if "patch" in given and whole(values, "image") % whole(values, "patch"):
        raise UsageError(
            f"{owner}: patch={values['patch']} does not divide image={values['image']}"
        )
    stages = {key: value for key, value in values.items() if isinstance(value, tuple)}
    if len({len(value) for value in stages.values()}) > 1:
        listed = ", ".join(f"{key} {_shown(value)}" for key, value in stages.items())
        raise UsageError(f"{owner}: not the same number of stages: {listed}")
    return values


def whole(values: Values, key: str) -> int:
    """A parameter that is one number."""
    value = values[key]
    return value if isinstance(value, int) else value[0]


def _shown(value: Value | None) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _sentence(values: Values) -> tuple[int, ...]:
    return (whole(values, "sequence"),)


def _picture(values: Values) -> tuple[int, ...]:
    return (whole(values, "channels"), whole(values, "image"), whole(values, "image"))


_LEAST = {"bottleneck": 0}
_TOKENS = (InputForm(name="input_ids", shape=_sentence, integer=True),)
_PIXELS = (InputForm(name="pixel_values", shape=_picture),)
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

FORMS: Mapping[str, TransformerForm] = {
    "bert": TransformerForm(
        configuration="BertConfig",
        model="BertModel",
        defaults={**_BASE, "vocabulary": 30522, "sequence": 128},
        fields={**_ENCODER, "vocabulary": "vocab_size"},
        inputs=_TOKENS,
        outputs=("last_hidden_state", "pooler_output"),
        extras=lambda v: {"max_position_embeddings": max(512, whole(v, "sequence"))},
    ),
    "roberta": TransformerForm(
        configuration="RobertaConfig",
        model="RobertaModel",
        defaults={**_BASE, "vocabulary": 50265, "sequence": 128},
        fields={**_ENCODER, "vocabulary": "vocab_size"},
        inputs=_TOKENS,
        outputs=("last_hidden_state", "pooler_output"),
        extras=lambda v: {
            "max_position_embeddings": max(512, whole(v, "sequence")) + 2,
            "type_vocab_size": 1,
        },
        positions=2,
    ),
    "gpt2": TransformerForm(
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
        inputs=_TOKENS,
        outputs=("logits",),
        extras=lambda v: {"n_positions": max(1024, whole(v, "sequence")), "use_cache": False},
    ),
    "vit": TransformerForm(
        configuration="ViTConfig",
        model="ViTForImageClassification",
        defaults={**_BASE, "patch": 16, **_IMAGES},
        fields={
            **_ENCODER, "patch": "patch_size", "image": "image_size", "channels": "num_channels",
            "classes": "num_labels",
        },
        inputs=_PIXELS,
        outputs=("logits",),
    ),
    "convnext": TransformerForm(
        configuration="ConvNextConfig",
        model="ConvNextForImageClassification",
        defaults={"depths": (3, 3, 9, 3), "widths": (96, 192, 384, 768), **_IMAGES},
        fields={**_STAGES, "classes": "num_labels"},
        inputs=_PIXELS,
        outputs=("logits",),
        extras=lambda v: {"num_stages": len(_stages(v)), "image_size": whole(v, "image")},
    ),
    "resnet": TransformerForm(
        configuration="ResNetConfig",
        model="ResNetForImageClassification",
        defaults={
            "depths": (3, 4, 6, 3), "widths": (256, 512, 1024, 2048), "embedding": 64,
            "bottleneck": 1, **_IMAGES,
        },
        fields={**_STAGES, "embedding": "embedding_size", "classes": "num_labels"},
        inputs=_PIXELS,
        outputs=("logits",),
        extras=lambda v: {"layer_type": "bottleneck" if whole(v, "bottleneck") else "basic"},
    ),
}  # fmt: skip
"""Every architecture by name; the defaults are BERT base, RoBERTa base, GPT-2 small, ViT-B/16,
ConvNeXt-T and ResNet-50."""


def _stages(values: Values) -> tuple[int, ...]:
    value = values["depths"]
    return value if isinstance(value, tuple) else (value,)
