"""Kernels of made-up sizes with made-up times, for predictors to learn from."""

from __future__ import annotations

from itertools import islice

import numpy as np

from helpers.fakes.measuring import PLACEMENT
from tilewright.core.forms import PLAIN
from tilewright.core.predictions import EvaluateRow
from tilewright.core.records import Candidate
from tilewright.cost.floors import Peaks
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.spaces import spaces
from tilewright.predict.collected import Row
from tilewright.predict.evaluation import HeldOut
from tilewright.predict.regressors import Trees

PEAKS = Peaks(flop_per_s=1e11, bytes_per_s=1e10, cache_bytes_per_s=5e10)
SMALL = Trees(rounds=60, depth=5, rate=0.15, least_weight=1.0, members=3)


def score(
    predicted: np.ndarray, measured: np.ndarray, reach: np.ndarray | None = None
) -> EvaluateRow:
    """How good predictions are, in intervals that hold nothing where none are given."""
    rows = HeldOut(
        family="made up",
        target="latency_s",
        unit="s",
        measured=measured,
        predicted=predicted,
        reach=np.full(len(measured), -1.0) if reach is None else reach,
        groups=np.full(len(measured), "one"),
    )
    return rows.row("all")


def convolution(channels: int, filters: int, extent: int, *, padding: int = 1) -> Workload:
    """A 3×3 convolution with constant weights."""
    return Workload(
        arguments=(
            Argument(type=TensorType((1, channels, extent, extent))),
            Argument(type=TensorType((filters, channels, 3, 3)), role="constant"),
        ),
        steps=(
            Step(
                operator="conv2d",
                inputs=(0, 1),
                attributes=attributes(
                    strides=(1, 1), padding=(padding,) * 4, dilation=(1, 1), groups=1
                ),
            ),
        ),
    )


def relu(size: int) -> Workload:
    """An elementwise operator on so many values."""
    argument = Argument(type=TensorType((1, size)))
    return Workload(arguments=(argument,), steps=(Step(operator="relu", inputs=(0,)),))


def candidates(workload: Workload, count: int) -> list[Candidate]:
    """Some candidates of the first implementation that applies, in plain layouts."""
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    space = spaces(workload, forms, PLACEMENT)[0]
    picked = np.linspace(0, len(space.numbers) - 1, count).astype(int)
    return [space.part.candidate(int(number)) for number in space.numbers[picked]]


def made_up_s(workload: Workload, candidate: Candidate) -> float:
    """Seconds that depend on the operator and on one knob."""
    tile = candidate.settings and dict(candidate.settings).get("tile_width", 1)
    return 1e-5 + workload.flop / 2e10 * (1 + 4 / float(tile or 1))


def rows(configurations: int = 24, settings: int = 8) -> list[Row]:
    """Measured convolutions."""
    sizes = [(8 * c, 16 * f, e) for c in (1, 2, 4, 7) for f in (1, 2, 5) for e in (7, 14)]
    return [
        Row(workload=w, candidate=candidate, latency_s=made_up_s(w, candidate))
        for w in islice((convolution(*size) for size in sizes), configurations)
        for candidate in candidates(w, settings)
    ]
