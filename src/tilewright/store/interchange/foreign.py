"""Records in the files of other programs: ours, which travel along under a key of our own, and
theirs, as outcomes of tasks of ours; and which known tasks these fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.core.codec import to_builtins
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import Form
from tilewright.core.records import (
    Candidate,
    Failure,
    KnobValue,
    Outcome,
    Placement,
    Protocol,
)
from tilewright.graph.tasks import bare_key
from tilewright.graph.workload import Workload, parse_workload
from tilewright.kernels.base import Implementation
from tilewright.store.interchange.lines import Json, Line, NotUnderstood, device_entry, mapping

KEY = "tilewright"
_PROTOCOL = Protocol(
    warmup=0, repeats=1, sample_s=0.0, rotation_bytes=0, activations="unknown", timeout_s=0.0
)
"""Other programs do not say how a kernel was timed; `repeats` is the number of samples."""
_SHOWN = 12


def carried(outcome: Outcome) -> Json:
    """A record as it travels inside another program's format; its run stays behind."""
    kind = "failure" if isinstance(outcome, Failure) else "measurement"
    return {"record": {"record": kind, **to_builtins(outcome), "run_id": None}}


def restored(number: int, extra: Mapping[str, Any]) -> Line:
    """A record of ours that another program's format carries along under `KEY`."""
    record = mapping(extra.get("record"), "the record")
    device = extra.get("device")
    support = text_entries(record.get("workload_key"), extra.get("workload"))
    if device is not None:
        support = ({**mapping(device, "the device"), "record": "device"}, *support)
    return Line(number=number, record=dict(record), support=support)


def foreign_line(number: int, task: Workload, placement: Placement, told: Json) -> Line:
    """What another program told of a task: fields of a measurement, which has samples, or of a
    failure."""
    fields: Json = {"record": "failure", "workload_key": task.key, **told}
    if "samples_s" in told:
        protocol = replace(_PROTOCOL, repeats=len(told["samples_s"]))
        fields |= {"record": "measurement", "protocol": protocol}
    return Line(
        number=number,
        record=to_builtins(fields | to_builtins(placement.key)),
        support=(device_entry(placement.device), *text_entries(task.key, task.text)),
        foreign=True,
    )


def text_entries(key: object, text: object) -> tuple[Json, ...]:
    """The entry for a workload's text that a file holds beside a record; none for no text."""
    return () if text is None else ({"record": "workload", "key": key, "text": text},)


def fitted(
    spec: Implementation,
    workload: Workload,
    placement: Placement,
    forms: tuple[Form, ...],
    wanted: Mapping[str, KnobValue],
) -> Candidate:
    """The settings of another program's template as those of an implementation of ours.

    Knobs that nobody asks about get their first value. Wanted ones that the spec does not have are
    left out: it always does what it does. Raises `NotUnderstood` for a value our knob does not take
    and for settings that are not valid together.
    """
    if not spec.applies(workload, placement.target, placement.resources):
        raise NotUnderstood(f"{spec.name} does not compute {workload.key}")
    settings: dict[str, KnobValue] = {}
    for knob in spec.knobs(workload, placement.target, placement.resources, forms):
        value = wanted.get(knob.name, knob.values[0])
        if not any(type(value) is type(known) and value == known for known in knob.values):
            shown = ", ".join(map(str, knob.values[:_SHOWN]))
            more = ", …" if len(knob.values) > _SHOWN else ""
            raise NotUnderstood(
                f"{knob.name}={value} is no setting of {spec.name} here (it takes {shown}{more})"
            )
        settings[knob.name] = value
    if not spec.valid(workload, placement.target, placement.resources, forms, settings):
        together = ", ".join(f"{name}={value}" for name, value in settings.items())
        raise NotUnderstood(f"{spec.name} refuses these settings together: {together}")
    return Candidate(
        implementation=spec.name, settings=tuple(sorted(settings.items())), forms=forms
    )


def readable_workloads(texts: Iterable[str]) -> list[Workload]:
    """The workloads of all texts that are some."""
    found: list[Workload] = []
    for text in texts:
        try:
            workload = parse_workload(text)
            if workload.key:
                found.append(workload)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, TilewrightError):
            continue
    return found


def count_unmatched(outcomes: Mapping[str, int], texts: Mapping[str, str]) -> int:
    """How many outcomes, counted by workload key, fit no task among `texts` (by key).

    A bare anchor fits every task that is built around it.
    """
    bare = set(map(bare_key, readable_workloads(texts.values())))
    return sum(n for key, n in outcomes.items() if key not in texts and key not in bare)
