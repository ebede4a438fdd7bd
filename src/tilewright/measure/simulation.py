"""Kernels and networks of devices that are simulated in this process.

A builder of simulated kernels computes results and tells times; here they are measured as on any
device, and networks are carried out call by call in the memory that their plan lays out. Artifacts
hold the plan itself, which runs on a simulated device and nowhere else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tilewright.compiler.builders.base import FAULTS, Builder, Kernel
from tilewright.core import element_types, errors
from tilewright.core.records import Candidate, FailureKind, Placement, Protocol
from tilewright.core.weights import WEIGHTS
from tilewright.graph.carry_out import PlanMemory
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import plan_fields, read_plan
from tilewright.graph.workload import Workload
from tilewright.kernels.planned_memory import CompiledNetwork, planned_memory, workspaces_of
from tilewright.measure import networks, resident
from tilewright.measure.base import Array, Job, Measurer

LIBRARY = "model.so"
BuilderOf = Callable[[Candidate], Builder]
"""What builds a candidate's kernel."""

_MARK = "simulated"
_OVERHEAD_S = 1e-6
"""What a network takes for each call beyond its kernel."""
_SPREAD = (0.99, 1.0, 1.01)


class SimulatedMeasurer(Measurer):
    """Tells the times that kernels tell, and their results; `peaks` are what the device reaches."""

    def __init__(
        self, placement: Placement, builder_of: BuilderOf, peaks: Mapping[str, float]
    ) -> None:
        super().__init__(placement, [])
        self._builder_of = builder_of
        self._told_peaks = dict(peaks)

    def peaks(self) -> dict[str, float]:
        return dict(self._told_peaks)

    def current_hashes(self, kernels: Sequence[tuple[Workload, Candidate]]) -> list[str | None]:
        found: list[str | None] = [None] * len(kernels)
        target, resources = self.placement.target, self.placement.resources
        for number, (workload, candidate) in enumerate(kernels):
            with suppress(*FAULTS):
                builder = self._builder_of(candidate)
                found[number] = builder.identify(workload, candidate, target, resources)
        return found

    def _build_all(self, workload: Workload, candidates: Sequence[Candidate]) -> list[Job]:
        jobs = [Job(workload=workload, candidate=c, slot=next(self._slots)) for c in candidates]
        for job in jobs:
            self._build(job)
        return jobs

    def _build(self, job: Job) -> None:
        with _failing(job, "build"):
            job.kernel = self._builder_of(job.candidate).build(
                job.workload, job.candidate, self.placement.target, self.placement.resources
            )
            job.kernel_hash, job.build_s = job.kernel.kernel_hash, job.kernel.build_s

    def _time_all(
        self,
        jobs: Sequence[Job],
        protocol: Protocol,
        give_up_s: float,
        finish: Callable[[Job], None],
    ) -> None:
        for job in jobs:
            with _failing(job, "crash"):
                job.samples_s = job.kernel.time(protocol, 0, give_up_s)
            finish(job)

    def _evaluated(self, job: Job, arrays: Sequence[Array]) -> Array | None:
        self._build(job)
        with _failing(job, "crash"):
            return None if job.failure else np.asarray(job.kernel.run(arrays))


