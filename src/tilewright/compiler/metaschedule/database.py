"""MetaSchedule's JSON databases: writing our kernels as records, reading records of any origin.

A record is a trace over a module. Ours start from what the implementation computes before it is
scheduled, so that module goes along, called from Relax as plain TVM wants it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from tilewright.compiler.build import argument_types, kernel_hash_of
from tilewright.compiler.lower.generic import trace_start
from tilewright.compiler.lower.registry import lowered
from tilewright.compiler.metaschedule.records import (
    MODULE,
    RECORDS,
    WORKLOADS,
    ExportEntry,
    ScannedRecord,
)
from tilewright.compiler.metaschedule.search import replay, trace_text
from tilewright.core.errors import TilewrightError, last_line
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload, parse_workload

_FAILED_S = 1e6
"""MetaSchedule writes a failed trial as one that took 1e9 s or more."""
_BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    RuntimeError,
    AttributeError,
    TilewrightError,
)


def traced(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> tuple[tvm.IRModule, Schedule]:
    """What a candidate's schedule starts from, and the schedule."""
    program, schedule = lowered(workload, candidate, target, resources)
    if program.start is None:
        raise ValueError("it is not begun through its program")
    return program.start, schedule


def write_database(
    folder: str, entries: Sequence[ExportEntry], target: Target, resources: Resources
) -> list[str]:
    """Write a database and its module; per entry why it was left out, empty where it was not."""
    generated = tvm.target.Target(target.tvm_target(resources))
    database = ms.database.JSONDatabase(work_dir=folder)
    starts: list[tuple[tvm.IRModule, str]] = []
    problems: list[str] = []
    for entry in entries:
        workload = parse_workload(entry.workload_text)
        try:
            start, schedule = traced(workload, entry.candidate, target, resources)
            problem = _replay_problem(start, schedule, entry.kernel_hash)
        except _BROKEN as error:
            problem = f"it cannot be lowered for export: {last_line(error).strip()}"
        problems.append(problem)
        if problem:
            continue
        starts.append((start, workload.anchor_name))
        database.commit_tuning_record(
            ms.database.TuningRecord(
                schedule.trace,
                database.commit_workload(start),
                list(entry.samples_s),
                generated,
                ArgInfo.from_entry_func(start, remove_preproc=True),
            )
        )
    Path(folder, MODULE).write_text(tvm.ir.save_json(_called(starts)))
    return problems


def _replay_problem(start: tvm.IRModule, schedule: Schedule, measured: str) -> str:
    """Why a trace does not stand for the kernel that was measured, empty where it does."""
    kernel = kernel_hash_of(schedule.mod["main"])
    if measured and kernel != measured:
        return "its template has changed since it was measured"
    try:
        replayed = replay(start, trace_text(schedule.trace))
    except _BROKEN as error:
        return f"its trace cannot be replayed: {last_line(error).strip()}"
    if kernel_hash_of(replayed.mod["main"]) != kernel:
        return "its trace makes another kernel"
    return ""


def _called(starts: Iterable[tuple[tvm.IRModule, str]]) -> tvm.IRModule:
    """Different ones of some modules, each called from a Relax function of its own, named after the
    anchor that comes with it."""
    builder = relax.BlockBuilder()
    known: set[int] = set()
    for start, anchor in starts:
        function = start["main"]
        identity = tvm_ffi.structural_hash(function, map_free_vars=True)
        if identity in known:
            continue
        name = f"{anchor}_{len(known)}"
        known.add(identity)
        # without a symbol TVM takes it for a task, as it does after FuseTIR
        variable = builder.add_func(function.without_attr("global_symbol"), f"{name}_kernel")
        *kinds, kind = (relax.TensorType(*types) for types in argument_types(function))
        operands = [relax.Var(f"input_{i}", operand) for i, operand in enumerate(kinds)]
        with builder.function(name, operands):
            with builder.dataflow():
                call = builder.emit(relax.call_tir(variable, operands, kind))
                output = builder.emit_output(call)
            builder.emit_func_output(output)
    return builder.get()


