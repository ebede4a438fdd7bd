"""Networks that people bring, as PyTorch modules with seeded random weights: segmenters, detectors,
speech and language models, each with example inputs.

`exported_networks` exports and judges them. A module here is made when it is asked for; it needs
the extra `transformers`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

Example = tuple[nn.Module, tuple[torch.Tensor, ...]]
NETWORKS: dict[str, Callable[[], Example]] = {}


def network(function: Callable[[], Example]) -> Callable[[], Example]:
    """Add a network under its function's name."""
    NETWORKS[function.__name__] = function
    return function


def image(side: int, channels: int = 3) -> torch.Tensor:
    """A random picture."""
    return torch.randn(1, channels, side, side)


def tokens(count: int, vocabulary: int = 1000) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(0, vocabulary, (1, count))


class Named(nn.Module):
    """A model of transformers with positional inputs and a tuple of results."""

    def __init__(self, model: nn.Module, names: Sequence[str], results: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names, self.results = model, tuple(names), tuple(results)

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The named results."""
        found = self.model(**dict(zip(self.names, given, strict=True)), return_dict=True)
        return tuple(found[name] for name in self.results)


def convolutions(before: int, after: int) -> nn.Module:
    """Two convolutions with batch norms."""
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """U-Net with bilinear upsampling (Ronneberger, Fischer, Brox 2015)."""

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256), classes: int = 21) -> None:
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList(convolutions(*pair) for pair in pairs)
        backward = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.up = nn.ModuleList(convolutions(a + b, b) for a, b in backward)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores of each pixel."""
        kept = []
        for layer in self.down:
            x = layer(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for layer, beside in zip(self.up, kept[-2::-1], strict=True):
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = layer(torch.cat([beside, x], 1))
        return self.head(x)


@network
def unet() -> Example:
    return UNet(), (image(224),)


class YoloLike(nn.Module):
    """A one-stage detector with SiLU, a pyramid and anchors-free heads, boxes decoded."""

    def __init__(self, classes: int = 20, width: int = 24) -> None:
        super().__init__()

        def step(a: int, b: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.SiLU())

        def same(a: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(a, a, 1), nn.SiLU(), nn.Conv2d(a, a, 3, padding=1), nn.SiLU()
            )

        w = width
        self.stem = nn.Sequential(step(3, w), step(w, 2 * w), same(2 * w))
        self.levels = nn.ModuleList(
            nn.Sequential(step(2 * w * 2**n, 4 * w * 2**n), same(4 * w * 2**n)) for n in range(3)
        )
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.lateral = nn.ModuleList(nn.Conv2d(4 * w * 2**n, 64, 1) for n in range(3))
        self.heads = nn.ModuleList(nn.Conv2d(64, 4 + classes, 3, padding=1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Boxes and scores of every place of three levels."""
        x, kept = self.stem(x), []
        for level in self.levels:
            x = level(x)
            kept.append(x)
        kept[-1] = kept[-1] + self.pool(kept[-1])
        above, boxes, scores = None, [], []
        for n in (2, 1, 0):
            here = self.lateral[n](kept[n])
            if above is not None:
                here = here + F.interpolate(above, scale_factor=2.0, mode="nearest")
            above = here
            found = self.heads[n](here).flatten(2).transpose(1, 2)
            high, wide = here.shape[2:]
            rows, columns = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
            centre = torch.stack([columns, rows], -1).reshape(1, -1, 2) + 0.5
            sides = found[..., 2:4].exp() * 0.5
            middle = centre + found[..., :2].sigmoid()
            boxes.append(torch.cat([middle - sides, middle + sides], -1) * 8 * 2**n)
            scores.append((30 * found[..., 4:]).sigmoid())  # far apart, so that no two are equal
        return torch.cat(boxes, 1), torch.cat(scores, 1)


@network
def yolo_like() -> Example:
    return YoloLike(), (image(256),)


def transformer(
    model: str, names: Sequence[str], results: Sequence[str], **configuration: Any
) -> nn.Module:
    """A model of transformers from its configuration alone."""
    family = model.partition("For")[0].removesuffix("Model").removesuffix("Encoder")
    kind = getattr(transformers, f"{family}Config")
    made = kind(**configuration)
    made._attn_implementation = "eager"  # what every exporter takes
    return Named(getattr(transformers, model)(made), names, results)


@network
def detr_like() -> Example:
    class Detr(nn.Module):
        """A convolutional stem, a transformer over its places, and queries for boxes."""

        def __init__(self) -> None:
            super().__init__()
            widths = (3, 32, 64, 128, 256)
            self.stem = nn.Sequential(
                *(
                    nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU())
                    for a, b in zip(widths, widths[1:], strict=False)
                )
            )
            self.places = nn.Parameter(torch.randn(196, 1, 256))
            self.queries = nn.Parameter(torch.randn(50, 1, 256))
            self.body = nn.Transformer(256, 8, 2, 2, 1024, dropout=0.0)
            self.classes, self.boxes = nn.Linear(256, 21), nn.Linear(256, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            seen = self.stem(x).flatten(2).permute(2, 0, 1) + self.places
            found = self.body(seen, self.queries).transpose(0, 1)
            return self.classes(found), self.boxes(found).sigmoid()

    return Detr(), (image(224),)


@network
def dpt_like() -> Example:
    return (
        transformer(
            "DPTForDepthEstimation", ["pixel_values"], ["predicted_depth"],
            image_size=192, hidden_size=192, num_hidden_layers=4, num_attention_heads=3,
            intermediate_size=768, backbone_out_indices=[0, 1, 2, 3], is_hybrid=False,
            neck_hidden_sizes=[48, 96, 192, 192], fusion_hidden_size=64,
        ),
        (image(192),),
    )  # fmt: skip


@network
def segformer() -> Example:
    return transformer("SegformerForSemanticSegmentation", ["pixel_values"], ["logits"]), (
        image(224),
    )


@network
def beit() -> Example:
    return (
        transformer(
            "BeitForImageClassification", ["pixel_values"], ["logits"], image_size=224,
            hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768,
            use_relative_position_bias=True,
        ),
        (image(224),),
    )  # fmt: skip


@network
def levit() -> Example:
    return transformer("LevitForImageClassification", ["pixel_values"], ["logits"]), (image(224),)


@network
def pvt() -> Example:
    return transformer("PvtForImageClassification", ["pixel_values"], ["logits"]), (image(224),)


@network
def convnext_v2() -> Example:
    return (
        transformer(
            "ConvNextV2ForImageClassification", ["pixel_values"], ["logits"],
            hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2],
        ),
        (image(224),),
    )  # fmt: skip


SMALL = {
    "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 1024,
}  # fmt: skip


@network
def roberta() -> Example:
    names = ["input_ids", "attention_mask"]
    model = transformer("RobertaForSequenceClassification", names, ["logits"], **SMALL)
    return model, (tokens(128), torch.ones(1, 128, dtype=torch.int64))


@network
def albert() -> Example:
    names = ["input_ids", "attention_mask"]
    model = transformer(
        "AlbertForSequenceClassification", names, ["logits"], embedding_size=64, **SMALL
    )
    return model, (tokens(128), torch.ones(1, 128, dtype=torch.int64))


T5 = {"vocab_size": 1000, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 4, "num_heads": 4}


@network
def t5_encoder() -> Example:
    return transformer("T5EncoderModel", ["input_ids"], ["last_hidden_state"], **T5), (tokens(96),)


@network
def t5_decoder() -> Example:
    class Decoder(nn.Module):
        """Scores of the next tokens from what the encoder gave."""

        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5))

        def forward(self, states: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            found = self.model(encoder_outputs=(states,), decoder_input_ids=ids, use_cache=False)
            return found.logits

    return Decoder(), (torch.randn(1, 96, 256), tokens(32))


class CachedDecoder(nn.Module):
    """A decoder whose cache is among its inputs and outputs: grouped heads, rotary positions."""

    def __init__(self, layers: int = 4, width: int = 256, heads: int = 8, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.depth = heads, groups, width // heads
        small = groups * self.depth
        self.embed = nn.Embedding(1000, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width), "q": nn.Linear(width, width),
                    "k": nn.Linear(width, small), "v": nn.Linear(width, small),
                    "out": nn.Linear(width, width), "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000, bias=False)

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Scores of the next token, then keys and values of every layer."""
        x, before, caches = self.embed(ids), past[0].shape[2], []
        count = ids.shape[1]
        position = torch.arange(before, before + count)
        turn = 10000.0 ** (-torch.arange(0, self.depth, 2) / self.depth)
        angle = position[:, None] * turn
        cosine, sine = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        every = torch.arange(before + count)
        mask = torch.where(every[None, :] <= position[:, None], 0.0, float("-inf"))

        def rotated(t: torch.Tensor) -> torch.Tensor:
            low, high = t.chunk(2, -1)
            return t * cosine + torch.cat([-high, low], -1) * sine

        for number, layer in enumerate(self.layers):
            y = layer["norm"](x)
            q, k, v = (
                layer[name](y).reshape(1, count, -1, self.depth).transpose(1, 2) for name in "qkv"
            )
            k = torch.cat([past[2 * number], rotated(k)], 2)
            v = torch.cat([past[2 * number + 1], v], 2)
            caches += [k, v]
            times = self.heads // self.groups
            keys, values = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
            scores = rotated(q) @ keys.transpose(-1, -2) * self.depth**-0.5 + mask
            seen = (scores.softmax(-1) @ values).transpose(1, 2).reshape(1, count, -1)
            x = x + layer["out"](seen) + layer["down"](F.gelu(layer["up"](y)))
        return self.head(self.norm(x)), *caches


def cached(count: int, before: int) -> Example:
    """The decoder for so many tokens behind a cache."""
    past = [torch.randn(1, 2, before, 32) for _ in range(8)]
    return CachedDecoder(), (tokens(count), *past)


@network
def decoder_step() -> Example:
    return cached(1, 127)


@network
def decoder_prefill() -> Example:
    return cached(64, 0 + 1)


@network
def gpt_neox() -> Example:
    model = transformer("GPTNeoXForCausalLM", ["input_ids"], ["logits"], use_cache=False, **SMALL)
    return model, (tokens(64),)


@network
def wav2vec2() -> Example:
    return (
        transformer(
            "Wav2Vec2ForCTC", ["input_values"], ["logits"], vocab_size=32, hidden_size=256,
            num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
            conv_dim=(128,) * 7, num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=8,
        ),
        (torch.randn(1, 16000),),
    )  # fmt: skip


@network
def mamba_like() -> Example:
    class Scan(nn.Module):
        """A selective state space written out as a cumulative form (Gu, Dao 2023)."""

        def __init__(self, width: int = 128, state: int = 16) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
            self.mix = nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
            self.select = nn.Linear(2 * width, 1 + 2 * state)
            self.decay = nn.Parameter(torch.rand(2 * width, state))
            self.state, self.width = state, width

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            count = x.shape[1]
            u, gate = self.into(x).chunk(2, -1)
            u = F.silu(self.mix(u.transpose(1, 2))[..., :count].transpose(1, 2))
            step, b, c = self.select(u).split([1, self.state, self.state], -1)
            step = F.softplus(step)
            decay = torch.exp(-step[..., None] * self.decay)
            given = step[..., None] * b[:, :, None, :] * u[..., None]
            h, found = torch.zeros_like(given[:, 0]), []
            for place in range(count):
                h = decay[:, place] * h + given[:, place]
                found.append((h * c[:, place, None, :]).sum(-1))
            return self.out(torch.stack(found, 1) * F.silu(gate))

    return nn.Sequential(Scan(), Scan()), (torch.randn(1, 32, 128),)


@network
def lstm_tagger() -> Example:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(1000, 128)
            self.body = nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(512, 17)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.embed(ids))[0])

    return Tagger(), (tokens(64),)


@network
def gru_speech() -> Example:
    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front = nn.Sequential(nn.Conv1d(80, 256, 5, 2, 2), nn.ReLU())
            self.body = nn.GRU(256, 512, 2, batch_first=True)
            self.head = nn.Linear(512, 40)

        def forward(self, sound: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.front(sound).transpose(1, 2))[0])

    return Speech(), (torch.randn(1, 80, 200),)


@network
def float16() -> Example:
    model, (picture,) = convnext_v2()
    return model.half(), (picture.half(),)


MORE = Path(__file__).parent / "more_networks.toml"


def more_networks() -> dict[str, Callable[[], Example]]:
    """The networks that a table describes by class and configuration."""
    entries: dict[str, dict[str, Any]] = tomllib.loads(MORE.read_text(encoding="utf-8"))
    return {name: partial(_described, entry) for name, entry in entries.items()}


def _described(entry: dict[str, Any]) -> Example:
    if "tokens" in entry:
        ids, names = tokens(entry["tokens"]), ["input_ids", "attention_mask"]
        inputs = (ids, torch.ones_like(ids)) if entry.get("mask", True) else (ids,)
    elif "image" in entry:
        inputs, names = (image(entry["image"]),), ["pixel_values"]
    else:
        inputs, names = (torch.randn(1, entry["samples"]),), ["input_values"]
    names = names[: len(inputs)]
    return transformer(entry["model"], names, [entry["result"]], **entry["configuration"]), inputs
