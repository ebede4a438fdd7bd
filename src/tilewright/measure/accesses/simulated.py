"""A made-up CPU that builds nothing: times are the implementations' estimates, results numpy's.

It lets everything above compilers be tried in seconds, on any machine, with the same answers. Its
artifacts hold the plan itself, which runs on a simulated device and nowhere else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError, ModelError
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.records import Candidate, Device, Failure, Outcome, Placement, Protocol
from tilewright.core.results import TargetRow
from tilewright.core.targets import Binding, threads_alone
from tilewright.graph.carry_out import carry_out
from tilewright.graph.evaluate import run_workload
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import plan_fields, read_plan
from tilewright.graph.workload import Workload
from tilewright.hardware.device import class_key
from tilewright.hardware.target import described_target
from tilewright.kernels.planned_memory import CompiledNetwork, planned_memory, workspaces_of
from tilewright.kernels.registry import implementation
from tilewright.measure.base import Array, Job, Measurer, ignore
from tilewright.measure.energy import KernelEnergy
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.resident import MemoryPeak

SIMULATED = "simulated"
_TARGET = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"}
_CORES = 4
LIBRARY, WEIGHTS = "model.so", "weights.params"
_OVERHEAD_S = 1e-6
"""What a network takes for each call beyond its kernel."""
_SPREAD = (0.99, 1.0, 1.01)
_PEAKS = {"flop_per_s": 1e11, "bytes_per_s": 1e10, "cache_bytes_per_s": 1e11}


def estimate_s(workload: Workload, candidate: Candidate, placement: Placement) -> float:
    """What a candidate's implementation says of it, in seconds."""
    spec = implementation(candidate.implementation)
    settings = [dict(candidate.settings)]
    facts = spec.facts(workload, placement.target, placement.resources, candidate.forms, settings)
    return float(np.asarray(facts["estimate_s"], dtype=np.float64).reshape(-1)[0])


class SimulatedMeasurer(Measurer):
    """Tells estimates as times, and numpy's results."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement, [])

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        protocol: Protocol,
        *,
        run_id: int | None = None,
        give_up_s: float = inf,
        finished: Callable[[Outcome], None] = ignore,
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        hashes = self.current_hashes([(workload, candidate) for candidate in candidates])
        for candidate, kernel_hash in zip(candidates, hashes, strict=True):
            job = Job(candidate=candidate, slot=0, worker=0, kernel_hash=kernel_hash or "")
            seconds = estimate_s(workload, candidate, self.placement)
            job.samples_s = [share * seconds for share in _SPREAD]
            outcomes.append(self._outcome(job, workload, protocol, run_id))
            finished(outcomes[-1])
        return outcomes

    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        return np.asarray(run_workload(workload, arrays))

    def peaks(self) -> dict[str, float]:
        return dict(_PEAKS)

    def current_hashes(self, kernels: Sequence[tuple[Workload, Candidate]]) -> list[str | None]:
        return [digest(canonical_json([workload.text, c])) for workload, c in kernels]

    def _answers(self, messages: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [None] * len(messages)

    def _build_message(self, job: Job, workload: Workload) -> tuple[Any, ...]:
        raise InternalError("a simulated device builds nothing")


_Made = tuple[NetworkPlan, Mapping[str, Array]]
"""A plan, and the graph's constants that it takes."""


def _write(plan: NetworkPlan, constants: Mapping[str, Array], folder: Path) -> None:
    """Write the plan in place of a library, the constants' bytes in place of packed weights."""
    taken = {name for constant in plan.constants for name in constant.sources.values()}
    raw = {n: np.ascontiguousarray(constants[n]).reshape(-1).view(np.uint8) for n in taken}
    (folder / LIBRARY).write_text(json.dumps({SIMULATED: plan_fields(plan)}), encoding="utf-8")
    with (folder / WEIGHTS).open("wb") as file:
        np.savez(file, allow_pickle=False, **raw)


