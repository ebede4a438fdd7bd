"""Random configurations of single operators: what a collector measures.

Three quarters of them vary what real networks contain (about half of the sizes of a known
configuration are scaled), the others cover the ranges evenly on a logarithmic scale. A family's
`text` gives the `op:` text of one, the form in which every other verb takes it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import log2, prod

import numpy as np

from tilewright.core.errors import UsageError, close_matches
from tilewright.core.fingerprints import digest

Numbers = Mapping[str, int]
Random = np.random.Generator

_TRIES = 1000
_LARGEST_BYTES = 256 << 20
_NEARBY = 2.0
"""A known number is scaled by up to this factor, or its inverse."""
_ROUND = 0.75
"""Part of the numbers of channels that are multiples of eight, as networks have them."""
_KNOWN = 0.75
"""Part of the configurations that vary a known one; the others cover the ranges evenly."""
_VARIED, _CHANGED = 0.5, 0.15
"""Part of a known configuration's sizes that are scaled, of its windows and flags that change."""
_BESIDE = 1.5
"""A neighbour's number is scaled by up to this factor, or its inverse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Values of a parameter: from `low` to `high`, evenly on a logarithmic scale; `channels` are
    often multiples of eight; `few` values are all there are where they are given."""

    low: int = 1
    high: int = 1
    channels: bool = False
    few: tuple[int, ...] = ()

    def draw(self, random: Random) -> int:
        """A value."""
        if self.few:
            return int(random.choice(self.few))
        value = 2 ** random.uniform(log2(self.low), log2(self.high + 1))
        return self._near(value, random)

    def vary(self, value: int, random: Random) -> int:
        """A value near one that is known."""
        if self.few:
            return self.draw(random)
        return self._near(value * _NEARBY ** random.uniform(-1, 1), random)

    def beside(self, value: int, random: Random) -> int:
        """Another value close by, or the same where there is none: of a few values the next one up
        or down, else one that is up to half as large again, or that much smaller."""
        up = bool(random.random() < 0.5)
        if self.few:
            others = sorted({*self.few, value})
            return others[min(len(others) - 1, max(0, others.index(value) + (1 if up else -1)))]
        scaled = value * _BESIDE ** (random.uniform(0.2, 1) * (1 if up else -1))
        found = self._near(scaled, random)
        return found if found != value else min(self.high, max(self.low, value + (1 if up else -1)))

    def _near(self, value: float, random: Random) -> int:
        whole = max(self.low, min(self.high, int(value)))
        if self.channels and whole > 8 and random.random() < _ROUND:
            return whole // 8 * 8
        return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Operators that one predictor is for.

    `text` makes the `op:` text of some numbers; `possible` says whether they make sense together;
    `known` are configurations of real networks; numbers they leave open are drawn. `dtype` is the
    type that its operators compute in.
    """

    spans: Mapping[str, Span]
    text: Callable[[Numbers], str]
    size_bytes: Callable[[Numbers], int]
    possible: Callable[[Numbers], bool] = lambda _: True
    known: Sequence[Numbers] = field(default_factory=tuple[Numbers, ...])
    dtype: str = "float32"

    def fits(self, numbers: Numbers) -> bool:
        """Whether numbers make sense together and their tensors are not too large."""
        return self.possible(numbers) and self.size_bytes(numbers) <= _LARGEST_BYTES


def drawn(name: str, seed: int) -> Iterator[Numbers]:
    """Different configurations of a family, in a fixed order for a seed, until no new one turns up.

    Raises UsageError for an unknown family.
    """
    return _different(family_named(name), np.random.default_rng(seed))


def neighbours(name: str, numbers: Numbers, seed: int) -> Iterator[Numbers]:
    """Configurations that differ from one in a single number by a small factor: for each number at
    most one, in an order that follows from the configuration and the seed."""
    family = family_named(name)
    own = int(digest(family.text(numbers)), 16) % 2**32
    random = np.random.default_rng([seed, own])
    for key in random.permutation(sorted(family.spans)):
        other = {**numbers, str(key): family.spans[str(key)].beside(numbers[str(key)], random)}
        if other != numbers and family.fits(other):
            yield other


def of_type(name: str, dtype: str) -> str:
    """The name of the family that computes the same operator in this type: `conv2d` in `int8` is
    `conv2d_int8`. Raises UsageError where there is none."""
    if family_named(name).dtype == dtype:
        return name
    other = f"{name}_{dtype}"
    if other not in FAMILIES:
        known = [known for known, family in FAMILIES.items() if family.dtype == dtype]
        raise UsageError(
            f"there are no kernels of {name} in {dtype}",
            hint=f"Families in {dtype}: {', '.join(known)}." if known else "",
        )
    return other


def family_named(name: str) -> Family:
    """The family of this name. Raises UsageError for an unknown one, naming close ones."""
    if name not in FAMILIES:
        raise UsageError(f"no family of operators {name!r}", hint=close_matches(name, FAMILIES))
    return FAMILIES[name]


def collecting(family: str, *flags: str) -> str:
    """The command that measures kernels of a predictor's family. Chains of elementwise operators
    have several families here and one predictor; what is never drawn, networks have."""
    if family == "elementwise":
        asked = " ".join(f"--op {name}" for name in _ELEMENTWISE)
    else:
        asked = f"--op {family}" if family in FAMILIES else "MODEL"
    return " ".join(("tilewright collect", asked, *flags))


def _different(family: Family, random: Random) -> Iterator[Numbers]:
    found: set[str] = set()
    in_vain = 0
    while in_vain < _TRIES:
        in_vain += 1
        numbers = _drawn(family, random)
        if family.fits(numbers):
            text = family.text(numbers)
            if text not in found:
                found.add(text)
                in_vain = 0
                yield numbers


def draw(name: str, count: int, seed: int) -> list[str]:
    """The first `count` of `drawn` as `op:` texts; UsageError where there are not so many."""
    text = family_named(name).text
    found = [text(numbers) for numbers in islice(drawn(name, seed), count)]
    if len(found) < count:
        raise UsageError(
            f"There are not {count} different configurations of {name}, only {len(found)}."
        )
    return found


def _drawn(family: Family, random: Random) -> Numbers:
    if not family.known or random.random() >= _KNOWN:
        return {name: span.draw(random) for name, span in family.spans.items()}
    start = family.known[int(random.integers(len(family.known)))]
    found: dict[str, int] = {}
    for name, span in family.spans.items():
        if name not in start:
            found[name] = span.draw(random)
        elif random.random() < (_CHANGED if span.few else _VARIED):
            found[name] = span.vary(start[name], random)
        else:
            found[name] = start[name]
    return found


def _op(name: str, *keys: str) -> Callable[[Numbers], str]:
    def text(numbers: Numbers) -> str:
        inside = ",".join(f"{key}={numbers[key]}" for key in keys)
        return f"op:{name}[{inside}]"

    return text


def _conv_extent(numbers: Numbers) -> int:
    reach = (numbers["k"] - 1) * numbers.get("dilation", 1) + 1
    return (numbers["h"] + 2 * numbers["pad"] - reach) // numbers["stride"] + 1


def _conv_possible(numbers: Numbers) -> bool:
    """The window fits, padding is at most half of it, and groups divide the channels."""
    groups = numbers.get("groups", 1)
    filters = numbers.get("out", numbers["c"])
    return (
        _conv_extent(numbers) >= 1
        and numbers["pad"] <= numbers["k"] // 2
        and numbers["c"] % groups == 0
        and filters % groups == 0
        and 2 * _conv_macs(numbers) <= 20e9
    )


def _conv_macs(numbers: Numbers) -> int:
    filters = numbers.get("out", numbers["c"])
    inside = numbers["c"] // numbers.get("groups", 1) if "out" in numbers else 1
    return numbers["n"] * filters * inside * numbers["k"] ** 2 * _conv_extent(numbers) ** 2


def _conv_bytes(numbers: Numbers) -> int:
    filters = numbers.get("out", numbers["c"])
    data = numbers["n"] * numbers["c"] * numbers["h"] ** 2
    result = numbers["n"] * filters * max(0, _conv_extent(numbers)) ** 2
    weights = filters * numbers["c"] * numbers["k"] ** 2 if "out" in numbers else 0
    return 4 * (data + result + weights)


def _product_bytes(numbers: Numbers) -> int:
    m, k, n = numbers["m"], numbers["k"], numbers["n"]
    return 4 * numbers.get("b", 1) * (m * k + k * n + m * n)


def _product_possible(numbers: Numbers) -> bool:
    return 2 * numbers.get("b", 1) * prod(numbers[key] for key in "mkn") <= 20e9


def _shape_bytes(numbers: Numbers) -> int:
    sizes = [value for key, value in numbers.items() if key in ("n", "c", "h", "rows", "columns")]
    return 4 * 2 * prod(sizes) * numbers.get("h", 1)


def _rows(name: str) -> Callable[[Numbers], str]:
    return lambda numbers: f"op:{name}[shape={numbers['rows']}x{numbers['columns']}]"


def _image_text(name: str) -> Callable[[Numbers], str]:
    def text(numbers: Numbers) -> str:
        n, c, h = numbers["n"], numbers["c"], numbers["h"]
        return f"op:{name}[shape={n}x{c}x{h}x{h}]"

    return text


_BATCH = Span(few=(1, 1, 1, 1, 2, 4, 8))
_IMAGE = {"n": _BATCH, "c": Span(low=1, high=2048, channels=True), "h": Span(low=1, high=256)}
_WINDOW = {
    "k": Span(few=(1, 1, 3, 3, 3, 5, 7)),
    "pad": Span(few=(0, 1, 1, 2, 3)),
    "stride": Span(few=(1, 1, 1, 2, 2, 4)),
}
_AFTER = {"bias": Span(few=(0, 1)), "relu": Span(few=(0, 1))}
_KINDS = {"dilation": Span(few=(1,) * 9 + (2,)), "groups": Span(few=(1,) * 8 + (2, 4, 32))}
_CONV = (*_IMAGE, *_WINDOW)
_ELEMENTWISE = ("relu", "sigmoid", "gelu", "add", "multiply")
_TABLE = {"rows": Span(low=1, high=16384), "columns": Span(low=1, high=16384)}

_CONVOLUTIONS = (
    (3, 224, 7, 2, 64), (3, 224, 3, 1, 64), (3, 224, 3, 2, 32), (64, 56, 3, 1, 64),
    (64, 56, 1, 1, 256), (256, 56, 1, 1, 64), (256, 56, 1, 2, 512), (128, 28, 3, 1, 128),
    (128, 56, 3, 2, 128), (128, 28, 1, 1, 512), (512, 28, 1, 1, 128), (256, 14, 3, 1, 256),
    (1024, 14, 1, 1, 256), (256, 14, 1, 1, 1024), (512, 7, 3, 1, 512), (2048, 7, 1, 1, 512),
    (512, 7, 1, 1, 2048), (128, 112, 3, 1, 128), (256, 56, 3, 1, 256), (512, 28, 3, 1, 512),
    (96, 35, 3, 1, 96), (192, 17, 1, 1, 192), (48, 35, 5, 1, 64), (288, 35, 3, 2, 384),
    (768, 17, 1, 1, 192), (448, 8, 3, 1, 384), (128, 28, 3, 1, 32), (512, 14, 1, 1, 128),
    (96, 112, 1, 1, 24), (144, 56, 1, 1, 24), (576, 14, 1, 1, 96), (160, 7, 1, 1, 960),
    (16, 54, 1, 1, 64), (64, 13, 3, 1, 256), (256, 64, 3, 1, 512), (1024, 32, 3, 1, 126),
)  # fmt: skip
"""Input channels, extent, kernel, stride, output channels: resnet, vgg, inception, densenet,
mobilenet, squeezenet, ssd."""

FAMILIES: Mapping[str, Family] = {
    "conv2d": Family(
        spans={
            **_IMAGE,
            **_WINDOW,
            "out": Span(low=1, high=2048, channels=True),
            **_KINDS,
            **_AFTER,
        },
        text=_op("conv2d", *_CONV, "out", *_KINDS, *_AFTER),
        size_bytes=_conv_bytes,
        possible=_conv_possible,
        known=tuple(
            {"n": 1, "c": c, "h": h, "k": k, "pad": k // 2, "stride": stride, "out": out}
            for c, h, k, stride, out in _CONVOLUTIONS
        ),
    ),
    "conv2d_int8": Family(
        spans={
            **_IMAGE,
            **_WINDOW,
            "out": Span(low=1, high=2048, channels=True),
            "requantize": Span(few=(1, 1, 1, 0)),
        },
        text=_op("conv2d_int8", *_CONV, "out", "requantize"),
        size_bytes=_conv_bytes,
        possible=_conv_possible,
        known=tuple(
            {"n": 1, "c": c, "h": h, "k": k, "pad": k // 2, "stride": stride, "out": out}
            for c, h, k, stride, out in _CONVOLUTIONS
        ),
        dtype="int8",
    ),
    "depthwise": Family(
        spans={**_IMAGE, **_WINDOW, **_AFTER},
        text=_op("depthwise", *_CONV, *_AFTER),
        size_bytes=_conv_bytes,
        possible=_conv_possible,
        known=(
            {"n": 1, "c": 32, "h": 112, "k": 3, "pad": 1, "stride": 1},
            {"n": 1, "c": 144, "h": 56, "k": 3, "pad": 1, "stride": 2},
            {"n": 1, "c": 576, "h": 14, "k": 3, "pad": 1, "stride": 1},
            {"n": 1, "c": 240, "h": 14, "k": 5, "pad": 2, "stride": 1},
        ),
    ),
    "dense": Family(
        spans={
            "m": Span(low=1, high=1024),
            "k": Span(low=1, high=8192, channels=True),
            "n": Span(low=1, high=8192, channels=True),
            **_AFTER,
        },
        text=_op("dense", "m", "k", "n", *_AFTER),
        size_bytes=_product_bytes,
        possible=_product_possible,
        known=(
            {"m": 1, "k": 2048, "n": 1000},
            {"m": 1, "k": 4096, "n": 4096},
            {"m": 128, "k": 768, "n": 768},
            {"m": 128, "k": 768, "n": 3072},
            {"m": 197, "k": 3072, "n": 768},
        ),
    ),
    "batch_matmul": Family(
        spans={
            "b": Span(low=1, high=128),
            "m": Span(low=1, high=1024),
            "k": Span(low=1, high=1024),
            "n": Span(low=1, high=1024),
        },
        text=_op("batch_matmul", "b", "m", "k", "n"),
        size_bytes=_product_bytes,
        possible=_product_possible,
        known=(
            {"b": 12, "m": 128, "k": 64, "n": 128},
            {"b": 12, "m": 128, "k": 128, "n": 64},
            {"b": 12, "m": 197, "k": 64, "n": 197},
        ),
    ),
    **{
        name: Family(
            spans={**_IMAGE, **_WINDOW},
            text=_op(name, *_CONV),
            size_bytes=_conv_bytes,
            possible=_conv_possible,
            known=(
                {"n": 1, "c": 64, "h": 112, "k": 3, "pad": 1, "stride": 2},
                {"n": 1, "c": 256, "h": 28, "k": 2, "pad": 0, "stride": 2},
                {"n": 1, "c": 192, "h": 35, "k": 3, "pad": 1, "stride": 1},
            ),
        )
        for name in ("max_pool2d", "avg_pool2d")
    },
    **{
        name: Family(
            spans=_TABLE,
            text=_rows(name),
            size_bytes=_shape_bytes,
            known=({"rows": 128, "columns": 768}, {"rows": 1536, "columns": 128}),
        )
        for name in ("softmax", "layer_norm")
    },
    **{
        name: Family(
            spans=_IMAGE,
            text=_image_text(name),
            size_bytes=_shape_bytes,
            known=({"n": 1, "c": 256, "h": 56}, {"n": 1, "c": 512, "h": 28}),
        )
        for name in ("relu", "sigmoid", "gelu", "add", "multiply")
    },
    "reduce_mean": Family(
        spans=_IMAGE,
        text=lambda n: f"op:reduce_mean[shape={n['n']}x{n['c']}x{n['h']}x{n['h']},axes=2x3]",
        size_bytes=_shape_bytes,
        known=({"n": 1, "c": 2048, "h": 7}, {"n": 1, "c": 512, "h": 13}),
    ),
    "concat": Family(
        spans={**_IMAGE, "count": Span(few=(2, 2, 3, 4))},
        text=lambda n: f"op:concat[shape={n['n']}x{n['c']}x{n['h']}x{n['h']},count={n['count']}]",
        size_bytes=_shape_bytes,
        known=({"n": 1, "c": 256, "h": 28, "count": 2},),
    ),
    "transpose": Family(
        spans={
            "rows": Span(low=1, high=2048),
            "heads": Span(low=1, high=32),
            "inside": Span(low=1, high=256),
        },
        text=lambda n: f"op:transpose[shape=1x{n['rows']}x{n['heads']}x{n['inside']},perm=0x2x1x3]",
        size_bytes=lambda n: 8 * prod(n.values()),
        known=({"rows": 128, "heads": 12, "inside": 64},),
    ),
}
"""Every family of operators by name."""