def read_database(
    folder: str, workload_texts: Sequence[str], target: Target, resources: Resources
) -> list[ScannedRecord]:
    """Every line of a database, matched with the plain computations of workloads.

    Tried are all ports plain, and blocked as our networks do it.
    """
    known = _known_starts([parse_workload(text) for text in workload_texts], target, resources)
    modules = [_module(line) for line in _lines(Path(folder, WORKLOADS))]
    generated = tvm.target.Target(target.tvm_target(resources))
    return [
        _scanned(number, line, modules, known, generated)
        for number, line in enumerate(_lines(Path(folder, RECORDS)), start=1)
    ]


_Known = dict[int, list[tuple[tvm.IRModule, int, tuple[Form, ...]]]]


def _known_starts(workloads: Sequence[Workload], target: Target, resources: Resources) -> _Known:
    found: _Known = {}
    for position, workload in enumerate(workloads):
        for forms in _port_forms(workload, target):
            try:
                module = trace_start(workload, forms, target, resources)
            except _BROKEN:
                continue
            identity = tvm_ffi.structural_hash(module, map_free_vars=True)
            found.setdefault(identity, []).append((module, position, forms))
    return found


def _port_forms(workload: Workload, target: Target) -> Iterator[tuple[Form, ...]]:
    """Plain, and channels in blocks of each usual size where all activations allow it."""
    yield (PLAIN,) * (len(workload.arguments) + 1)
    for lanes in sorted({target.lanes(workload.computed_in), 16, 8}, reverse=True):
        form = blocked(lanes)
        ports = [(a.type.shape, a.role == "data") for a in workload.arguments]
        forms = tuple(
            form if data and len(shape) == 4 and shape[1] % lanes == 0 else PLAIN
            for shape, data in [*ports, (workload.result.shape, True)]
        )
        if form in forms:
            yield forms


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(errors="replace").splitlines() if line.strip()]


def _module(line: str) -> tvm.IRModule | None:
    """The module of a line of the workload table, None where it cannot be read."""
    try:
        return ms.database.Workload.from_json(json.loads(line)).mod
    except _BROKEN:
        return None


def _scanned(
    number: int,
    line: str,
    modules: Sequence[tvm.IRModule | None],
    known: _Known,
    target: tvm.target.Target,
) -> ScannedRecord:
    try:
        index, (steps, seconds, described, *_) = json.loads(line)
        samples = tuple(float(second) for second in seconds)
        trace = json.dumps(steps, separators=(",", ":"))
        module = modules[index] if 0 <= index < len(modules) else None
    except _BROKEN:
        return ScannedRecord(line=number, problem="it is not a tuning record")
    if not samples or not all(math.isfinite(s) and 0 < s < _FAILED_S for s in samples):
        return ScannedRecord(line=number, problem="it holds no time: the trial failed")
    if not _same_machine(described, target):
        return ScannedRecord(line=number, problem=f"it is for another target: {described}")
    if module is None:
        return ScannedRecord(line=number, problem="its workload cannot be read")
    try:
        schedule = replay(module, trace)
    except _BROKEN as error:
        problem = f"its trace cannot be replayed: {last_line(error).strip()}"
        return ScannedRecord(line=number, problem=problem)
    record = ScannedRecord(
        line=number,
        trace=trace_text(schedule.trace),
        samples_s=samples,
        kernel_hash=kernel_hash_of(schedule.mod["main"]),
    )
    return _matched(record, module, known)


def _matched(record: ScannedRecord, module: tvm.IRModule, known: _Known) -> ScannedRecord:
    identity = tvm_ffi.structural_hash(module, map_free_vars=True)
    for start, position, forms in known.get(identity, ()):
        if tvm_ffi.structural_equal(start, module, map_free_vars=True):
            return replace(record, position=position, forms=forms)
    return record


def _same_machine(described: Any, target: tvm.target.Target) -> bool:
    """Whether a record's target says the same about the machine as ours, names aside."""

    def facts(one: tvm.target.Target) -> dict[str, Any]:
        return {k: v for k, v in one.export().items() if k not in ("tag", "keys", "host")}

    try:
        return facts(tvm.target.Target(described)) == facts(target)
    except _BROKEN:  # a target that this TVM does not know
        return False
