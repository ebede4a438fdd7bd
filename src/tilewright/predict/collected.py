"""Measured kernels, from a database or from a file that one wrote: as training sets, and the times
between two that differ in size alone; and those that come with the package, per device class and
resources a Parquet file of rows and a JSON file of the device, in the folder `data`.

They also tell how a device lies to those whose kernels are known: which class it is most like, and
how fast it is beside the one of its own class whose kernels came along. Kernels that were measured
on both are probes: where the ratio of the times is the same for all of them, the new device is the
old one, faster or slower, and what is known of the old one carries over. So the class whose ratios
lie closest together is the nearest. `collect` draws the same configurations and settings
everywhere, so that a few of its kernels are such probes. Without enough of them the datasheets
decide.

Machines of one class are not equally fast: clocks, memory and neighbours on a shared host differ.
Where a machine has measured some kernels of a family, their times over those that the shipped rows'
model gives have a common factor, and what the shipped rows say is moved by it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from math import log2
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tilewright.core.codec import canonical_json, convert, digest, to_builtins
from tilewright.core.element_types import element_types
from tilewright.core.errors import ModelError
from tilewright.core.forms import form_texts, parse_forms
from tilewright.core.grouping import grouped
from tilewright.core.predictions import Source
from tilewright.core.records import Candidate, Device, Measurement, Placement
from tilewright.core.targets import parse_resources
from tilewright.cost.floors import Peaks
from tilewright.graph.workload import Workload, is_anchor_name, parse_workload
from tilewright.kernels.stored_settings import refusals
from tilewright.predict.base import Floats
from tilewright.predict.family_models import FamilyModel, TrainingSet
from tilewright.predict.kernel_features import Kernel, kernel_table

_USUAL, _BYTES, _DEPTHWISE = "float32", ("int8", "uint8"), "depthwise"
_REASONS = 3
"""Of rows that are left out, so many reasons are told, the most frequent ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kernel and its time, the median over all measurements of it; the same of the energy of a
    call, None where that was never measured."""

    workload: Workload
    candidate: Candidate
    latency_s: float
    energy_j: float | None = None


def family_of(workload: Workload) -> str:
    """The family whose model answers for a workload: its anchor's operator; depthwise convolutions
    are a family of their own, and so is every element type other than float32.

    `conv2d` of 64 groups on 64 channels → `depthwise`, of `int8` or `uint8` → `conv2d_int8`
    """
    name, anchor, dtype = workload.anchor_name, workload.anchor, workload.element_type
    if dtype in _BYTES:
        return f"{name}_int8"
    if anchor is not None and name == "conv2d":
        channels = workload.types[anchor.inputs[0]].shape[1]
        name = _DEPTHWISE if anchor.integer("groups") == channels > 1 else name
    return name if dtype == _USUAL else f"{name}_{dtype}"


def is_family(text: str) -> bool:
    """Whether workloads can be of a family of this name: `conv2d`, `depthwise`, `dense_int8`."""
    types = {kind.name for kind in element_types()} - {_USUAL, *_BYTES}
    names = (text, *(text.removesuffix(f"_{dtype}") for dtype in types))
    plain = any(is_anchor_name(name) or name == _DEPTHWISE for name in names)
    return plain or is_anchor_name(text.removesuffix("_int8"))


def rows_of(measurements: Iterable[Measurement], workloads: Mapping[str, Workload]) -> list[Row]:
    """A row per kernel that was measured with at least a few samples, or is slow."""
    found = grouped(
        [
            ((one.workload_key, one.candidate), one)
            for one in measurements
            if one.workload_key in workloads and one.samples_s
        ]
    )
    return [
        Row(
            workload=workloads[key],
            candidate=candidate,
            latency_s=median(one.latency_s for one in same),
            energy_j=_median_energy_j(same),
        )
        for (key, candidate), same in found.items()
    ]


def usable(rows: Sequence[Row], placement: Placement) -> tuple[list[Row], str]:
    """The rows whose settings today's implementations take at a placement; and what to tell people
    of the others, empty where there are none."""
    refused = [""] * len(rows)
    for numbers in grouped([(row.workload.text, n) for n, row in enumerate(rows)]).values():
        asked = [rows[number].candidate for number in numbers]
        workload = rows[numbers[0]].workload
        told = refusals(workload, asked, placement.target, placement.resources)
        for number, why in zip(numbers, told, strict=True):
            refused[number] = why
    left = [row for row, why in zip(rows, refused, strict=True) if not why]
    reasons = Counter(filter(None, refused)).most_common(_REASONS)
    if not reasons:
        return left, ""
    return left, (
        f"{len(rows) - len(left)} of {len(rows)} measured kernels are left out, another version of "
        f"tilewright chose their settings: {'; '.join(f'{why} ({n})' for why, n in reasons)}"
    )


def _median_energy_j(measurements: Iterable[Measurement]) -> float | None:
    uses = [one.energy for one in measurements if one.energy is not None]
    energies_j = [use.energy_j for use in uses if use.energy_j is not None]
    return median(energies_j) if energies_j else None


def by_family(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their family, each in their order."""
    return grouped([(family_of(row.workload), row) for row in rows])


