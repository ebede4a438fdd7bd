"""Measured kernels that come with the package: a Parquet file of rows and a JSON file of the device
per device class, in the folder `data`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import log2
from pathlib import Path
from typing import Any, cast

import msgspec

from tilewright.core.errors import ModelError
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.records import Candidate, Device
from tilewright.graph.workload import parse_workload
from tilewright.predict.collected import Row

_COLUMNS = ("workload", "implementation", "settings", "layouts", "latency_s")


DATA = Path(__file__).parent / "data"
"""Where the files are."""


@dataclass(frozen=True, kw_only=True)
class ShippedData:
    """Rows of one device class. `exact` says that it is the class asked for, not the nearest;
    `measured` are the first and the last day of the measurements, where they were recorded;
    `repeats` is how far 90 % of the times of one kernel, taken again and again meanwhile, lie from
    their median, in the logarithm; `identity` is a hash of the file."""

    device: Device
    peaks: Mapping[str, float]
    path: Path
    exact: bool
    measured: tuple[str, str] | None = None
    repeats: float | None = None

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The measured kernels, read when they are asked for."""
        return read_rows(self.path)

    @cached_property
    def identity(self) -> str:
        """A hash of the rows' file."""
        return digest(self.path.read_bytes())


def shipped_data(device: Device) -> ShippedData | None:
    """The rows for a device's class, else those of the class of its architecture whose datasheet is
    closest; None where there is none."""
    return min(
        shipped_classes(device), key=lambda found: distance(found.device, device), default=None
    )


def shipped_classes(device: Device) -> list[ShippedData]:
    """The rows of every class of a device's architecture."""
    known = [_described(name) for name in _names()]
    return [
        ShippedData(
            device=other,
            peaks=peaks,
            path=DATA / f"{name}.parquet",
            exact=other.class_key == device.class_key,
            measured=_days(name),
            repeats=_read(name).get("repeats"),
        )
        for other, peaks, name in known
        if other.cpu.architecture == device.cpu.architecture
    ]


def shipped_devices() -> list[Device]:
    """The devices, one of each class, that rows come with the package of."""
    return [_described(name)[0] for name in _names()]


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in DATA.glob("*.json")))


def _read(name: str) -> dict[str, Any]:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


@cache
def _described(name: str) -> tuple[Device, dict[str, float], str]:
    found = _read(name)
    return msgspec.convert(found["device"], Device), dict(found["peaks"]), name


def _days(name: str) -> tuple[str, str] | None:
    found = _read(name)
    return tuple(found["measured"]) if "measured" in found else None


def distance(known: Device, device: Device) -> float:
    """How unlike two devices are: doublings of vector width, threads and caches; another CPU of
    the same sizes counts a little, too."""
    if known.class_key == device.class_key:
        return -1.0
    return (
        2 * _doublings(known.cpu.vector_bytes, device.cpu.vector_bytes)
        + _doublings(known.threads, device.threads)
        + _doublings(known.cpu.l2_bytes, device.cpu.l2_bytes) / 2
        + _doublings(known.cpu.l3_bytes, device.cpu.l3_bytes) / 4
        + 0.25 * (known.cpu.model != device.cpu.model)
    )


def _doublings(one: float, other: float) -> float:
    return abs(log2(max(1.0, one) / max(1.0, other)))


def read_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a Parquet file. Raises ModelError for one that is broken or something else."""
    import polars

    try:
        table = polars.read_parquet(path, columns=list(_COLUMNS))
    except (OSError, polars.exceptions.PolarsError) as error:
        raise ModelError(f"{path} holds no measured kernels: {error}") from error
    workloads = {text: parse_workload(text) for text in table["workload"].unique()}
    settings = {
        text: tuple(sorted(json.loads(text).items())) for text in table["settings"].unique()
    }
    layouts = {text: tuple(json.loads(text)) for text in table["layouts"].unique()}
    return tuple(
        Row(
            workload=workloads[row["workload"]],
            candidate=Candidate(
                implementation=row["implementation"],
                settings=settings[row["settings"]],
                layouts=layouts[row["layouts"]],
            ),
            latency_s=row["latency_s"],
        )
        for row in table.iter_rows(named=True)
    )


def write_rows(
    path: Path,
    rows: Iterable[Row],
    device: Device,
    peaks: Mapping[str, float],
    measured: tuple[str, str] | None = None,
    repeats: float | None = None,
) -> None:
    """Write rows as `path` (.parquet) and their device beside it (.json), without what names the
    one machine they are from. `measured` and `repeats` as in `ShippedData`."""
    import polars

    table = polars.DataFrame(
        [
            {
                "workload": row.workload.text,
                "implementation": row.candidate.implementation,
                "settings": canonical_json(dict(row.candidate.settings)),
                "layouts": canonical_json(row.candidate.layouts),
                "latency_s": row.latency_s,
            }
            for row in rows
        ]
    ).sort(_COLUMNS[:-1])
    table.write_parquet(path, compression="zstd", compression_level=19)
    anonymous = cast("dict[str, object]", msgspec.to_builtins(device))
    anonymous["instance"], anonymous["cpus"] = "", ()
    described: dict[str, object] = {"device": anonymous, "peaks": dict(peaks)}
    if measured is not None:
        described["measured"] = measured
    if repeats is not None:
        described["repeats"] = repeats
    path.with_suffix(".json").write_text(json.dumps(described, indent=1), encoding="utf-8")
