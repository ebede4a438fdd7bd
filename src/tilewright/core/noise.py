"""What rounding puts into the outputs of a network, by its cause, and how much of it is allowed.

Roundings are independent of each other, so that the powers of their noise add up. Powers are sums
of squares over all inputs that were looked at, one for each output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log, log10

Powers = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingNoise:
    """The noise of each cause in each of the `outputs`, which are those of floating-point numbers.

    `tensors` has what comes of storing a tensor of the network in a coarser type, `calls` what
    comes of rounding one factor of each product of a call, and `algorithms`, by call and name, what
    comes of those of its implementations that round in another way. `signals` are the outputs' own
    powers, `largest` their largest absolute values, `elements` how many values were looked at.
    `finer` has the noise of the same causes in other types, by these.
    """

    outputs: tuple[str, ...]
    signals: Powers
    largest: Powers
    elements: tuple[int, ...]
    tensors: Mapping[str, Powers]
    calls: Mapping[str, Powers]
    algorithms: Mapping[tuple[str, str], Powers] = field(
        default_factory=dict[tuple[str, str], Powers]
    )
    finer: Mapping[str, RoundingNoise] = field(default_factory=dict[str, "RoundingNoise"])

    def of(self, dtype: str | None) -> RoundingNoise:
        """That of rounding to a type: this, unless the type is one of the `finer` ones."""
        return self.finer.get(dtype or "", self)

    def without(self, dtype: str, tensors: Collection[str]) -> RoundingNoise:
        """The same where some tensors are never stored in one of the `finer` types."""
        fine = self.finer[dtype]
        left = {name: powers for name, powers in fine.tensors.items() if name not in tensors}
        return replace(self, finer={**self.finer, dtype: replace(fine, tensors=left)})

    def allowed(self, max_error: float, least_sqnr_db: float | None) -> Powers:
        """The power that noise may have in each output: by its ratio, or so that the largest of
        as many normal errors as there are elements is about `max_error` of the largest value."""
        if least_sqnr_db is not None:
            return tuple(signal * 10.0 ** (-least_sqnr_db / 10.0) for signal in self.signals)
        return tuple(
            count * (max_error * largest) ** 2 / max(1.0, 2.0 * log(max(count, 2)))
            for largest, count in zip(self.largest, self.elements, strict=True)
        )

    def sqnr_db(self, powers: Powers) -> float:
        """The least ratio of signal to noise of an output."""
        pairs = zip(self.signals, powers, strict=True)
        return min((10.0 * log10(s / n) for s, n in pairs if s > 0 and n > 0), default=300.0)

    def total(self, causes: Iterable[tuple[Powers, float]]) -> Powers:
        """The noise of several causes together, each so many times its power."""
        sums = [0.0] * len(self.outputs)
        for powers, times in causes:
            sums = [known + times * power for known, power in zip(sums, powers, strict=True)]
        return tuple(sums)


def largest_share(powers: Powers, allowed: Powers) -> float:
    """The largest part of what is allowed that an output has; infinite where none is allowed."""
    shares = [
        power / most if most > 0 else (inf if power > 0 else 0.0)
        for power, most in zip(powers, allowed, strict=True)
    ]
    return max(shares, default=0.0)


@dataclass(frozen=True, kw_only=True)
class FinerCauses:
    """What makes noise in the second of two half `types` that the noise in the first tells of.

    By calls' names: `factors` has the place of the argument that each rounds, `adders` the
    implementation that adds up products in the second type, `alike` those that round to it in
    their own way, each behind that which does the same in the first type, or an empty name.
    """

    types: tuple[str, str]
    factors: Mapping[str, int]
    adders: Mapping[str, str]
    alike: Mapping[str, Sequence[tuple[str, str]]]
