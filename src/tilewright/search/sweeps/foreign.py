"""Knob tables of the auto-tuning community: one kernel, every setting, several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.kernels.knobs import Knob
from tilewright.search.sweeps.sweep import Sweep, listed_part

_NOT_KNOBS = frozenset({"device", "time_ms", "error", "compile_ms"})


def read_benchmark_hub(path: Path) -> list[Sweep]:
    """One sweep per device of a table with a column per knob, `time_ms` and `device`.

    Rows without a time are settings that failed. Columns with a single value are no knobs.
    Raises ValueError for a table that is none, or that has a setting twice.
    """
    import polars as pl

    try:
        table = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise ValueError(str(error).splitlines()[0]) from error
    missing = {"device", "time_ms"} - set(table.columns)
    if missing:
        raise ValueError(f"it has no column {', '.join(sorted(missing))}")
    sweeps: list[Sweep] = []
    for (device,), rows in sorted(table.group_by("device"), key=lambda group: str(group[0])):
        names = [
            name for name in rows.columns if name not in _NOT_KNOBS and rows[name].n_unique() > 1
        ]
        gaps = [name for name in names if rows[name].null_count()]
        if gaps:
            raise ValueError(f"{device} has rows without a value of {', '.join(gaps)}")
        knobs = [_knob(name, sorted(rows[name].unique().to_list())) for name in names]
        settings: list[dict[str, Any]] = rows.select(names).to_dicts()
        times = [None if t is None or t != t else t / 1e3 for t in rows["time_ms"].to_list()]
        part, seconds = listed_part("foreign", knobs, list(zip(settings, times, strict=True)))
        sweeps.append(Sweep(name=str(device), part=part, seconds=seconds, origin=path.name))
    return sweeps


def _knob(name: str, values: list[Any]) -> Knob:
    sizes = all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in values)
    return Knob(
        name=name, kind="split" if sizes and len(values) > 2 else "choice", values=tuple(values)
    )
