"""Exhaustive sweeps, every setting of a declared space with its time; tuners compared on them by
their regret against the number of measurements; and the files of sweeps: ours, those that come with
the package, and the auto-tuning community's, knob tables of one kernel with every setting on
several devices.

A sweep stands in for the hardware, so that tuners are compared in seconds (after Kernel Tuner's
simulation mode). Both what a tuner is shown and what its choice is worth are the second look's time
where there was one: noise among the best is for second looks to settle, not for the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.core.codec import FILE_NAMES, decode, encode, to_builtins
from tilewright.core.errors import InternalError, ModelError
from tilewright.core.forms import Form
from tilewright.core.input_files import readable
from tilewright.core.records import (
    Candidate,
    Failure,
    KnobValue,
    Measurement,
    Outcome,
    Placement,
    Protocol,
)
from tilewright.core.results import TunerStudyRow
from tilewright.core.targets import threads_alone
from tilewright.graph.workload import Workload, parse_workload
from tilewright.hardware.legacy import read_placement
from tilewright.kernels.estimates import facts
from tilewright.kernels.knobs import Knob
from tilewright.kernels.registry import implementations
from tilewright.kernels.search_space import Estimate, Floats, KnobSpace, Part, SearchSpace, each
from tilewright.search.tuners.base import TunerFactory, TuningTask

BATCH = 8
SHARES = (0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """All settings of one space with their times.

    `seconds` maps numbers of the space to the first look's time, None where the setting failed;
    `again` holds the second look of the best ones. `origin` says where the data are from.
    """

    name: str
    part: Part
    seconds: Mapping[int, float | None]
    again: Mapping[int, float] = field(default_factory=dict[int, float])
    origin: str = ""
    workload: Workload | None = None
    placement: Placement | None = None

    @cached_property
    def space(self) -> SearchSpace:
        """What a tuner searches: the settings that were swept."""
        return SearchSpace([self.part])

    @property
    def size(self) -> int:
        """How many settings were swept, failures included."""
        return len(self.seconds)

    def worth_s(self, number: int) -> float:
        """What a setting's time is believed to be; infinite for failures."""
        first = self.seconds[number]
        return self.again.get(number, np.inf if first is None else first)

    @cached_property
    def best_s(self) -> float:
        """The least believed time."""
        return min(self.worth_s(number) for number in self.seconds)

    def task(self, seed: int) -> TuningTask:
        """What a tuner is made from to search this sweep."""
        return TuningTask(space=self.space, seed=seed)

    def outcome(self, candidate: Candidate) -> Outcome:
        """What measuring this candidate gave in the sweep."""
        number = self.space.number(candidate)
        if number is None or self.seconds.get(number) is None:
            return Failure(
                workload_key=self.name,
                candidate=candidate,
                device_class=self.name,
                resources=threads_alone(1),
                kind="build",
                message="failed in the sweep" if number in self.seconds else "not in the sweep",
            )
        return Measurement(
            workload_key=self.name,
            candidate=candidate,
            device_class=self.name,
            resources=threads_alone(1),
            protocol=Protocol(),
            kernel_hash="",
            samples_s=(self.worth_s(number),),
            build_s=0.0,
        )


def listed_part(
    name: str,
    knobs: Sequence[Knob],
    rows: Sequence[tuple[Mapping[str, KnobValue], float | None]],
) -> tuple[Part, dict[int, float | None]]:
    """A part that holds exactly the settings of some rows, and their times by number."""
    whole = KnobSpace(knobs=tuple(knobs))
    seconds: dict[int, float | None] = {}
    for settings, value in rows:
        number = whole.number(settings)
        if number is None:
            raise ValueError(f"{settings} does not fit the knobs")
        if number in seconds:
            raise ValueError(f"it has the settings {dict(settings)} twice")
        seconds[number] = value
    return swept_part(name, (), tuple(knobs), usable_times(seconds), None), seconds


def swept_part(
    name: str,
    forms: tuple[Form, ...],
    knobs: tuple[Knob, ...],
    seconds: Mapping[int, float | None],
    estimate_s: Estimate | None,
) -> Part:
    """A part that holds the settings with these numbers."""
    whole = KnobSpace(knobs=knobs)

    swept = each(lambda settings: whole.number(settings) in seconds)
    space = KnobSpace(knobs=knobs, accepts=swept)
    return Part(name=name, forms=forms, knobs=space, estimate_s=estimate_s)


def usable_times(seconds: dict[int, float | None]) -> dict[int, float | None]:
    """The times themselves; raises ValueError where none can be the best, or one is no time."""
    times = [value for value in seconds.values() if value is not None]
    if not times:
        raise ValueError("no setting has a time")
    if not all(0 < value < np.inf for value in times):
        raise ValueError("it has times that are not positive and finite")
    return seconds


def regret_curve(factory: TunerFactory, sweep: Sweep, *, seed: int, measurements: int) -> Floats:
    """Regret after 1, 2, … measurements of one tuner with one seed.

    The choice after each is the setting that looked fastest so far; before any has a time, regret
    is infinite. A tuner that stops early keeps its choice.
    """
    tuner = factory(sweep.task(seed))
    regrets: list[float] = []
    least_s = np.inf
    while len(regrets) < measurements:
        candidates = tuner.ask(min(BATCH, measurements - len(regrets)))
        if not candidates:
            break
        outcomes = [sweep.outcome(candidate) for candidate in candidates]
        for outcome in outcomes:
            if isinstance(outcome, Measurement):
                least_s = min(least_s, outcome.latency_s)
            regrets.append(least_s / sweep.best_s - 1.0)
        tuner.tell(outcomes)
    last = regrets[-1] if regrets else np.inf
    return np.array([*regrets, *([last] * (measurements - len(regrets)))])


def replayed(
    name: str,
    factory: TunerFactory,
    sweep: Sweep,
    *,
    seeds: int,
    shares: Sequence[float] = SHARES,
) -> list[TunerStudyRow]:
    """Regret of a tuner on a sweep at each share, over `seeds` seeds."""
    points = {share: max(1, ceil(share * sweep.size)) for share in shares}
    most = max(points.values())
    curves = [regret_curve(factory, sweep, seed=n, measurements=most) for n in range(seeds)]
    reached = {share: [curve[point - 1] for curve in curves] for share, point in points.items()}
    return [
        TunerStudyRow(
            tuner=name,
            sweep=sweep.name,
            measured_share=share,
            regret_median=float(np.median(regrets)),
            regret_p90=float(np.percentile(regrets, 90)),
        )
        for share, regrets in reached.items()
    ]


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
        with readable(path):
            foreign = path.suffix == ".parquet"
            return read_benchmark_hub(path) if foreign else [parse_sweep(path.read_text())]
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
    estimate = _estimate(file, workload, placement)
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


def _estimate(file: _File, workload: Workload, placement: Placement) -> Estimate | None:
    """The rough times of today's implementation, None where it is gone or has other knobs."""
    spec, forms = implementations().get(file.implementation), file.forms
    if spec is None:
        return None
    target, resources = placement.target, placement.resources
    knobs = spec.knobs(workload, target, resources, forms)
    if {knob.name for knob in knobs} != {knob.name for knob in file.knobs}:
        return None
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
        names = [n for n in rows.columns if n not in _NOT_KNOBS and rows[n].n_unique() > 1]
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
