"""Measured kernels that come with the package: per device class and resources a Parquet file of
rows and a JSON file of the device, in the folder `data`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from tilewright.core.codec import canonical_json, convert, digest, to_builtins
from tilewright.core.errors import ModelError
from tilewright.core.forms import parse_forms
from tilewright.core.records import Candidate, Device, Placement
from tilewright.core.targets import parse_resources
from tilewright.cost.floors import Peaks
from tilewright.graph.workload import parse_workload
from tilewright.predict.collected import Row, by_family

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
        """A hash of the rows' file."""
        return digest(self.path.read_bytes())


@cache
def shipped_data() -> tuple[ShippedData, ...]:
    """The rows of every device class and resources that come with the package."""
    found: list[ShippedData] = []
    for path in sorted(DATA.glob("*.json")):
        said = json.loads(path.read_text(encoding="utf-8"))
        device, resources = convert(said["device"], Device), parse_resources(said["resources"])
        found.append(
            ShippedData(
                placement=Placement(device=device, resources=resources),
                peaks=Peaks(**said["peaks"]),
                path=path.with_suffix(".parquet"),
                measured=tuple(said["measured"]) if "measured" in said else None,
                repeats=said.get("repeats"),
            )
        )
    return tuple(found)


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
        [
            {
                "workload": row.workload.text,
                "implementation": row.candidate.implementation,
                "settings": canonical_json(dict(row.candidate.settings)),
                "layouts": canonical_json(row.candidate.forms),
                "latency_s": row.latency_s,
            }
            for row in rows
        ]
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
