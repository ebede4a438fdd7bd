"""Stored exhaustive sweeps: every setting of a declared space with its time.

A sweep stands in for the hardware, so that tuners are compared in seconds (after Kernel Tuner's
simulation mode). Both what a tuner is shown and what its choice is worth are the second look's time
where there was one: noise among the best is for second looks to settle, not for the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np

from tilewright.core.errors import InternalError, ModelError
from tilewright.core.input_files import require_regular
from tilewright.core.records import (
    Candidate,
    Device,
    Failure,
    KnobValue,
    Measurement,
    Outcome,
    Protocol,
)
from tilewright.graph.workload import Workload, parse_workload
from tilewright.kernels.knobs import Knob
from tilewright.kernels.knobspace import KnobSpace
from tilewright.kernels.registry import implementations
from tilewright.tune.base import TuningTask
from tilewright.tune.search import FactFunction, Part, SearchSpace

FORMAT = "tilewright sweep 1"


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
    device: Device | None = None

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
        known = number is not None and self.seconds.get(number) is not None
        if number is None or not known:
            return Failure(
                workload_key=self.name,
                candidate=candidate,
                device_class=self.name,
                kind="build",
                message="failed in the sweep" if number in self.seconds else "not in the sweep",
            )
        return Measurement(
            workload_key=self.name,
            candidate=candidate,
            device_class=self.name,
            protocol=Protocol(),
            kernel_hash="",
            samples_s=(self.worth_s(number),),
            build_s=0.0,
        )


def shipped_sweeps() -> list[Sweep]:
    """The sweeps that come with the package, by name."""
    folder = files("tilewright.tune") / "sweeps"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".json")]
    return [parse_sweep(entry.read_text()) for entry in sorted(found, key=lambda e: e.name)]


def read_sweeps(path: Path) -> list[Sweep]:
    """The sweeps in a file: one of ours, or a table of the auto-tuning community as Parquet."""
    try:
        require_regular(path)
        if path.suffix == ".parquet":
            from tilewright.tune.foreign import read_benchmark_hub

            return read_benchmark_hub(path)
        return [parse_sweep(path.read_text())]
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError) as error:
        raise ModelError(
            f"{path} is no sweep: {error}.",
            hint="A sweep is what benchmarks/sweeps.py writes, or a knob table as .parquet.",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A sweep as its file holds it."""

    format: str
    name: str
    origin: str
    implementation: str
    layouts: tuple[str, ...]
    workload: str
    device: Device
    knobs: tuple[Knob, ...]
    numbers: tuple[int, ...]
    seconds: tuple[float | None, ...]
    again: tuple[tuple[int, float], ...]


def parse_sweep(text: str) -> Sweep:
    """A sweep from its JSON text; raises ValueError when it is none."""
    file = msgspec.json.decode(text, type=_File)
    if file.format != FORMAT:
        raise ValueError(f"its format is {file.format!r}, not {FORMAT!r}")
    workload = parse_workload(file.workload)
    seconds = _numbered(file)
    facts = _facts(file.implementation, workload, file.device, file.layouts)
    return Sweep(
        name=file.name,
        part=_part(file.implementation, file.layouts, file.knobs, seconds, facts),
        seconds=seconds,
        again=dict(file.again),
        origin=file.origin,
        workload=workload,
        device=file.device,
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
    return _timed(seconds)


def _timed(seconds: dict[int, float | None]) -> dict[int, float | None]:
    """The times themselves; raises ValueError where none can be the best, or one is no time."""
    times = [value for value in seconds.values() if value is not None]
    if not times:
        raise ValueError("no setting has a time")
    if not all(0 < value < np.inf for value in times):
        raise ValueError("it has times that are not positive and finite")
    return seconds


def sweep_text(sweep: Sweep) -> str:
    """The JSON text of a sweep of one of our tasks, times with four significant digits."""
    if sweep.workload is None or sweep.device is None:
        raise InternalError(f"{sweep.name} is a foreign sweep")
    numbers = tuple(sorted(sweep.seconds))
    file = _File(
        format=FORMAT,
        name=sweep.name,
        origin=sweep.origin,
        implementation=sweep.part.name,
        layouts=sweep.part.layouts,
        workload=sweep.workload.text,
        device=sweep.device,
        knobs=sweep.part.knobs.knobs,
        numbers=numbers,
        seconds=tuple(_rounded(sweep.seconds[number]) for number in numbers),
        again=tuple((n, _digits(sweep.again[n])) for n in sorted(sweep.again)),
    )
    return msgspec.json.encode(file).decode() + "\n"


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
    return _part(name, (), tuple(knobs), _timed(seconds), None), seconds


def _part(
    name: str,
    layouts: tuple[str, ...],
    knobs: tuple[Knob, ...],
    seconds: Mapping[int, float | None],
    facts: FactFunction | None,
) -> Part:
    whole = KnobSpace(knobs=knobs)

    def swept(settings: Mapping[str, KnobValue]) -> bool:
        return whole.number(settings) in seconds

    return Part(
        name=name, layouts=layouts, knobs=KnobSpace(knobs=knobs, filters=(swept,)), facts=facts
    )


def _facts(
    implementation: str, workload: Workload, device: Device, layouts: tuple[str, ...]
) -> FactFunction | None:
    """The facts as today's implementation tells them, None where it is gone."""
    spec = implementations().get(implementation)
    if spec is None:
        return None
    return lambda settings: spec.facts(workload, device, layouts, settings)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else _digits(seconds)


def _digits(seconds: float) -> float:
    return float(f"{seconds:.4g}")
