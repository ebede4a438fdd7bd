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
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tilewright.core.errors import ModelError, UsageError, close_matches, near_names
from tilewright.core.events import EventSink, Note, discard
from tilewright.core.forms import PLAIN
from tilewright.core.grouping import grouped
from tilewright.core.input_files import readable
from tilewright.core.links import DeviceLink, Way
from tilewright.core.planning import (
    PlanningCall,
    PlanningData,
    PlanningDevice,
    PlanningMode,
    Transfer,
)
from tilewright.core.predictions import Mark, Source
from tilewright.graph.workload import Workload
from tilewright.kernels.base import CPU
from tilewright.plan.host_links import TABLE
from tilewright.plan.network_scheduling import titles, way_to_host
from tilewright.predict.collected import is_family

FORMAT = "tilewright device table 1"
_AT_A_TIME = 1
"""Calls that such a device computes."""
_MOST_COPIES = 64


class TableLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The way between a device and the host: seconds, and bytes per second."""

    latency_s: Annotated[float, msgspec.Meta(ge=0)]
    bytes_per_s: Annotated[float, msgspec.Meta(gt=0)]


class TableRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What calls take on a device: the one with the name `call` ("resnet18/conv1", which is also
    called "conv1" where no other network is planned), those of the task with this key, or those of
    a family that no other row names. Seconds with their interval, joules, bytes, and what each of
    them is; see `PlanningMode`. A time that nobody says more of is not taken for measured."""

    call: str = ""
    task: str = ""
    family: str = ""
    latency_s: float
    low_s: float | None = None
    high_s: float | None = None
    source: Source = "facts"
    energy_j: float | None = None
    weight_bytes: int = 0
    workspace_bytes: int = 0
    moved_bytes: int = 0
    energy_is: Mark | None = None
    memory_is: Mark | None = None
    moved_is: Mark | None = None

    @property
    def of(self) -> tuple[str, str]:
        """What it is of: the field that says it, and what that says."""
        said = (("call", self.call), ("task", self.task), ("family", self.family))
        return next((each for each in said if each[1]), ("", ""))

    @property
    def wrong(self) -> str:
        """What is wrong with it, if anything."""
        if [bool(self.call), bool(self.task), bool(self.family)].count(True) != 1:
            return "has not one of call, task and family"
        for name, value in msgspec.structs.asdict(self).items():
            if isinstance(value, int | float) and not (value >= 0 and isfinite(value)):
                return f"has {value} as {name}"
        low_s = self.latency_s if self.low_s is None else self.low_s
        high_s = self.latency_s if self.high_s is None else self.high_s
        inside = low_s <= self.latency_s <= high_s
        return "" if inside else "has a latency_s that is not between low_s and high_s"


class DeviceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device by a table; `kind` is a word for people."""

    format: str
    rows: tuple[TableRow, ...]
    kind: str = TABLE
    link: TableLink | None = None

    def row_of(self, call: PlanningCall, names: Sequence[str]) -> TableRow | None:
        """The row that says most precisely what a call takes, which has these names in the plan,
        if one does."""
        named = (("call", name) for name in names)
        for field, value in (*named, ("task", call.task), ("family", call.family)):
            for row in self.rows:
                if getattr(row, field) == value:
                    return row
        return None


def copies_of(names: Sequence[str]) -> dict[str, int]:
    """How many there are of each device, "8*NAME" being eight. Raises UsageError for a number that
    is none, or above 64, and for what is named twice."""
    found: dict[str, int] = {}
    for text in names:
        head, star, rest = text.partition("*")
        name = rest.strip() if star else text
        digits = head.strip().lstrip("0") if star else "1"
        if not (digits.isascii() and digits.isdecimal() and name):
            raise UsageError(f"{text!r} is no number of devices", hint="8*cuda -model=H100")
        if len(digits) > len(str(_MOST_COPIES)) or int(digits) > _MOST_COPIES:
            raise UsageError(
                f"{text!r} are more devices than can be planned with",
                hint=f"At most {_MOST_COPIES}: '{_MOST_COPIES}*{name}'.",
            )
        if name in found:
            raise UsageError(f"{name!r} is named twice", hint=f"Two of them are '2*{name}'.")
        found[name] = int(digits)
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
    if table.kind in CPU:
        raise _no_table(path, f"its kind is {table.kind!r}, which is for processors that are hosts")
    for number, row in enumerate(table.rows, 1):
        if row.wrong:
            raise _no_table(path, f"row {number} {row.wrong}")
    return table


def _no_table(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{str(path)!r} is no table of a device: {reason}.",
        hint="The format is in docs/reference/scheduling-problem.md#devices-by-a-table.",
    )


def with_tables(
    networks: Sequence[PlanningData],
    tables: Mapping[str, DeviceTable],
    events: EventSink = discard,
) -> list[PlanningData]:
    """The networks with devices by tables beside their own, by names; `events` are told how many
    rows are for other networks. Raises UsageError for a name that another device has, ModelError
    for a table that says nothing of any call, and for a row that no network can have or that is of
    a call which one of these has not."""
    found, named = list(networks), _names(networks)
    known = _Known(
        titles=titles(networks),
        calls={name: call for each in named for call, names in each for name in names},
        bare={call.name for each in named for call, _ in each},
    )
    for name, table in tables.items():
        if name in [device.name for device in found[0].devices]:
            raise UsageError(f"{name!r} is named twice", hint="Give the table another name.")
        rows = enumerate(table.rows, 1)
        others = {number: row for number, row in rows if not known.has(name, number, row)}
        if len(others) == len(table.rows):
            listed = ", ".join([names[-1] for each in named for _, names in each][:3])
            raise ModelError(
                f"the table of {name!r} names no call of {', '.join(known.titles)}",
                hint=f"There are {listed}, …; predict --devices lists them.",
            )
        if others:
            events(Note(message=known.told(name, others, len(table.rows))))
        found = [_with_table(data, n, name, table) for data, n in zip(found, named, strict=True)]
    return found


_Named = Sequence[tuple[PlanningCall, tuple[str, ...]]]


def _names(networks: Sequence[PlanningData]) -> list[_Named]:
    """What rows may call the calls of each network."""
    alone = len(networks) == 1
    return [
        [(c, (f"{title}/{c.name}", *([c.name] if alone else []))) for c in data.calls]
        for title, data in zip(titles(networks), networks, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What rows can be of: networks by their names, calls by all that they may be called, and what
    the networks themselves call them."""

    titles: Sequence[str]
    calls: Mapping[str, PlanningCall]
    bare: set[str]

    def has(self, table: str, number: int, row: TableRow) -> bool:
        """Whether a row is of one of these networks, not of another one. Raises ModelError for one
        that is of none."""
        calls = self.calls.values()
        if row.call:
            if row.call in self.calls:
                return True
            own = row.call.startswith(tuple(f"{title}/" for title in self.titles))
            wrong, names = own or row.call in self.bare, {*self.calls}
        elif row.task:
            names = {call.task for call in calls}
            wrong = not Workload.may_be_key(row.task)
        else:
            names = {call.family for call in calls}
            wrong = not is_family(row.family)
        field, said = row.of
        if said not in names and wrong:
            raise ModelError(
                f"row {number} of the table of {table!r} is of the {field} {said!r}, which is "
                f"not there. {close_matches(said, names)}",
                hint="predict --devices lists calls, tasks and families. Of several networks calls "
                "begin with the name of theirs: resnet18/conv1.",
            )
        return said in names

    def told(self, table: str, others: Mapping[int, TableRow], count: int) -> str:
        """How many rows are for other networks, and which of them may be misspelt."""
        alike = grouped([(_numbers(name), name) for name in self.calls])
        told = f"{len(others)} of {count} rows of the table of {table!r} are for other networks"
        for number, row in others.items():
            for near in near_names(row.call, alike.get(_numbers(row.call), ())):
                return f"{told}. Row {number} is of {row.call!r}: is it {near!r}?"
        return f"{told}."


def _numbers(name: str) -> tuple[str, ...]:
    """Those in a name: conv1 is not how anybody misspells conv2."""
    return tuple(re.findall(r"\d+", name))


def _with_table(data: PlanningData, named: _Named, name: str, table: DeviceTable) -> PlanningData:
    link = table.link
    own = link and Way(latency_s=link.latency_s, bytes_per_s=link.bytes_per_s)
    device = PlanningDevice(
        name=name,
        kind=table.kind,
        device_class=TABLE,
        threads=_AT_A_TIME,
        network=None,
        refused="a table of times is all that is known of it",
        energy_reason="the table has no energies",
        host_latency_s=link and link.latency_s,
        host_bytes_per_s=link and link.bytes_per_s,
        link=own and DeviceLink(device=name, there=own, back=own, of=TABLE),
    )
    return replace(
        data,
        devices=(*data.devices, device),
        calls=tuple(_called(call, names, name, table) for call, names in named),
        transfers=(*data.transfers, *_transfers(data, name, link)),
    )


def _called(
    call: PlanningCall, names: Sequence[str], name: str, table: DeviceTable
) -> PlanningCall:
    row = table.row_of(call, names)
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
    """The ways between a device and the others, over the links of both to the host; unknown where
    one of the two is."""
    own = None if link is None else (link.latency_s, link.bytes_per_s)
    for other in data.devices:
        for origin, destination in ((name, other.name), (other.name, name)):
            both = own, way_to_host(data, other.name, back=origin == other.name)
            links = [each for each in both if each is not None]
            known = len(links) == len(both)
            yield Transfer(
                origin=origin,
                destination=destination,
                latency_s=sum(seconds for seconds, _ in links) if known else None,
                bytes_per_s=1 / sum(1 / speed for _, speed in links) if known else None,
                link=TABLE if known else "unknown",
            )
