"""MetaSchedule's search over one workload, without its builder and runner, and its databases.

The space comes from its schedule rules, proposals from its evolutionary search with its own cost
model; what they cost is told from outside.

A record of its JSON databases is a trace over a module. Ours start from what the implementation
computes before it is scheduled, so that module goes along, called from Relax as plain TVM wants it;
records of any origin are read.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, MeasureCandidate
from tvm.s_tir.schedule import Trace

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
from tilewright.core.errors import TilewrightError, last_line
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload, parse_workload

BATCH = 32
"""Proposals per generation: MetaSchedule's default is 64, too many for small budgets."""
POPULATION = 256
"""Its default is 512; a generation's time is proportional to it."""
WARM_UP = 32
"""Measurements before the cost model is believed; its default is 100."""
_UNLIMITED = 1 << 30
_ELSEWHERE = ("cuda", "rocm", "hexagon", "arm_cpu")

logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.ERROR)


def _skip_elsewhere(keys: Sequence[str]) -> None:
    """Keep the instructions of other devices than those of these keys of a target from being
    parsed, which takes ten seconds for those of GPUs and two to three seconds of a processor for
    those of ARM.

    A search for a CPU asks for none of them, but TVM imports them all. Those that an earlier search
    of this process left out are imported now where this one asks for them.
    """
    for name in _ELSEWHERE:
        module = f"tvm.s_tir.tensor_intrin.{name}"
        if name not in keys:
            sys.modules.setdefault(module, ModuleType(module))
        elif module in sys.modules and sys.modules[module].__spec__ is None:
            del sys.modules[module]
            import_module(module)


def trace_text(trace: Trace) -> str:
    """A trace as compact JSON; `Trace.apply_json_to_schedule` takes it back."""
    # of TVM's constants it wants the number
    return json.dumps(trace.as_json(), default=attrgetter("value"), separators=(",", ":"))


def replay(start: tvm.IRModule, trace: str) -> Schedule:
    """A module under a trace."""
    schedule = Schedule(start)
    Trace.apply_json_to_schedule(json.loads(trace), schedule)
    return schedule


class Search:
    """One search. Proposals and outcomes are texts of traces."""

    def __init__(
        self,
        workload: Workload,
        forms: tuple[Form, ...],
        target: Target,
        resources: Resources,
        seed: int,
    ) -> None:
        np.random.seed(seed % 2**32)  # noqa: NPY002 - the cost model's guesses draw from it
        module = trace_start(workload, forms, target, resources)
        self._target = tvm.target.Target(target.tvm_target(resources))
        if self._target.kind.name == "llvm":
            _skip_elsewhere([str(key) for key in self._target.keys])
        self._database = ms.database.MemoryDatabase()
        self._entry = self._database.commit_workload(module)
        # one thread: on so little data more of them mostly wait for each other
        self._model = ms.cost_model.XGBModel(num_warmup_samples=WARM_UP, num_tuning_cores=1)
        self._context = ms.TuneContext(
            module,
            target=self._target,
            space_generator="post-order-apply",
            search_strategy=EvolutionarySearch(population_size=POPULATION),
            num_threads=resources.threads,
            rand_state=seed % (2**31 - 2) + 1,
        )
        self._context.pre_tuning(_UNLIMITED, BATCH, None, self._database, self._model)
        self._candidates: dict[str, MeasureCandidate] = {}
        self._kernels: set[str] = set()
        self._batch: list[MeasureCandidate] = []

    def propose(self) -> list[str]:
        """The next generation, less the kernels that were seen before; empty at the end."""
        found: list[str] = []
        while not found:
            if self._batch:
                unknown = [RunnerResult(None, "not reported") for _ in self._batch]
                self._context.notify_runner_results(self._batch, unknown)
            self._batch = list(self._context.generate_measure_candidates() or ())
            if not self._batch:
                return []
            texts = [trace_text(candidate.sch.trace) for candidate in self._batch]
            known = zip(texts, self._batch, strict=True)
            found = [text for text, candidate in known if self._remember(text, candidate)]
        return found

    def learn(self, outcomes: Sequence[tuple[str, float | None]]) -> None:
        """Take seconds per trace, None where it failed; traces of elsewhere are replayed."""
        candidates, results = [], []
        for text, seconds in outcomes:
            candidate = self._candidates.get(text) or self._replayed(text)
            if candidate is None:
                continue
            candidates.append(candidate)
            failed = seconds is None
            results.append(
                RunnerResult(None if failed else [seconds], "failed" if failed else None)
            )
            if not failed:
                trace, types = candidate.sch.trace, candidate.args_info
                self._database.commit_tuning_record(
                    ms.database.TuningRecord(trace, self._entry, [seconds], self._target, types)
                )
        if candidates:
            self._model.update(self._context, candidates, results)

    def _remember(self, text: str, candidate: MeasureCandidate) -> bool:
        """Whether the candidate's kernel is new."""
        kernel = kernel_hash_of(candidate.sch.mod["main"])
        new = kernel not in self._kernels
        self._kernels.add(kernel)
        self._candidates[text] = candidate
        return new

    def _replayed(self, text: str) -> MeasureCandidate | None:
        """A candidate from its trace; None where it does not fit this computation."""
        try:
            schedule = replay(self._entry.mod, text)
        except (ValueError, RuntimeError, TypeError, KeyError):
            return None
        arguments = ArgInfo.from_entry_func(self._entry.mod, remove_preproc=True)
        candidate = MeasureCandidate(schedule, arguments)
        self._remember(text, candidate)
        return candidate


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
        if not problem:
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
    different = {
        tvm_ffi.structural_hash(start["main"], map_free_vars=True): (start["main"], anchor)
        for start, anchor in starts
    }
    for number, (function, anchor) in enumerate(different.values()):
        name = f"{anchor}_{number}"
        # without a symbol TVM takes it for a task, as it does after FuseTIR
        variable = builder.add_func(function.without_attr("global_symbol"), f"{name}_kernel")
        *kinds, kind = (relax.TensorType(*types) for types in argument_types(function))
        operands = [relax.Var(f"input_{i}", operand) for i, operand in enumerate(kinds)]
        with builder.function(name, operands):
            with builder.dataflow():
                output = builder.emit_output(builder.emit(relax.call_tir(variable, operands, kind)))
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
