"""Random configurations of single operators: what a collector measures.

Three quarters of them vary what real networks contain (about half of the sizes of a known
configuration are scaled), the others cover the ranges evenly on a logarithmic scale. `text` of
`Configurations` gives the `op:` text of one, the form in which every other verb takes it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod

import numpy as np

from tilewright.core.codec import digest
from tilewright.core.errors import UsageError, close_matches

Numbers = Mapping[str, int]
Random = np.random.Generator

_TRIES = 1000
_LARGEST_BYTES, _LARGEST_FLOP = 256 << 20, 20e9
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

    def perhaps(self, known: int | None, random: Random) -> int:
        """A known value as it is or varied; any where none is known."""
        if known is None:
            return self.draw(random)
        changes = random.random() < (_CHANGED if self.few else _VARIED)
        return self.vary(known, random) if changes else known

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
class Configurations:
    """The configurations of one operator that are measured, by the names of their numbers.

    `fits` says whether numbers make sense together and are not too large; `known` are
    configurations of real networks; numbers they leave open are drawn. `inside` is what `op:` texts
    have between their brackets, by default every number under its name. `dtype` is the type that
    the operator computes in.
    """

    operator: str
    spans: Mapping[str, Span]
    fits: Callable[[Numbers], bool]
    known: Sequence[Numbers]
    inside: str = ""
    dtype: str = "float32"

    def text(self, numbers: Numbers) -> str:
        """The `op:` text of some numbers."""
        inside = self.inside or ",".join(f"{name}={{{name}}}" for name in self.spans)
        return f"op:{self.operator}[{inside.format_map(numbers)}]"

    def drawn(self, random: Random) -> Numbers:
        """Any one, or one near to what is known; it need not fit."""
        known: Numbers = {}
        if self.known and random.random() < _KNOWN:
            known = self.known[int(random.integers(len(self.known)))]
        return {name: span.perhaps(known.get(name), random) for name, span in self.spans.items()}


def configurations_of(name: str) -> Configurations:
    """Those of an operator. Raises UsageError for an unknown one, naming close ones."""
    if name not in CONFIGURATIONS:
        raise UsageError(
            f"no family of operators {name!r}", hint=close_matches(name, CONFIGURATIONS)
        )
    return CONFIGURATIONS[name]


def drawn(name: str, seed: int) -> Iterator[Numbers]:
    """Different configurations of an operator, in a fixed order for a seed, until no new one turns
    up.

    Raises UsageError for an unknown operator.
    """
    own, random = configurations_of(name), np.random.default_rng(seed)
    found: set[str] = set()
    in_vain = 0
    while in_vain < _TRIES:
        in_vain += 1
        numbers = own.drawn(random)
        if own.fits(numbers) and own.text(numbers) not in found:
            found.add(own.text(numbers))
            in_vain = 0
            yield numbers


def neighbours(name: str, numbers: Numbers, seed: int) -> Iterator[Numbers]:
    """Configurations that differ from one in a single number by a small factor: for each number at
    most one, in an order that follows from the configuration and the seed."""
    own = configurations_of(name)
    random = np.random.default_rng([seed, int(digest(own.text(numbers)), 16) % 2**32])
    for key in map(str, random.permutation(sorted(own.spans))):
        other = {**numbers, key: own.spans[key].beside(numbers[key], random)}
        if other != numbers and own.fits(other):
            yield other


def of_type(name: str, dtype: str) -> str:
    """The name of the same operator that computes in this type: `conv2d` in `int8` is
    `conv2d_int8`. Raises UsageError where there is none."""
    if configurations_of(name).dtype == dtype:
        return name
    other = f"{name}_{dtype}"
    if other not in CONFIGURATIONS:
        known = [known for known, each in CONFIGURATIONS.items() if each.dtype == dtype]
        raise UsageError(
            f"there are no kernels of {name} in {dtype}",
            hint=f"Families in {dtype}: {', '.join(known)}." if known else "",
        )
    return other


def collecting(family: str, *flags: str) -> str:
    """The command that measures kernels of a predictor's family. Chains of elementwise operators
    are several operators here and one predictor; what is never drawn, networks have."""
    if family == "elementwise":
        asked = " ".join(f"--op {name}" for name in _ELEMENTWISE)
    else:
        asked = f"--op {family}" if family in CONFIGURATIONS else "MODEL"
    return " ".join(("tilewright collect", asked, *flags))


def _convolution_fits(numbers: Numbers) -> bool:
    """The window fits, padding is at most half of it, and groups divide the channels. Without
    `out`, every channel is by itself."""
    n, c, h, k, pad = (numbers[key] for key in ("n", "c", "h", "k", "pad"))
    dense, filters, groups = "out" in numbers, numbers.get("out", c), numbers.get("groups", 1)
    reach = (k - 1) * numbers.get("dilation", 1) + 1
    extent = (h + 2 * pad - reach) // numbers["stride"] + 1
    if extent < 1 or pad > k // 2 or c % groups or filters % groups:
        return False
    flop = 2 * n * filters * (c // groups if dense else 1) * k**2 * extent**2
    weights = filters * c * k**2 if dense else 0
    size_bytes = 4 * (n * c * h**2 + n * filters * extent**2 + weights)
    return flop <= _LARGEST_FLOP and size_bytes <= _LARGEST_BYTES


def _product_fits(numbers: Numbers) -> bool:
    m, k, n, b = (numbers.get(key, 1) for key in "mknb")
    size_bytes = 4 * b * (m * k + k * n + m * n)
    return 2 * b * m * k * n <= _LARGEST_FLOP and size_bytes <= _LARGEST_BYTES


def _tensor_fits(numbers: Numbers) -> bool:
    """One tensor read and one written, of height and width `h`."""
    sizes = [value for name, value in numbers.items() if name != "count"]
    return 8 * prod(sizes) * numbers.get("h", 1) <= _LARGEST_BYTES


_BATCH = Span(few=(1, 1, 1, 1, 2, 4, 8))
_IMAGE = {"n": _BATCH, "c": Span(low=1, high=2048, channels=True), "h": Span(low=1, high=256)}
_WINDOW = {
    "k": Span(few=(1, 1, 3, 3, 3, 5, 7)),
    "pad": Span(few=(0, 1, 1, 2, 3)),
    "stride": Span(few=(1, 1, 1, 2, 2, 4)),
}
_AFTER = {"bias": Span(few=(0, 1)), "relu": Span(few=(0, 1))}
_KINDS = {"dilation": Span(few=(1,) * 9 + (2,)), "groups": Span(few=(1,) * 8 + (2, 4, 32))}
_FILTERS = {"out": Span(low=1, high=2048, channels=True)}
_ELEMENTWISE = ("relu", "sigmoid", "gelu", "add", "multiply")
_TABLE = {"rows": Span(low=1, high=16384), "columns": Span(low=1, high=16384)}

_CONVOLUTIONS: tuple[Numbers, ...] = tuple(
    {"n": 1, "c": c, "h": h, "k": k, "pad": k // 2, "stride": stride, "out": out}
    for c, h, k, stride, out in (
    (3, 224, 7, 2, 64), (3, 224, 3, 1, 64), (3, 224, 3, 2, 32), (64, 56, 3, 1, 64),
    (64, 56, 1, 1, 256), (256, 56, 1, 1, 64), (256, 56, 1, 2, 512), (128, 28, 3, 1, 128),
    (128, 56, 3, 2, 128), (128, 28, 1, 1, 512), (512, 28, 1, 1, 128), (256, 14, 3, 1, 256),
    (1024, 14, 1, 1, 256), (256, 14, 1, 1, 1024), (512, 7, 3, 1, 512), (2048, 7, 1, 1, 512),
    (512, 7, 1, 1, 2048), (128, 112, 3, 1, 128), (256, 56, 3, 1, 256), (512, 28, 3, 1, 512),
    (96, 35, 3, 1, 96), (192, 17, 1, 1, 192), (48, 35, 5, 1, 64), (288, 35, 3, 2, 384),
    (768, 17, 1, 1, 192), (448, 8, 3, 1, 384), (128, 28, 3, 1, 32), (512, 14, 1, 1, 128),
    (96, 112, 1, 1, 24), (144, 56, 1, 1, 24), (576, 14, 1, 1, 96), (160, 7, 1, 1, 960),
    (16, 54, 1, 1, 64), (64, 13, 3, 1, 256), (256, 64, 3, 1, 512), (1024, 32, 3, 1, 126),
)
)  # fmt: skip
"""Input channels, extent, kernel, stride, output channels: resnet, vgg, inception, densenet,
mobilenet, squeezenet, ssd."""

CONFIGURATIONS: Mapping[str, Configurations] = {
    each.operator: each
    for each in (
        Configurations(
            operator="conv2d",
            spans={**_IMAGE, **_WINDOW, **_FILTERS, **_KINDS, **_AFTER},
            fits=_convolution_fits,
            known=_CONVOLUTIONS,
        ),
        Configurations(
            operator="conv2d_int8",
            spans={**_IMAGE, **_WINDOW, **_FILTERS, "requantize": Span(few=(1, 1, 1, 0))},
            fits=_convolution_fits,
            known=_CONVOLUTIONS,
            dtype="int8",
        ),
        Configurations(
            operator="depthwise",
            spans={**_IMAGE, **_WINDOW, **_AFTER},
            fits=_convolution_fits,
            known=(
                {"n": 1, "c": 32, "h": 112, "k": 3, "pad": 1, "stride": 1},
                {"n": 1, "c": 144, "h": 56, "k": 3, "pad": 1, "stride": 2},
                {"n": 1, "c": 576, "h": 14, "k": 3, "pad": 1, "stride": 1},
                {"n": 1, "c": 240, "h": 14, "k": 5, "pad": 2, "stride": 1},
            ),
        ),
        Configurations(
            operator="dense",
            spans={
                "m": Span(low=1, high=1024),
                "k": Span(low=1, high=8192, channels=True),
                "n": Span(low=1, high=8192, channels=True),
                **_AFTER,
            },
            fits=_product_fits,
            known=(
                {"m": 1, "k": 2048, "n": 1000},
                {"m": 1, "k": 4096, "n": 4096},
                {"m": 128, "k": 768, "n": 768},
                {"m": 128, "k": 768, "n": 3072},
                {"m": 197, "k": 3072, "n": 768},
            ),
        ),
        Configurations(
            operator="batch_matmul",
            spans={
                "b": Span(low=1, high=128),
                "m": Span(low=1, high=1024),
                "k": Span(low=1, high=1024),
                "n": Span(low=1, high=1024),
            },
            fits=_product_fits,
            known=(
                {"b": 12, "m": 128, "k": 64, "n": 128},
                {"b": 12, "m": 128, "k": 128, "n": 64},
                {"b": 12, "m": 197, "k": 64, "n": 197},
            ),
        ),
        *(
            Configurations(
                operator=name,
                spans={**_IMAGE, **_WINDOW},
                fits=_convolution_fits,
                known=(
                    {"n": 1, "c": 64, "h": 112, "k": 3, "pad": 1, "stride": 2},
                    {"n": 1, "c": 256, "h": 28, "k": 2, "pad": 0, "stride": 2},
                    {"n": 1, "c": 192, "h": 35, "k": 3, "pad": 1, "stride": 1},
                ),
            )
            for name in ("max_pool2d", "avg_pool2d")
        ),
        *(
            Configurations(
                operator=name,
                spans=_TABLE,
                inside="shape={rows}x{columns}",
                fits=_tensor_fits,
                known=({"rows": 128, "columns": 768}, {"rows": 1536, "columns": 128}),
            )
            for name in ("softmax", "layer_norm")
        ),
        *(
            Configurations(
                operator=name,
                spans=_IMAGE,
                inside="shape={n}x{c}x{h}x{h}",
                fits=_tensor_fits,
                known=({"n": 1, "c": 256, "h": 56}, {"n": 1, "c": 512, "h": 28}),
            )
            for name in _ELEMENTWISE
        ),
        Configurations(
            operator="reduce_mean",
            spans=_IMAGE,
            inside="shape={n}x{c}x{h}x{h},axes=2x3",
            fits=_tensor_fits,
            known=({"n": 1, "c": 2048, "h": 7}, {"n": 1, "c": 512, "h": 13}),
        ),
        Configurations(
            operator="concat",
            spans={**_IMAGE, "count": Span(few=(2, 2, 3, 4))},
            inside="shape={n}x{c}x{h}x{h},count={count}",
            fits=_tensor_fits,
            known=({"n": 1, "c": 256, "h": 28, "count": 2},),
        ),
        Configurations(
            operator="transpose",
            spans={
                "rows": Span(low=1, high=2048),
                "heads": Span(low=1, high=32),
                "inside": Span(low=1, high=256),
            },
            inside="shape=1x{rows}x{heads}x{inside},perm=0x2x1x3",
            fits=_tensor_fits,
            known=({"rows": 128, "heads": 12, "inside": 64},),
        ),
    )
}
"""What is measured of every operator, by its name."""
