"""Devices that nobody can run on here: several of a kind, and those that a table of times is all
that is known of.

    8*cuda -model=H100          eight of them: "cuda -model=H100 #1" … "#8"
    npu = npu.json              {"format": "tilewright device table 1", "link": {…},
                                 "rows": [{"call": "conv1", "latency_s": 2e-5}, …]}

Both change what a planner reads of a network (`core.planning`), so that all that comes after knows
nothing of it. See docs/reference/scheduling-problem.md.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.forms import PLAIN
from tilewright.core.input_files import readable
from tilewright.core.planning import (
    PlanningCall,
    PlanningData,
    PlanningDevice,
    PlanningMode,
    Transfer,
)
from tilewright.core.predictions import Mark, Source
from tilewright.kernels.base import CPU

FORMAT = "tilewright device table 1"
TABLE = "table"
"""What the implementation of such a mode is called."""
_AT_A_TIME = 1
"""Calls that such a device computes."""


class TableLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The way between a device and the host: seconds, and bytes per second."""

    latency_s: Annotated[float, msgspec.Meta(ge=0)]
    bytes_per_s: Annotated[float, msgspec.Meta(gt=0)]


class TableRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What calls take on a device: the one with the name `call`, those of the task with this key,
    or those of a family that no other row names. Seconds with their interval, joules, bytes, and
    what each of them is; see `PlanningMode`."""

    call: str = ""
    task: str = ""
    family: str = ""
    latency_s: float
    low_s: float | None = None
    high_s: float | None = None
    source: Source = "exact"
    energy_j: float | None = None
    weight_bytes: int = 0
    workspace_bytes: int = 0
    moved_bytes: int = 0
    energy_is: Mark | None = None
    memory_is: Mark | None = None
    moved_is: Mark | None = None


class DeviceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device by a table; `kind` is a word for people."""

    format: str
    rows: tuple[TableRow, ...]
    kind: str = TABLE
    link: TableLink | None = None

    def row_of(self, call: PlanningCall) -> TableRow | None:
        """The row that says most precisely what a call takes, if one does."""
        for field, value in (("call", call.name), ("task", call.task), ("family", call.family)):
            for row in self.rows:
                if getattr(row, field) == value:
                    return row
        return None


def copies_of(names: Sequence[str]) -> dict[str, int]:
    """How many there are of each device, "8*NAME" being eight. Raises UsageError for a number that
    is none, and for what is named twice."""
    found: dict[str, int] = {}
    for text in names:
        head, star, rest = text.partition("*")
        name = rest.strip() if star else text
        if star and (not head.strip().isdecimal() or not int(head) or not name):
            raise UsageError(f"{text!r} is no number of devices", hint="8*cuda -model=H100")
        if name in found:
            raise UsageError(f"{name!r} is named twice", hint=f"Two of them are '2*{name}'.")
        found[name] = int(head) if star else 1
    return found


def names_of(name: str, count: int) -> list[str]:
    """What the copies of a device are called."""
    return [name] if count == 1 else [f"{name} #{number}" for number in range(1, count + 1)]


def multiplied(data: PlanningData, copies: Mapping[str, int]) -> PlanningData:
    """The network with so many of each device."""
    named = {each.name: names_of(each.name, copies.get(each.name, 1)) for each in data.devices}
    calls = (
        replace(
            call,
            modes=tuple(replace(m, device=own) for m in call.modes for own in named[m.device]),
        )
        for call in data.calls
    )
    return replace(
        data,
        devices=tuple(replace(d, name=own) for d in data.devices for own in named[d.name]),
        calls=tuple(calls),
        conversions=tuple(
            replace(one, device=own) for one in data.conversions for own in named[one.device]
        ),
        transfers=tuple(
            replace(way, origin=one, destination=other)
            for way in data.transfers
            for one in named[way.origin]
            for other in named[way.destination]
            if one != other
        ),
    )


