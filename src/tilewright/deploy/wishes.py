"""What a caller may wish of `optimize` and `tune`, and the request that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from tilewright.core.arguments import Error, Text, decibels_of, path_or_none
from tilewright.core.budget import parse_budget
from tilewright.deploy.shipment import default_folder
from tilewright.models import ModelOptions
from tilewright.models.given import given_model
from tilewright.search.levels import OptimizeRequest
from tilewright.store.known_candidates import allowed_error

BUDGET = "10m"


class Wishes(TypedDict, total=False):
    """The arguments that `optimize` and `tune` take beside the model.

    `budget`: what may be spent on this network in total, earlier runs on the same device and
    database included: a time ("90s", "10m", "1h30m") or a number of measurements (500); "10m" by
    default. 0 searches nothing. `out`: the folder for the artifact, by default
    tilewright-out/NAME. `options`: batch, shapes and seed of the model. `max_error`: the allowed
    error of the outputs, relative to the largest value of each, or the least ratio of their signal
    to noise, "30dB"; by default 1e-4, in bfloat16 2e-2, in int8 5e-2. With the precisions "auto"
    and "int8", `keep` has nodes and tensors that stay in single precision, "float32:NAME", and
    `calibration` is an .npz file of inputs by name, on which noise is measured, or codes are
    calibrated; `options` may say both, too. None is the default of each.
    """

    budget: str | float | None
    out: Text | None
    options: ModelOptions | None
    max_error: Error | None
    keep: str | Sequence[str]
    calibration: Text | None


def request_of(
    model: object, said: ModelOptions, wishes: Wishes, cache: Path, seed: int
) -> OptimizeRequest:
    """The request for a model, which may be put into the folder `cache`, of what was `said` of it
    and what is wished. Raises UsageError for wishes that cannot be."""
    budget, max_error = wishes.get("budget"), wishes.get("max_error")
    options = replace(
        said,
        keep=wishes.get("keep") or said.keep,
        calibration=wishes.get("calibration") or said.calibration,
    )
    total = parse_budget(BUDGET if budget is None else budget)
    allowed = allowed_error(max_error, options.precision)
    out = path_or_none(wishes.get("out"), "out")
    given = given_model(model, options, cache)
    return OptimizeRequest(
        model=given.argument,
        origin=given.origin,
        options=options,
        budget=total,
        folder=out or default_folder(given.argument),
        max_error=allowed,
        least_sqnr_db=decibels_of(max_error),
        usual_error=max_error is None,
        seed=seed,
    )
