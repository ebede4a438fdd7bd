"""What `predict --devices` answers, as tables."""

from __future__ import annotations

from dataclasses import asdict

from tilewright.core.planning import PlanningData
from tilewright.core.predictions import mark_of
from tilewright.report import shown
from tilewright.report.tables import Column, Table, records_of

_DEVICES = (
    Column(field="name", label="device"),
    Column(field="device_class", label="class"),
    Column(field="precision", label="in"),
    Column(field="latency_s", label="latency", show=shown.seconds, number=True),
    Column(field="latency_low_s", label="from", show=shown.seconds, number=True),
    Column(field="latency_high_s", label="to", show=shown.seconds, number=True),
    Column(field="peak_memory_bytes", label="peak memory", show=shown.size, number=True),
    Column(field="energy_j", label="energy", show=shown.joules, number=True),
    Column(field="refused", label="note"),
)


_TRANSFERS = (
    Column(field="origin", label="from"),
    Column(field="destination", label="to"),
    Column(field="latency_s", label="takes", show=shown.seconds, number=True),
    Column(field="bytes_per_s", label="and", show=shown.speed, number=True),
    Column(field="link", label="link"),
    Column(field="link_is", label="which is"),
)


def calls_table(data: PlanningData) -> Table:
    """The calls in their order, with a column of times for each device; empty where a device
    cannot compute one."""
    sizes = {tensor.name: tensor.bytes for tensor in data.tensors}
    columns = (
        Column(field="name", label="call"),
        Column(field="family", label="family"),
        Column(field="result_bytes", label="result", show=shown.size, number=True),
        *(
            Column(field=device.name, label=device.name, show=shown.seconds, number=True)
            for device in data.devices
        ),
    )
    records = tuple(
        {
            "name": call.name,
            "family": call.family,
            "result_bytes": sizes[call.output],
            **{device.name: None for device in data.devices},
            **{mode.device: mode.latency_s for mode in call.modes},
        }
        for call in data.calls
    )
    return Table(columns=columns, records=records, title=data.model)


def devices_table(data: PlanningData) -> Table:
    """What the whole network takes on each device."""
    none = dict.fromkeys(column.field for column in _DEVICES)
    records = tuple(
        {**none, **(asdict(device.network) if device.network else {}), **record}
        for device, record in zip(data.devices, records_of(data.devices), strict=True)
    )
    return Table(columns=_DEVICES, records=records, title="The whole network")


def transfers_table(data: PlanningData) -> Table:
    """The ways between devices."""
    known = [None if way.latency_s is None else mark_of(way.source) for way in data.transfers]
    records = tuple(
        {**record, "link_is": mark}
        for record, mark in zip(records_of(data.transfers), known, strict=True)
    )
    return Table(columns=_TRANSFERS, records=records, title="Transfers")