def read_table(path: Path) -> DeviceTable:
    """The table in a file, JSON or CSV (a header with the fields of a row). Raises ModelError for
    one that is missing, broken, or has numbers that are none."""
    with readable(path):
        text = path.read_bytes()
    try:
        if path.suffix.lower() == ".csv":
            lines = csv.DictReader(text.decode("utf-8-sig").splitlines())
            rows = [{k: v for k, v in row.items() if v not in ("", None)} for row in lines]
            given: Any = {"format": FORMAT, "rows": rows}
            table = msgspec.convert(given, DeviceTable, strict=False)
        else:
            table = msgspec.json.decode(text, type=DeviceTable)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise _no_table(path, str(error)) from error
    if table.format != FORMAT:
        raise _no_table(path, f"its format is {table.format!r}; known is {FORMAT!r}")
    for number, row in enumerate(table.rows, 1):
        if [bool(row.call), bool(row.task), bool(row.family)].count(True) != 1:
            raise _no_table(path, f"row {number} has not one of call, task and family")
    return table


def _no_table(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{str(path)!r} is no table of a device: {reason}.",
        hint="The format is in docs/reference/scheduling-problem.md#devices-by-a-table.",
    )


def with_tables(
    networks: Sequence[PlanningData], tables: Mapping[str, DeviceTable]
) -> list[PlanningData]:
    """The networks with devices by tables beside their own, by names. Raises UsageError for a name
    that another device has, ModelError for a table that says nothing of any call."""
    found = list(networks)
    for name, table in tables.items():
        if name in [device.name for device in found[0].devices]:
            raise UsageError(f"{name!r} is named twice", hint="Give the table another name.")
        if not any(table.row_of(call) for data in networks for call in data.calls):
            known = ", ".join(call.name for call in networks[0].calls[:3])
            raise ModelError(
                f"the table of {name!r} names no call of {networks[0].model}",
                hint=f"Its calls are {known}, …; predict --devices lists them.",
            )
        found = [_with_table(data, name, table) for data in found]
    return found


def _with_table(data: PlanningData, name: str, table: DeviceTable) -> PlanningData:
    device = PlanningDevice(
        name=name,
        kind=table.kind,
        device_class=TABLE,
        threads=_AT_A_TIME,
        network=None,
        refused="a table of times is all that is known of it",
        energy_reason="the table has no energies",
    )
    return replace(
        data,
        devices=(*data.devices, device),
        calls=tuple(_called(call, name, table) for call in data.calls),
        transfers=(*data.transfers, *_transfers(data, name, table.link)),
    )


def _called(call: PlanningCall, name: str, table: DeviceTable) -> PlanningCall:
    row = table.row_of(call)
    if row is None:
        return call
    mode = PlanningMode(
        device=name,
        implementation=TABLE,
        forms=(PLAIN.text,) * (max(call.ports, default=0) + 2),
        latency_s=row.latency_s,
        low_s=row.latency_s if row.low_s is None else row.low_s,
        high_s=row.latency_s if row.high_s is None else row.high_s,
        source=row.source,
        energy_j=row.energy_j,
        weight_bytes=row.weight_bytes,
        workspace_bytes=row.workspace_bytes,
        moved_bytes=row.moved_bytes,
        energy_is=row.energy_is,
        memory_is=row.memory_is,
        moved_is=row.moved_is,
    )
    return replace(call, modes=(*call.modes, mode))


def _transfers(data: PlanningData, name: str, link: TableLink | None) -> Iterable[Transfer]:
    """The ways between a device and the others, over the links of both to the host."""
    hosts = {device.name for device in data.devices if device.kind in CPU}
    for other in data.devices:
        own = [link] if link is not None else []
        if other.name not in hosts:
            ways = (w for w in data.transfers if w.destination == other.name and w.origin in hosts)
            way = next((w for w in ways if w.bytes_per_s and w.latency_s is not None), None)
            own = [*own, TableLink(way.latency_s or 0.0, way.bytes_per_s or 0.0)] if way else []
        known = bool(own) and link is not None
        for origin, destination in ((name, other.name), (other.name, name)):
            yield Transfer(
                origin=origin,
                destination=destination,
                latency_s=sum(each.latency_s for each in own) if known else None,
                bytes_per_s=1 / sum(1 / each.bytes_per_s for each in own) if known else None,
                link="table" if known else "unknown",
            )
