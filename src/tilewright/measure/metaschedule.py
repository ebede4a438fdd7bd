"""MetaSchedule from the side without TVM: its searches and its databases, in a child process."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from tilewright.compiler.metaschedule.records import (
    MODULE,
    RECORDS,
    WORKLOADS,
    ExportEntry,
    ScannedRecord,
)
from tilewright.core.codec import convert, to_builtins
from tilewright.core.errors import ModelError
from tilewright.core.output_files import attempting
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Candidate, Measurement, Placement, Protocol
from tilewright.graph.workload import Workload
from tilewright.kernels.metaschedule import NAME, TRACE

WORKER = "tilewright.measure.metaschedule_worker"
SIDE_FILE = "tilewright.jsonl"
MEMORY_LIMIT_BYTES = 4 << 30
_TIMEOUTS_S = {"begin": 180.0, "learn": 300.0, "propose": 300.0, "end": 10.0}
_DATABASE_TIMEOUT_S = 3600.0
_README = """\
A MetaSchedule database of kernels that tilewright measured, for plain TVM 0.27.

{module} holds what the kernels compute, before scheduling, one Relax function per task.
Arguments may be in blocked layouts, weights repacked; {side} tells which and how.

    import tvm; from tvm import relax; from tvm.s_tir import meta_schedule as ms
    module = tvm.ir.load_json(open("{module}").read())
    with tvm.target.Target({target!r}), ms.database.JSONDatabase(work_dir="."):
        module = relax.transform.MetaScheduleApplyDatabase()(module)

Then compile `module` for the same target.
"""


class SearchFailed(Exception):
    """A request to a search gave no answer: it failed, crashed or took too long."""


class SearchProcess:
    """The child that holds the searches of one device. It ends with its last user."""

    def __init__(self, placement: Placement) -> None:
        self._slots = count(1)
        self._child = Child(
            WORKER,
            environment={
                "TVM_NUM_THREADS": str(placement.resources.threads),
                "OMP_WAIT_POLICY": "PASSIVE",
            },
            memory_limit_bytes=MEMORY_LIMIT_BYTES,
            cpus=placement.binding.cpus,
        )
        weakref.finalize(self, self._child.stop)

    @property
    def pid(self) -> int | None:
        """The child's process id, None while it does not run; another one knows no searches."""
        return self._child.pid

    def new_slot(self) -> int:
        """A number for another search."""
        return next(self._slots)

    def ask(self, what: str, slot: int, *arguments: object) -> Any:
        """What the search in a slot answers: `begin` (workload text, forms, placement, seed) opens
        it, `learn` takes seconds per trace, None for those that failed, and `propose` gives the
        next generation of traces. Raises SearchFailed."""
        try:
            return self._child.request((what, slot, *arguments), _TIMEOUTS_S[what])
        except (ChildError, RemoteError) as error:
            raise SearchFailed(str(error)) from error

    def end(self, slot: int) -> None:
        """Forget a search; nothing is started for that."""
        if self._child.pid is not None:
            with suppress(SearchFailed):
                self.ask("end", slot)


_PROCESSES: weakref.WeakValueDictionary[Placement, SearchProcess] = weakref.WeakValueDictionary()


def shared_process(placement: Placement) -> SearchProcess:
    """The process for a placement, the same one as long as anybody holds it."""
    process = _PROCESSES.get(placement)
    if process is None:
        process = _PROCESSES[placement] = SearchProcess(placement)
    return process