def _read(folder: Path) -> _Made:
    """What was written into a folder. Raises ModelError for anything else."""
    try:
        text = (folder / LIBRARY).read_text(encoding="utf-8")
        plan = read_plan(json.loads(text)[SIMULATED])
        with np.load(folder / WEIGHTS, allow_pickle=False) as raw:
            constants = {
                name: raw[name].view(element_type(argument.type.dtype).numpy)
                for constant in plan.constants
                for index, name in constant.sources.items()
                for argument in [constant.workload.arguments[index]]
            }
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise ModelError(
            f"{str(folder)!r} holds no network that was compiled for a simulated device: {error}",
            hint="Run `tilewright optimize` again.",
        ) from error
    return plan, constants


class SimulatedNetworks:
    """Networks in this process: numpy carries plans out, estimates add up to times."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._loaded: dict[str, _Made] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._loaded.clear()

    def launch(self) -> None:
        """Nothing has to get ready."""

    def abort(self) -> None:
        """Nothing runs beside the caller."""

    def compile(
        self, plan: NetworkPlan, constants: Mapping[str, Array], folder: Path
    ) -> CompiledNetwork:
        folder.mkdir(parents=True, exist_ok=True)
        _write(plan, constants, folder)
        workspaces = {
            plan.symbol(call): workspaces_of(
                call.workload, call.candidate, self._placement.target, self._placement.resources
            )
            for call in plan.calls
        }
        return CompiledNetwork(workspaces=workspaces, library_bytes=0)

    def load(self, name: str, folder: Path, order: Sequence[str]) -> None:
        self._loaded[name] = _read(folder)

    def unload(self, name: str) -> None:
        self._loaded.pop(name, None)

    def run(self, name: str, inputs: Sequence[Array]) -> list[Array]:
        plan, constants = self._loaded[name]
        outputs = carry_out(plan, dict(zip(plan.inputs, inputs, strict=True)), constants)
        return [outputs[output] for output in plan.outputs]

    def time(self, name: str, inputs: Sequence[Array], *, repeats: int, warmup: int) -> list[float]:
        whole_s = sum(seconds + _OVERHEAD_S for _, seconds in self._calls(name))
        return [whole_s * _SPREAD[number % len(_SPREAD)] for number in range(repeats)]

    def repeat(self, name: str, inputs: Sequence[Array], seconds: float) -> int:
        time.sleep(seconds)
        return max(1, int(seconds / self.time(name, inputs, repeats=1, warmup=0)[0]))

    def memory_peak(
        self, folder: Path, order: Sequence[str], inputs: Sequence[Array], *, runs: int = 3
    ) -> MemoryPeak:
        planned = planned_memory(_read(folder)[0], self._placement.target)
        return MemoryPeak(bytes=planned.peak_bytes, method=SIMULATED, reason="")

    def time_calls(
        self, name: str, inputs: Sequence[Array], *, repeats: int
    ) -> list[tuple[str, float]]:
        return self._calls(name)

    def _calls(self, name: str) -> list[tuple[str, float]]:
        plan, _ = self._loaded[name]
        return [
            (plan.symbol(call), estimate_s(call.workload, call.candidate, self._placement))
            for call in plan.calls
        ]


class _Simulated:
    name = SIMULATED
    here = False
    runs_networks = True
    note = (
        "This is a made-up device: nothing is built and times are estimates, "
        "but what they are compared with is real."
    )

    def placement(self, target: str, tracker: str | None, threads: int | None) -> Placement | None:
        """Four cores with AVX2, of which `threads` are used."""
        if target.strip() != SIMULATED:
            return None
        count = min(threads or 1, _CORES)
        described = replace(described_target(_TARGET, cores=_CORES), model=SIMULATED)
        cpu = replace(described, tvm=json.dumps(_TARGET))
        device = Device(class_key=class_key(cpu), instance=SIMULATED, target=cpu, access=SIMULATED)
        return Placement(
            device=device,
            resources=threads_alone(count),
            binding=Binding(cpus=tuple(range(count))),
        )

    def rows(self, threads: int | None) -> Sequence[TargetRow]:
        return (
            TargetRow(
                name=SIMULATED,
                usable=True,
                detail="a made-up CPU: nothing is built, times are estimates",
                target=json.dumps(_TARGET),
                threads=threads or 1,
            ),
        )

    def refusal(self, placement: Placement) -> str | None:
        """None: no compiler sees it."""
        return None

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> Measurer:
        return SimulatedMeasurer(placement)

    def networks(self, placement: Placement) -> NetworkRunner:
        return SimulatedNetworks(placement)


ACCESS = _Simulated()
