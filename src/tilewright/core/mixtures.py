"""What is told of a network whose tensors have types of their own: time against noise, layer by
layer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """A mixture of types that is the fastest for its noise: the sum of its kernels' times, and the
    ratio of signal to noise that is predicted, at most 300. One of them is `chosen`, but where all
    in one half type ships instead."""

    predicted_s: float
    sqnr_db: float
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPrecision:
    """A call of the network: the type in which it multiplies, `int8-weights` for singles times
    codes, empty where it does not, the type in
    which its result is stored, and the part of the noise in the outputs that comes from it: from
    rounding its result, its weights, and what it is given by the network's inputs. `unit` is what
    multiplies, such as `avx512bf16` or `amx-bf16`, `vector` for singles."""

    call: str
    implementation: str
    multiplied: str
    stored: str
    output: str
    time_s: float
    noise_share: float
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureReport:
    """The choice of a type for each tensor.

    `allowed` is the error that was asked for, as `--max-error` takes it, and `used` the part of it
    that the compiled network has on inputs that noise was not measured on, as powers: at most 1.
    `predicted_sqnr_db` is the sum of the noise of its parts as they were measured one by one,
    `measured_sqnr_db` what the compiled network shows on other inputs; both are of the output with
    the least ratio. `correction` is what noise was multiplied by when what ships was chosen: what
    a compiled network had shown, by what the solver had counted. The choice was made again
    `corrections` times.
    `gap` is how far the choice may be from the fastest within the budget, by a proven bound.
    `calibrated` says whether inputs were given; else they were drawn.
    """

    predicted_sqnr_db: float
    measured_sqnr_db: float | None
    correction: float
    corrections: int
    gap: float
    solve_s: float
    noise_s: float
    calibrated: bool
    kept: tuple[str, ...]
    front: tuple[FrontPoint, ...]
    layers: tuple[LayerPrecision, ...]
    allowed: str = ""
    used: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoarserEstimate:
    """What a network in single precision would take with another `precision`, such as `auto`, that
    computes in `types` as well: the time that was measured, divided by a `speedup` that is
    estimated. Codes of eight bits are not among `types`: nothing is known of them before they are
    calibrated."""

    precision: str
    types: tuple[str, ...]
    speedup: float
    latency_s: float
