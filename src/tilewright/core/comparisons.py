"""The results of `compare`, networks beside those of other engines. Their fields are those of the
JSON output, which other tools rely on."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.core.display import Displayed

LESS, EQUAL, MORE = "less", "equal", "more"
"""How a peer's error is beside ours."""
_ROUNDING = 1e-4
"""Errors up to it are those of rounding in single precision, whatever the order of sums."""
_ALIKE = 1.1
"""Errors are equal that differ by this factor at most: those of rounding differ between inputs."""


def beside_ours(theirs: float | None, ours: float | None) -> str:
    """How a peer's largest error, relative to the largest value, is beside ours; empty where one
    is not known."""
    if theirs is None or ours is None:
        return ""
    if max(theirs, ours) <= _ROUNDING or theirs / _ALIKE <= ours <= theirs * _ALIKE:
        return EQUAL
    return MORE if theirs > ours else LESS


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRow:
    """One model against one peer at one precision, timed in turn.

    `precision` is fp32, tf32, bf16, fp16 or int8, `own_precision` the coarsest in our network,
    `mode` the way that the peer took, in words. The bounds of the speed-up (`core.timings`) are
    None where it was not timed in several rounds. Errors, ours and the peer's, are against ONNX
    Runtime on a CPU in fp32, `…_rel_…` relative to the largest value of the output, `…sqnr_db` the
    ratio of signal to noise. `peer_error` says how the peer's is beside ours: less, equal or more.
    """

    model: str
    peer: str
    precision: str
    threads: int
    latency_s: float
    peer_latency_s: float
    speedup: float
    max_abs_error: float | None
    max_rel_error: float | None
    latency_spread: float = 0.0
    peer_spread: float = 0.0
    default_precision: bool = False
    mode: str = ""
    peer_rel_error: float | None = None
    peer_error: str = ""
    sqnr_db: float | None = None
    peer_sqnr_db: float | None = None
    own_precision: str = "fp32"
    speedup_low: float | None = None
    speedup_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompareResult(Displayed):
    """The result of `compare`, with a row for each model and peer.

    `geomean_speedup` is the geometric mean over the models, each against its fastest peer of our
    precision; its bounds are the means of the bounds. `geomean_at_no_more_error` is the same
    against the fastest peer, in any precision, whose error is no more than ours. `skipped` are
    missing peers, and why.
    """

    rows: tuple[CompareRow, ...]
    geomean_speedup: float | None
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    baseline_geomean: float | None = None
    geomean_speedup_low: float | None = None
    geomean_speedup_high: float | None = None
    geomean_at_no_more_error: float | None = None
    geomean_at_no_more_error_low: float | None = None
    geomean_at_no_more_error_high: float | None = None