@contextmanager
def _failing(job: Job, kind: FailureKind) -> Generator[None]:
    """A fault in the block is a failure of the job."""
    try:
        yield
    except FAULTS as error:
        job.failure = (kind, _said(error))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {errors.last_line(error)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadedPlan:
    """A plan with its constants, and its kernels by symbol."""

    plan: NetworkPlan
    constants: Mapping[str, Array]
    kernels: Mapping[str, Kernel]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs in the plan's order."""
        named = dict(zip(self.plan.inputs, inputs, strict=True))
        memory = PlanMemory(self.plan, named, self.constants)
        for call in self.plan.calls:
            kernel = self.kernels[self.plan.symbol(call)]
            memory.write(call, np.asarray(kernel.run(memory.operands(call))))
        outputs = memory.outputs()
        return [outputs[output] for output in self.plan.outputs]

    def time_calls(
        self, _inputs: Sequence[Array] = (), _repeats: int = 1
    ) -> list[tuple[str, float]]:
        """Symbol and seconds of every call, in order."""
        told_s = {
            symbol: median(kernel.time(Protocol(), 0, inf))
            for symbol, kernel in self.kernels.items()
        }
        return [(symbol, told_s[symbol]) for symbol in map(self.plan.symbol, self.plan.calls)]

    def time(self, _inputs: Sequence[Array], repeats: int, _warmup: int = 0) -> list[float]:
        """Seconds of each run: the calls' times add up."""
        whole_s = sum(seconds + _OVERHEAD_S for _, seconds in self.time_calls())
        return [whole_s * _SPREAD[number % len(_SPREAD)] for number in range(repeats)]

    def repeat(self, inputs: Sequence[Array], seconds: float) -> int:
        """Wait; how often the network would have run meanwhile."""
        time.sleep(seconds)
        return max(1, int(seconds / self.time(inputs, 1)[0]))


_ANSWERS: Mapping[str, Callable[..., Any]] = {
    "run": _LoadedPlan.run,
    "time": _LoadedPlan.time,
    "repeat": _LoadedPlan.repeat,
    "time calls": _LoadedPlan.time_calls,
}
"""What answers each request about a network that is loaded."""


class SimulatedNetworks(networks.NetworkRunner):
    """Networks in this process: calls are carried out one by one."""

    def __init__(self, placement: Placement, builder_of: BuilderOf) -> None:
        self._placement = placement
        self._builder_of = builder_of
        self._loaded: dict[str, _LoadedPlan] = {}

    def compile(
        self, plan: NetworkPlan, constants: Mapping[str, Array], folder: Path
    ) -> CompiledNetwork:
        folder.mkdir(parents=True, exist_ok=True)
        _write(plan, constants, folder)
        target, resources = self._placement.target, self._placement.resources
        workspaces = {
            plan.symbol(call): workspaces_of(call.workload, call.candidate, target, resources)
            for call in plan.calls
        }
        return CompiledNetwork(workspaces=workspaces, library_bytes=0)

    def load(self, name: str, folder: Path, order: Sequence[str]) -> None:
        plan, constants = _read(folder)
        target, resources = self._placement.target, self._placement.resources
        try:
            kernels = {
                plan.symbol(call): self._builder_of(call.candidate).build(
                    call.workload, call.candidate, target, resources
                )
                for call in plan.calls
            }
        except FAULTS as error:
            raise errors.TargetError(
                f"the kernels of {str(folder)!r} cannot be built here: {_said(error)}",
                hint="Run `tilewright optimize` again.",
            ) from error
        self._loaded[name] = _LoadedPlan(plan=plan, constants=constants, kernels=kernels)

    def unload(self, name: str) -> None:
        self._loaded.pop(name, None)

    def memory_peak(
        self, folder: Path, order: Sequence[str], inputs: Sequence[Array], *, runs: int = 3
    ) -> resident.MemoryPeak:
        return resident.MemoryPeak(
            bytes=planned_memory(_read(folder)[0], self._placement.target).peak_bytes,
            method="simulated",
            reason="",
        )

    def _ask(self, message: tuple[Any, ...], more_s: float = 0.0) -> Any:
        what, name, *given = message
        return _ANSWERS[what](self._loaded[name], *given)


def _write(plan: NetworkPlan, constants: Mapping[str, Array], folder: Path) -> None:
    """Write the plan in place of a library, the constants' bytes in place of packed weights."""
    taken = {name for constant in plan.constants for name in constant.sources.values()}
    raw = {n: np.ascontiguousarray(constants[n]).reshape(-1).view(np.uint8) for n in taken}
    (folder / LIBRARY).write_text(json.dumps({_MARK: plan_fields(plan)}), encoding="utf-8")
    with (folder / WEIGHTS).open("wb") as file:
        np.savez(file, allow_pickle=False, **raw)


def _read(folder: Path) -> tuple[NetworkPlan, dict[str, Array]]:
    """The plan and the graph's constants that were written into a folder. Raises ModelError for
    anything else."""
    try:
        text = (folder / LIBRARY).read_text(encoding="utf-8")
        plan = read_plan(json.loads(text)[_MARK])
        with np.load(folder / WEIGHTS, allow_pickle=False) as raw:
            constants = {
                name: raw[name].view(element_types.element_type(argument.type.dtype).numpy)
                for constant in plan.constants
                for index, name in constant.sources.items()
                for argument in [constant.workload.arguments[index]]
            }
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise errors.ModelError(
            f"{str(folder)!r} holds no network that was compiled for a simulated device: {error}",
            hint="Run `tilewright optimize` again.",
        ) from error
    return plan, constants