def kernels_of(rows: Iterable[Row]) -> list[Kernel]:
    """The kernel of each row."""
    return [(row.workload, row.candidate) for row in rows]


def training_set(
    rows: Sequence[Row], family: str, placement: Placement, peaks: Peaks
) -> TrainingSet:
    """The features and times of a family's rows at a placement."""
    mine = [row for row in rows if family_of(row.workload) == family]
    return taught_by(mine, family, placement, peaks)


def taught_by(rows: Sequence[Row], name: str, placement: Placement, peaks: Peaks) -> TrainingSet:
    """The features and times of rows at a placement, whatever their families are."""
    keys = [row.workload.key for row in rows]
    return TrainingSet(
        family=name,
        features=kernel_table(kernels_of(rows), placement, peaks),
        target=np.array([row.latency_s for row in rows]),
        configurations=np.unique(keys, return_inverse=True)[1].ravel().astype(np.int64),
        groups=np.array([row.candidate.implementation for row in rows], dtype=object),
        device_class=str(placement.key),
        peaks=peaks,
        data_hash=digest("\n".join(sorted(map(_identity, rows)))),
    )


def _identity(row: Row) -> str:
    """Workload, candidate, seconds."""
    chosen = row.candidate
    kernel = [chosen.implementation, chosen.settings, form_texts(chosen.forms)]
    return canonical_json([row.workload.key, canonical_json(kernel), row.latency_s])


NEAR = 1.25
"""Each of the two is at most this factor away in every extent."""

_SAME_DIRECTION = 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of one call of a kernel, with the interval that holds 90 % of such."""

    latency_s: float
    low_s: float
    high_s: float
    source: Source
    outside: bool = False


class MeasuredKernels:
    """What was measured, by workload, and the workloads by form: those of one form have the same
    steps and differ in size alone."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._times: dict[str, dict[Candidate, float]] = {}
        self._kin: dict[Any, dict[str, Workload]] = {}
        for row in rows:
            text = row.workload.text
            self._times.setdefault(text, {})[row.candidate] = row.latency_s
            self._kin.setdefault(_form(row.workload), {})[text] = row.workload

    def estimate(self, workload: Workload, candidate: Candidate) -> Estimate | None:
        """The measured time of this very kernel, else that on the line between the two nearest
        kernels that lie on either side, in logarithms of sizes and times, whose ends are the
        interval; None where there are no such two."""
        exact_s = self._times.get(workload.text, {}).get(candidate)
        if exact_s is not None:
            return Estimate(latency_s=exact_s, low_s=exact_s, high_s=exact_s, source="exact")
        known = [
            (_extents(other), self._times[text][candidate])
            for text, other in self._kin.get(_form(workload), {}).items()
            if candidate in self._times[text]
        ]
        if len(known) < 2:
            return None
        steps = np.array([extents for extents, _ in known]) - _extents(workload)
        lengths = np.linalg.norm(steps, axis=1)
        near = np.flatnonzero((np.abs(steps).max(1) <= np.log(NEAR)) & (lengths > 0))
        along = steps[near] @ steps[near].T / np.outer(lengths[near], lengths[near])
        spans = np.add.outer(lengths[near], lengths[near])
        spans = np.where(along <= -_SAME_DIRECTION, spans, np.inf)
        if not np.isfinite(spans).any():
            return None
        first, second = (int(near[n]) for n in np.unravel_index(np.argmin(spans), spans.shape))
        share = lengths[first] / (lengths[first] + lengths[second])
        ends = np.log([known[first][1], known[second][1]])
        return Estimate(
            latency_s=float(np.exp((1 - share) * ends[0] + share * ends[1])),
            low_s=float(np.exp(ends.min())),
            high_s=float(np.exp(ends.max())),
            source="interpolated",
        )


