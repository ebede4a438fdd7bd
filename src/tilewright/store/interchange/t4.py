"""Results in the T4 format of the auto-tuning community, version 1.0.0.

Kernel Tuner's `store_output_file` writes it and its schema defines it: a list of results, each with
its configuration, times in milliseconds, and whether the configuration was valid. What the schema
leaves open (which task, which device) travels in keys of our own: `metadata.tilewright` holds
devices and workloads, each result's `tilewright` the record itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection

from tilewright.core.codec import to_builtins
from tilewright.core.errors import ModelError
from tilewright.core.forms import PLAIN
from tilewright.core.input_files import readable
from tilewright.core.records import (
    Candidate,
    Failure,
    FailureKind,
    KnobValue,
    Outcome,
    Placement,
)
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import applicable
from tilewright.store.interchange.foreign import KEY, carried, fitted, foreign_line, restored
from tilewright.store.interchange.lines import (
    IMPORTED,
    Json,
    Line,
    NotUnderstood,
    Source,
    finite,
    json_items,
    mapping,
    seconds,
    sequence,
    understood,
    write_texts,
)
from tilewright.store.rows import device_facts, stream_outcomes, workload_texts

VERSION = "1.0.0"
KERNEL_HASH = f"{IMPORTED}t4"
_MS = 1e-3
_UNITS = {"": _MS, "ms": _MS, "milliseconds": _MS, "s": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}
_INVALIDITY: Mapping[FailureKind, str] = {
    "build": "compile",
    "timeout": "timeout",
    "wrong result": "correctness",
    "crash": "runtime",
    "out of memory": "runtime",
    "device lost": "runtime",
}
_FAILURES: Mapping[str, FailureKind] = {
    "compile": "build",
    "timeout": "timeout",
    "correctness": "wrong result",
    "runtime": "crash",
}


def write(connection: Connection, path: Path) -> int:
    """Write all outcomes of a database; returns how many."""
    devices = to_builtins(list(device_facts(connection).values()))
    metadata = json.dumps({KEY: {"workloads": workload_texts(connection), "devices": devices}})
    head = f'{{"schema_version": "{VERSION}", "metadata": {metadata}, "results": ['
    results = map(json.dumps, map(_result_of, stream_outcomes(connection)))
    return write_texts(path, results, list_in=head)


def _result_of(outcome: Outcome) -> Json:
    """One result of the format."""
    failed = isinstance(outcome, Failure)
    return {
        "timestamp": _time_text(outcome.created_at),
        "configuration": dict(outcome.candidate.settings),
        "objectives": ["time"],
        "times": {
            "compilation_time": 0.0 if failed else outcome.build_s / _MS,
            "framework": 0.0,
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": [] if failed else [second / _MS for second in outcome.samples_s],
        },
        "invalidity": _INVALIDITY.get(outcome.kind, "runtime") if failed else "correct",
        "correctness": 0 if failed and outcome.kind == "wrong result" else 1,
        "measurements": []
        if failed
        else [{"name": "time", "value": outcome.latency_s / _MS, "unit": "ms"}],
        KEY: carried(outcome),
    }


def read(source: Source) -> Iterator[Line]:
    """The results of a file, numbered from 1. Raises `ModelError` for a file of another kind."""
    with readable(source.path):
        text = source.path.read_text(encoding="utf-8", errors="replace")
    start = text.find('"results"')
    if start < 0 or not text.lstrip("\ufeff \t\r\n").startswith("{"):
        raise ModelError(
            f"{source.path}: this is no T4 results file, it has no list of results. "
            "Nothing was imported."
        )
    yield from understood(json_items(text, start), partial(_line, source, _brought(text[:start])))


class _Metadata(msgspec.Struct):
    """What `write` wrote under a key of our own."""

    workloads: dict[str, Any]
    devices: list[dict[str, Any]]


def _brought(head: str) -> tuple[Json, dict[str, Json]]:
    """Workload texts by key and devices by class, from the metadata before the results."""
    try:
        value = json.loads(head.rstrip().removesuffix(",") + "}")
        ours = msgspec.convert(value["metadata"][KEY], _Metadata)
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}, {}
    return ours.workloads, {str(device.get("class_key")): device for device in ours.devices}


def _line(source: Source, brought: tuple[Json, dict[str, Json]], number: int, item: Json) -> Line:
    if KEY in item:
        record = mapping(mapping(item[KEY], KEY).get("record"), "the record")
        texts, devices = brought
        text = texts.get(str(record.get("workload_key")))
        device = devices.get(str(record.get("device_class")))
        return restored(number, {"record": record, "workload": text, "device": device})
    if source.task is None or source.placement is None:
        raise NotUnderstood("the result names no task and no device; say --task KEY and --target")
    return foreign_line(
        number, source.task, source.placement, _told(item, source.task, source.placement)
    )


def _told(item: Json, task: Workload, placement: Placement) -> Json:
    """What a result of another tuner says of a candidate in plain layouts: its times, or why there
    are none."""
    told: Json = {
        "candidate": _candidate(item, task, placement),
        "kernel_hash": KERNEL_HASH,
        "created_at": _seconds_of(item.get("timestamp")),
        "versions": "t4",
    }
    invalidity = str(item.get("invalidity"))
    if invalidity in _FAILURES:
        return told | {"kind": _FAILURES[invalidity], "message": f"T4: {invalidity}"}
    if invalidity != "correct":
        raise NotUnderstood(f"the configuration is not valid ({invalidity:.40})")
    times = mapping(item.get("times"), "times")
    told |= {"samples_s": _samples(times, item)}
    build = times.get("compilation_time", times.get("compilation", 0.0))
    return told | {"build_s": finite(build, "the compilation time") * _MS}


def _samples(times: Mapping[str, Any], item: Json) -> tuple[float, ...]:
    """The single runs, or the measured `time` where they are not listed."""
    if times.get("runtimes"):
        return seconds(times["runtimes"], "runtimes", scale=_MS)
    for value in sequence(item.get("measurements", []), "measurements"):
        measured = mapping(value, "a measurement")
        unit = measured.get("unit", "")
        if measured.get("name") == "time" and unit in _UNITS:
            return seconds([measured.get("value")], "time", scale=_UNITS[unit])
    raise NotUnderstood("the result holds no times")


def _candidate(item: Json, task: Workload, placement: Placement) -> Candidate:
    forms = (PLAIN,) * (len(task.arguments) + 1)
    given: dict[str, KnobValue] = {}
    for name, value in mapping(item.get("configuration"), "configuration").items():
        if not isinstance(value, int | str | bool):
            raise NotUnderstood(f"{name}={value!r:.40} is no value of a knob")
        given[name] = value
    names: list[str] = []
    for spec in applicable(task, placement.target, placement.resources):
        knobs = {
            knob.name for knob in spec.knobs(task, placement.target, placement.resources, forms)
        }
        if knobs and knobs == given.keys():
            return fitted(spec, task, placement, forms, given)
        names.append(f"{spec.name} ({', '.join(sorted(knobs)) or 'no knobs'})")
    raise NotUnderstood(
        f"the knobs {', '.join(given) or 'none'} are those of no implementation of {task.key}: "
        + "; ".join(names)
    )


def _time_text(created_at: float) -> str:
    try:
        return datetime.fromtimestamp(created_at, UTC).isoformat(sep=" ")
    except (ValueError, OverflowError, OSError):
        return ""


def _seconds_of(timestamp: Any) -> float:
    """Seconds since 1970, in UTC where no time zone is given; 0 for what is no time."""
    try:
        found = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        return 0.0
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
