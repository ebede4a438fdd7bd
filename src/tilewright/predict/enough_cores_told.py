"""How many cores suffice for kernels, as told from their times on one core.

    (told,) = told_on_cores([kernel], [8e-4], (1, 2, 4, 8), predictors)
    told.seconds[4]                       what it takes on four cores, by its curve
    told.enough(others=2e10, gain=0.05)   the fewest cores that are enough beside such neighbours

The curves are those of `predict.core_curves`; what neighbours change is in `cost.enough_cores`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from tilewright.cost.enough_cores import OnCores
from tilewright.kernels.estimates import kernel_stream
from tilewright.predict.core_curves import CoreCurves, CurveTable
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors
from tilewright.predict.timed_on_cores import curve_model


def told_on_cores(
    kernels: Sequence[Kernel],
    alone_s: Sequence[float],
    counts: Sequence[int],
    predictors: Predictors,
) -> list[OnCores]:
    """Each kernel alone on each number of cores, from the seconds that it takes alone on one; the
    device need not have so many cores."""
    target = predictors.placement.target
    curves = CoreCurves(
        table=CurveTable(kernels=kernels, target=target), model=curve_model(predictors)
    )
    carried = curves.carried_s(np.array(alone_s, np.float64), 1, counts)
    reach = {cores: exp(curves.reach(1, cores)) for cores in counts}
    return [
        OnCores(
            seconds={cores: float(carried[cores][number]) for cores in counts},
            streamed_bytes={cores: kernel_stream(*kernel, target, cores) for cores in counts},
            scale=predictors.contention_bytes_per_s,
            reach=reach,
        )
        for number, kernel in enumerate(kernels)
    ]