def _form(workload: Workload) -> object:
    """Everything of a workload but its extents."""
    return (
        tuple((a.type.dtype, len(a.type.shape), a.role) for a in workload.arguments),
        workload.steps,
    )


def _extents(workload: Workload) -> Floats:
    """Logarithms of all extents, arguments first, then the result."""
    shapes = [argument.type.shape for argument in workload.arguments] + [workload.result.shape]
    return np.log(np.array([max(1, size) for shape in shapes for size in shape], dtype=np.float64))


_COLUMNS = ("workload", "implementation", "settings", "layouts", "latency_s")


DATA = Path(__file__).parent / "data"
"""Where the files are."""


@dataclass(frozen=True, kw_only=True)
class ShippedData:
    """Rows of one device class and resources. `measured` are the first and the last day of the
    measurements, where they were recorded; `repeats` is how far 90 % of the times of one kernel,
    taken again and again meanwhile, lie from their median, in the logarithm."""

    placement: Placement
    peaks: Peaks
    path: Path
    measured: tuple[str, str] | None = None
    repeats: float | None = None

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The measured kernels, read when they are asked for."""
        return read_rows(self.path)

    @cached_property
    def families(self) -> dict[str, list[Row]]:
        """The same by family."""
        return by_family(self.rows)

    def of_family(self, name: str) -> list[Row]:
        """The rows of a family, none where it has no such."""
        return self.families.get(name, [])

    @cached_property
    def identity(self) -> str:
        """A hash of the rows' file, and of what models of them are told beside the rows."""
        told = f"{self.placement.key} {self.placement.target} {self.peaks}"
        return digest(f"{digest(self.path.read_bytes())} {told}")


@cache
def shipped_data() -> tuple[ShippedData, ...]:
    """The rows of every device class and resources that come with the package."""
    files = {path: json.loads(path.read_text("utf-8")) for path in sorted(DATA.glob("*.json"))}
    return tuple(
        ShippedData(
            placement=Placement(
                device=convert(said["device"], Device), resources=parse_resources(said["resources"])
            ),
            peaks=Peaks(**said["peaks"]),
            path=path.with_suffix(".parquet"),
            measured=tuple(said["measured"]) if "measured" in said else None,
            repeats=said.get("repeats"),
        )
        for path, said in files.items()
    )


def read_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a Parquet file; energies may be missing, one by one or the column. Raises
    ModelError for a file that is broken or something else."""
    import polars

    try:
        table = polars.read_parquet(path).select(*_COLUMNS, "^energy_j$")
    except (OSError, polars.exceptions.PolarsError) as error:
        raise ModelError(f"{path} holds no measured kernels: {error}") from error
    workloads = {text: parse_workload(text) for text in table["workload"].unique()}
    settings = {
        text: tuple(sorted(json.loads(text).items())) for text in table["settings"].unique()
    }
    forms = {text: parse_forms(*json.loads(text)) for text in table["layouts"].unique()}
    return tuple(
        Row(
            workload=workloads[row["workload"]],
            candidate=Candidate(
                implementation=row["implementation"],
                settings=settings[row["settings"]],
                forms=forms[row["layouts"]],
            ),
            latency_s=row["latency_s"],
            energy_j=row.get("energy_j"),
        )
        for row in table.iter_rows(named=True)
    )


def write_rows(
    path: Path,
    rows: Iterable[Row],
    placement: Placement,
    peaks: Peaks,
    measured: tuple[str, str] | None = None,
    repeats: float | None = None,
) -> None:
    """Write rows as `path` (.parquet) and their device beside it (.json), without what names the
    one machine they are from. `measured` and `repeats` as in `ShippedData`."""
    import polars

    table = polars.DataFrame(
        [row_fields(row) for row in rows],
        schema_overrides={"energy_j": polars.Float64},
    ).sort(_COLUMNS[:-1])
    table.write_parquet(path, compression="zstd", compression_level=19)
    described = {
        "device": to_builtins(replace(placement.device, instance="", access="described")),
        "resources": str(placement.resources),
        "peaks": asdict(peaks),
        "measured": measured,
        "repeats": repeats,
    }
    known = {name: value for name, value in described.items() if value is not None}
    path.with_suffix(".json").write_text(json.dumps(known, indent=1), encoding="utf-8")


def row_fields(row: Row) -> dict[str, Any]:
    """A row as columns of the files that `read_rows` reads."""
    return {
        "workload": row.workload.text,
        "implementation": row.candidate.implementation,
        "settings": canonical_json(dict(row.candidate.settings)),
        "layouts": canonical_json(row.candidate.forms),
        "latency_s": row.latency_s,
        "energy_j": row.energy_j,
    }


LEAST_PROBES = 10
"""Fewer kernels measured on both devices than this say nothing."""

_LEAST_ROWS, _LEAST_OPERATORS = 20, 5
"""Fewer rows of a family, or of fewer operators, say nothing of a machine's speed."""

