"""Files of sweeps: ours, those that come with the package, and the auto-tuning community's, knob
tables of one kernel with every setting on several devices."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct

from tilewright.core.codec import FILE_NAMES, decode, encode, to_builtins
from tilewright.core.errors import InternalError, ModelError
from tilewright.core.forms import Form
from tilewright.core.input_files import require_regular
from tilewright.core.records import Placement
from tilewright.graph.workload import Workload, parse_workload
from tilewright.hardware.legacy import read_placement
from tilewright.kernels.estimates import facts
from tilewright.kernels.knobs import Knob
from tilewright.kernels.registry import implementations
from tilewright.kernels.search_space import Estimate, KnobSpace
from tilewright.search.sweeps.sweep import Sweep, listed_part, swept_part, usable_times

FORMAT = "tilewright sweep 1"
_NOT_KNOBS = frozenset({"device", "time_ms", "error", "compile_ms"})


def shipped_sweeps() -> list[Sweep]:
    """The sweeps that come with the package, by name."""
    folder = files("tilewright.search") / "sweeps"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".json")]
    return [parse_sweep(entry.read_text()) for entry in sorted(found, key=lambda e: e.name)]


def read_sweeps(path: Path) -> list[Sweep]:
    """The sweeps in a file: one of ours, or a table of the auto-tuning community as Parquet."""
    try:
        require_regular(path)
        if path.suffix == ".parquet":
            return read_benchmark_hub(path)
        return [parse_sweep(path.read_text())]
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError) as error:
        raise ModelError(
            f"{path} is no sweep: {error}.",
            hint="A sweep is what benchmarks/sweeps.py writes, or a knob table as .parquet.",
        ) from error


class _File(Struct, frozen=True, kw_only=True, rename=FILE_NAMES):
    """A sweep as its file holds it; files of before have the threads in the device."""

    format: str
    name: str
    origin: str
    implementation: str
    forms: tuple[Form, ...]
    workload: str
    device: dict[str, Any]
    knobs: tuple[Knob, ...]
    numbers: tuple[int, ...]
    seconds: tuple[float | None, ...]
    again: tuple[tuple[int, float], ...]
    resources: str = ""


def parse_sweep(text: str) -> Sweep:
    """A sweep from its JSON text; raises ValueError when it is none."""
    file = decode(text, _File)
    if file.format != FORMAT:
        raise ValueError(f"its format is {file.format!r}, not {FORMAT!r}")
    workload = parse_workload(file.workload)
    seconds = _numbered(file)
    placement = read_placement(file.device, file.resources)
    estimate = _estimate(file.implementation, workload, placement, file.forms)
    return Sweep(
        name=file.name,
        part=swept_part(file.implementation, file.forms, file.knobs, seconds, estimate),
        seconds=seconds,
        again=dict(file.again),
        origin=file.origin,
        workload=workload,
        placement=placement,
    )


def _numbered(file: _File) -> dict[int, float | None]:
    """The times by number; raises ValueError where they are not those of one sweep."""
    if len(file.numbers) != len(file.seconds):
        raise ValueError(f"it has {len(file.numbers)} numbers and {len(file.seconds)} times")
    seconds = dict(zip(file.numbers, file.seconds, strict=True))
    if len(seconds) != len(file.numbers):
        raise ValueError("it has a number twice")
    whole = KnobSpace(knobs=file.knobs)
    strange = [n for n in (*seconds, *dict(file.again)) if not 0 <= n < whole.range_length]
    if strange:
        raise ValueError(f"its knobs have no number {strange[0]}")
    strange = [n for n in dict(file.again) if seconds.get(n) is None]
    if strange:
        raise ValueError(f"it has a second look at number {strange[0]} and no first one")
    return usable_times(seconds)


def sweep_text(sweep: Sweep) -> str:
    """The JSON text of a sweep of one of our tasks, times with four significant digits."""
    if sweep.workload is None or sweep.placement is None:
        raise InternalError(f"{sweep.name} is a foreign sweep")
    numbers = tuple(sorted(sweep.seconds))
    file = _File(
        format=FORMAT,
        name=sweep.name,
        origin=sweep.origin,
        implementation=sweep.part.name,
        forms=sweep.part.forms,
        workload=sweep.workload.text,
        device=to_builtins(sweep.placement.device),
        resources=str(sweep.placement.resources),
        knobs=sweep.part.knobs.knobs,
        numbers=numbers,
        seconds=tuple(_rounded(sweep.seconds[number]) for number in numbers),
        again=tuple((n, float(f"{sweep.again[n]:.4g}")) for n in sorted(sweep.again)),
    )
    return encode(file).decode() + "\n"


def _estimate(
    implementation: str, workload: Workload, placement: Placement, forms: tuple[Form, ...]
) -> Estimate | None:
    """The rough times of today's implementation, None where it is gone."""
    spec = implementations().get(implementation)
    if spec is None:
        return None
    target, resources = placement.target, placement.resources
    return lambda settings: facts(spec, workload, target, resources, forms, settings)["estimate_s"]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.4g}")


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
        names = [name for name in rows.columns if name not in _NOT_KNOBS]
        names = [name for name in names if rows[name].n_unique() > 1]
        gaps = [name for name in names if rows[name].null_count()]
        if gaps:
            raise ValueError(f"{device} has rows without a value of {', '.join(gaps)}")
        knobs = [_knob(name, sorted(rows[name].unique().to_list())) for name in names]
        times = [None if t is None or t != t else t / 1e3 for t in rows["time_ms"].to_list()]
        settings = zip(rows.select(names).to_dicts(), times, strict=True)
        part, seconds = listed_part("foreign", knobs, list(settings))
        sweeps.append(Sweep(name=str(device), part=part, seconds=seconds, origin=path.name))
    return sweeps


def _knob(name: str, values: list[Any]) -> Knob:
    sizes = all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in values)
    return Knob(
        name=name, kind="split" if sizes and len(values) > 2 else "choice", values=tuple(values)
    )
