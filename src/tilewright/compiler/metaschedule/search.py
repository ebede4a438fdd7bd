"""MetaSchedule's search over one workload, without its builder and runner.

The space comes from its schedule rules, proposals from its evolutionary search with its own cost
model; what they cost is told from outside.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from operator import attrgetter
from types import ModuleType

import numpy as np
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, MeasureCandidate
from tvm.s_tir.schedule import Trace

from tilewright.compiler.build import kernel_hash_of
from tilewright.compiler.lower.generic import trace_start
from tilewright.core.forms import Form
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload

BATCH = 32
"""Proposals per generation: MetaSchedule's default is 64, too many for small budgets."""
POPULATION = 256
"""Its default is 512; a generation's time is proportional to it."""
WARM_UP = 32
"""Measurements before the cost model is believed; its default is 100."""
_UNLIMITED = 1 << 30
_ELSEWHERE = ("cuda", "rocm", "hexagon")

logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.ERROR)


def _skip_elsewhere() -> None:
    """Keep the instructions of other devices from being parsed, which takes ten seconds.

    A search for a CPU asks for none of them, but TVM imports them all.
    """
    for name in _ELSEWHERE:
        module = f"tvm.s_tir.tensor_intrin.{name}"
        sys.modules.setdefault(module, ModuleType(module))


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
            _skip_elsewhere()
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
            if failed:
                continue
            self._database.commit_tuning_record(
                ms.database.TuningRecord(
                    candidate.sch.trace, self._entry, [seconds], self._target, candidate.args_info
                )
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