_MOST = 200
_ALIKE = 0.03
"""A factor nearer to 1 than this is none."""


def nearest(
    placement: Placement,
    own: Sequence[Row],
    known: Sequence[Placement],
    rows: Callable[[int], Sequence[Row]],
) -> tuple[int, int]:
    """Which of the `known` classes, at least one, a device is most like on which the `own` kernels
    were measured: the one with the least `unlikeness` where each shares `LEAST_PROBES` kernels with
    it, else the one whose datasheet is closest: its place, and how many kernels told so, 0 where
    datasheets did. `rows` reads what was measured at a place."""
    places = range(len(known))
    by_datasheet = min(places, key=lambda place: distance(known[place], placement))
    if len(own) < LEAST_PROBES or len(known) == 1:
        return by_datasheet, 0
    times = _times(own)
    told = [
        [seconds / known_s[kernel] for kernel, seconds in times.items() if kernel in known_s]
        for known_s in (_times(rows(place)) for place in places)
    ]
    if min(map(len, told)) < LEAST_PROBES:
        return by_datasheet, 0
    place = min(places, key=lambda place: unlikeness(told[place]))
    return place, len(told[place])


def _times(rows: Sequence[Row]) -> dict[tuple[str, Candidate], float]:
    return {(row.workload.key, row.candidate): row.latency_s for row in rows}


def unlikeness(ratios: Sequence[float]) -> float:
    """How far the logarithms of the ratios lie from their median, on average: 0 for a device that
    is only faster or slower."""
    logarithms = np.log(ratios)
    return float(np.abs(logarithms - np.median(logarithms)).mean())


def distance(known: Placement, placement: Placement) -> float:
    """How unlike two placements are: doublings of vector width, threads and caches; another CPU of
    the same sizes counts a little, too."""
    if known.key == placement.key:
        return -1.0
    one, other = known.target, placement.target
    return (
        2 * _doublings(one.vector_bytes, other.vector_bytes)
        + _doublings(known.resources.threads, placement.resources.threads)
        + _doublings(one.cache_bytes(2), other.cache_bytes(2)) / 2
        + _doublings(one.cache_bytes(3), other.cache_bytes(3)) / 4
        + 0.25 * (one.model != other.model)
    )


def _doublings(one: float, other: float) -> float:
    return abs(log2(max(1.0, one) / max(1.0, other)))


def slowdown(rows: Sequence[Row], model: FamilyModel, placement: Placement, peaks: Peaks) -> float:
    """The median of measured over predicted times, each operator counting once; 1 where the factor
    is too near to 1 to be told from it.

    `rows` are this machine's, `enough` of the model's family, `peaks` those that the model learnt
    with. Of many rows 200 are asked about, spread over all.
    """
    asked = [rows[int(n)] for n in np.linspace(0, len(rows) - 1, min(len(rows), _MOST)).round()]
    said = model.predict(kernel_table(kernels_of(asked), placement, peaks)).predicted
    operators = grouped(
        [
            (row.workload.key, float(np.log(row.latency_s / predicted_s)))
            for row, predicted_s in zip(asked, said, strict=True)
        ]
    )
    common = float(np.median([np.median(found) for found in operators.values()]))
    return float(np.exp(common)) if abs(common) >= _ALIKE else 1.0


def enough(rows: Sequence[Row]) -> bool:
    """Whether rows of one family can tell how fast a machine is."""
    return len(rows) >= _LEAST_ROWS and len({row.workload.key for row in rows}) >= _LEAST_OPERATORS
