"""The results of `compare`, networks beside those of other engines. Their fields are those of the
JSON output, which other tools rely on."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.core.display import Displayed
from tilewright.core.records import NetworkCheck

LESS, EQUAL, MORE = "less", "equal", "more"
"""How a peer's error is beside ours."""
_ROUNDING = 1e-4
"""Errors up to it are those of rounding in single precision, whatever the order of sums."""
_ALIKE_DB = 0.5
"""Noise is equal that differs by this at most: that of one network differs so between inputs."""


def beside_ours(theirs: NetworkCheck, ours: NetworkCheck) -> str:
    """How the noise of a peer's results is beside that of ours; empty where one is not known.

    Powers are compared, not largest elements: of a thousand errors of rounding the largest is one
    that was drawn, and differs by a tenth or more between inputs where the power hardly does.
    """
    if theirs.sqnr_db is None or ours.sqnr_db is None:
        return ""
    if max(theirs.max_rel_error, ours.max_rel_error) <= _ROUNDING:
        return EQUAL
    if abs(theirs.sqnr_db - ours.sqnr_db) <= _ALIKE_DB:
        return EQUAL
    return MORE if theirs.sqnr_db < ours.sqnr_db else LESS


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRow:
    """One model against one peer at one precision, timed in turn.

    `precision` is fp32, tf32, bf16, fp16 or int8, `own_precision` ours, of a mixture
    with the coarsest type in it: `auto (int8)`,
    `mode` the way that the peer took, in words. The bounds of the speed-up (`core.timings`) are
    None where it was not timed in several rounds. Errors, ours and the peer's, are against ONNX
    Runtime on a CPU in fp32, `…_rel_…` relative to the largest value of the output, `…sqnr_db` the
    ratio of signal to noise, `…top1_agreement` the part of the rows of an output whose largest
    element is the reference's (`core.records.NetworkCheck`). `peer_error` says how the peer's is
    beside ours: less, equal or more.
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
    top1_agreement: float | None = None
    peer_top1_agreement: float | None = None


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
