"""`tilewright evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilewright.cli.flags import SharedFlags
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.report import views

FAMILIES = "conv2d, linear, bmm, softmax, layer_norm, gemm_power, knobs, energy"


def evaluate(
    *,
    table: Annotated[Path, Parameter(help="Measurements of operators, .parquet or .csv.")],
    family: Annotated[str, Parameter(help=f"What the rows are: {FAMILIES}.")],
    split: Annotated[
        Literal["configuration", "device"],
        Parameter(
            help="configuration: equal configurations stay together; device: each is left out."
        ),
    ] = "configuration",
    folds: Annotated[int, Parameter(help="Parts of a split by configuration.")] = 5,
    specs: Annotated[
        Path | None, Parameter(help="Datasheets of the devices, a .json list.")
    ] = None,
    shots: Annotated[
        int, Parameter(help="Samples of the device left out that may be learnt from.")
    ] = 0,
    flags: SharedFlags | None = None,
) -> int:
    """Judge a predictor on a table of measurements, by a split that does not leak.

    --threads is the number of threads that fit the predictor.
    """
    flags = flags or SharedFlags()
    with working(flags) as work:
        result = work.session.evaluate(
            table, family=family, split=split, folds=folds, specs=specs, shots=shots
        )
    rows = views.evaluation_table(result.rows)
    picks = (views.picks_table(result.picks),) if result.picks else ()
    answer = Answer(
        command="evaluate",
        data=result,
        rows=rows,
        tables=(rows, *picks),
        warnings=work.warnings,
    )
    emit(answer, flags)
    return 0
