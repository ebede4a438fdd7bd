"""`tilewright fit`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import PlacedFlags, TargetFlag
from tilewright.cli.work import working


def fit(
    *families: Annotated[str, Parameter(help="Families of operators [default: all known].")],
    metric: Annotated[
        tuple[str, ...],
        Parameter(
            help="latency, power (energy is power × latency), or both separated by a comma "
            "[default: both].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    target_flag: TargetFlag = TargetFlag(),
    flags: PlacedFlags = PlacedFlags(),
) -> None:
    """Fit predictors of kernels' times and power to measurements of this device class.

    They are fitted to the measurements that ship with tilewright and to those in the database.
    `predict` uses them, and fits by itself those that are missing.
    """
    with working(flags, target_flag) as work:
        work.tell("fit", work.session.fit(families, metric))