def export_database(
    folder: Path, rows: Sequence[tuple[Workload, Measurement]], placement: Placement
) -> int:
    """Write measured kernels as a MetaSchedule database; returns how many records it holds.

    `folder` also gets the unscheduled module as Relax, a README, and a file that tells our import
    which candidates the records are. Kernels whose schedule a trace cannot tell are left out; the
    README lists them. Raises OutputError when the folder cannot be written.
    """
    entries = [
        ExportEntry(
            workload_text=workload.text,
            candidate=measured.candidate,
            kernel_hash=measured.kernel_hash,
            samples_s=measured.samples_s,
        )
        for workload, measured in rows
    ]
    with attempting(f"write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in (WORKLOADS, RECORDS, MODULE, SIDE_FILE):
            (folder / name).unlink(missing_ok=True)
        problems: list[str] = _ask("export", folder, entries, placement)
        kept = [row for row, problem in zip(rows, problems, strict=True) if not problem]
        _write_side_file(folder / SIDE_FILE, kept)
        notes = _README.format(module=MODULE, side=SIDE_FILE, target=placement.tvm_target)
        left_out = [
            f"left out: {measured.candidate.implementation} of {workload.key}: {problem}\n"
            for (workload, measured), problem in zip(rows, problems, strict=True)
            if problem
        ]
        (folder / "README.txt").write_text("".join([notes, "\n" if left_out else "", *left_out]))
    return len(kept)


def import_database(
    path: Path, workloads: Sequence[Workload], placement: Placement
) -> tuple[list[Measurement], int, list[tuple[int, str]]]:
    """Read a MetaSchedule database: measurements, how many records it has, (line, reason) skipped.

    Records of our own export become the candidates they were, those of others become candidates
    of `metaschedule` where their module equals the plain computation of one of `workloads`; when
    those were measured is not known, and `created_at` is 0. `path` is the folder or one of its two
    tables. Raises ModelError when there is no database.
    """
    folder = path if path.is_dir() else path.parent
    for name in (WORKLOADS, RECORDS):
        if not (folder / name).is_file():
            raise ModelError(
                f"{path} holds no MetaSchedule database: {name} is missing",
                hint=f"Give the folder with {WORKLOADS} and {RECORDS}.",
            )
    scanned: list[ScannedRecord] = _ask(
        "scan", folder, [workload.text for workload in workloads], placement
    )
    ours = _read_side_file(folder / SIDE_FILE)
    told = [
        each.problem or _measurement(each, ours.get(each.line), workloads, placement)
        for each in scanned
    ]
    found = [measured for measured in told if isinstance(measured, Measurement)]
    lines = zip(scanned, told, strict=True)
    skipped = [(each.line, reason) for each, reason in lines if isinstance(reason, str)]
    return found, len(scanned), skipped


def _ask(what: str, folder: Path, given: Sequence[object], placement: Placement) -> Any:
    """One request about a database to a child of its own."""
    message = (what, str(folder), given, placement.target, placement.resources)
    with Child(WORKER, cpus=placement.binding.cpus) as child:
        try:
            return child.request(message, _DATABASE_TIMEOUT_S)
        except (ChildError, RemoteError) as error:
            raise ModelError(f"TVM cannot handle the MetaSchedule database: {error}") from error


def _write_side_file(path: Path, rows: Sequence[tuple[Workload, Measurement]]) -> None:
    lines = [
        json.dumps({"line": number, "workload": workload.text, **to_builtins(measured)})
        for number, (workload, measured) in enumerate(rows, start=1)
    ]
    path.write_text("".join(line + "\n" for line in lines))


def _read_side_file(path: Path) -> dict[int, tuple[str, Measurement]]:
    """Workload text and measurement by record line; what cannot be read is left out."""
    found: dict[int, tuple[str, Measurement]] = {}
    text = path.read_text(errors="replace") if path.is_file() else ""
    for line in text.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            row: dict[str, Any] = json.loads(line)
            number, workload = int(row.pop("line")), str(row.pop("workload"))
            found[number] = workload, convert(row, Measurement)
    return found


def _measurement(
    record: ScannedRecord,
    own: tuple[str, Measurement] | None,
    workloads: Sequence[Workload],
    placement: Placement,
) -> Measurement | str:
    """What a record says, or why nothing is taken from it."""
    if own is not None and own[1].kernel_hash == record.kernel_hash:
        text, measured = own
        if measured.placement_key != placement.key:
            return f"it was measured on another device class, {measured.placement_key}"
        known = {workload.text: workload.key for workload in workloads}
        if text in known:
            return replace(measured, workload_key=known[text], run_id=None)
        return "its shapes fit no known task"
    if record.position is None:
        return "its module is not the plain computation of a known task"
    return Measurement(
        workload_key=workloads[record.position].key,
        candidate=Candidate(
            implementation=NAME, settings=((TRACE, record.trace),), forms=record.forms
        ),
        device_class=placement.device.class_key,
        resources=placement.resources,
        protocol=Protocol(
            warmup=1,
            repeats=len(record.samples_s),
            sample_s=0.1,
            rotation_bytes=0,
            activations="warm",
        ),
        kernel_hash=record.kernel_hash,
        samples_s=record.samples_s,
        build_s=0.0,
        versions="MetaSchedule database",
        created_at=0.0,
    )
