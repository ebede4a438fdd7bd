"""MetaSchedule as a searcher: it proposes, our runner builds, times and stores.

    metaschedule  evolutionary search over the schedules that its rules derive

A generation takes seconds and gives many proposals, so they are kept and handed out as asked for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from tilewright.core.errors import UsageError
from tilewright.core.records import Candidate, Measurement, Outcome
from tilewright.kernels.metaschedule import NAME, TRACE
from tilewright.measure.metaschedule import SearchFailed, SearchProcess, shared_process
from tilewright.search.tuners.base import TuningTask

_MOST_RESTARTS = 1


class MetaScheduleTuner:
    """Asks MetaSchedule for the schedules of one task in fixed port layouts.

    Its search lives in a child process that all such tuners of a device share. A crash there costs
    the proposals not yet handed out; after a second one the tuner has nothing more to propose, and
    `problem` says why. `search_s` are the seconds spent waiting for it.
    """

    def __init__(self, task: TuningTask) -> None:
        if task.workload is None or task.placement is None:
            raise UsageError(
                "metaschedule searches kernels, not stored settings",
                hint="It cannot be replayed over a sweep; use it with `tune --tuner metaschedule`.",
            )
        self.search_s = 0.0
        self.problem = ""
        self._forms = task.forms
        self._description = (task.workload.text, task.forms, task.placement, task.seed)
        self._process: SearchProcess | None = shared_process(task.placement)
        self._slot = self._process.new_slot()
        self._pid: int | None = None
        self._restarts = 0
        self._queue = deque(task.guesses)
        self._seen: set[Candidate] = set()
        self._told: dict[str, float | None] = {}
        self._untold: dict[str, float | None] = {}

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` new candidates, guesses first, then those of one generation; empty when the
        search has ended."""
        found: list[Candidate] = []
        while len(found) < count:
            if not self._queue and (found or not self._refill()):
                break
            candidate = self._queue.popleft()
            if candidate not in self._seen:
                self._seen.add(candidate)
                found.append(candidate)
        return found

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Keep outcomes for the next generation; candidates of other kinds are ignored."""
        for outcome in outcomes:
            candidate = outcome.candidate
            if candidate.implementation != NAME or candidate.forms != self._forms:
                continue
            self._seen.add(candidate)
            seconds = outcome.latency_s if isinstance(outcome, Measurement) else None
            self._untold[str(candidate.setting(TRACE))] = seconds

    def close(self) -> None:
        """End the search; the process ends with the last tuner that uses it."""
        process, self._process = self._process, None
        if process is not None:
            process.end(self._slot)

    def _refill(self) -> bool:
        """Get the next generation; False when there is none."""
        while self._process is not None and self._restarts <= _MOST_RESTARTS:
            began = time.perf_counter()
            try:
                self._queue.extend(
                    Candidate(implementation=NAME, settings=((TRACE, trace),), forms=self._forms)
                    for trace in self._generate(self._process)
                )
                return bool(self._queue)
            except SearchFailed as error:
                self.problem = str(error)
                self._restarts += 1
                self._pid = None
            finally:
                self.search_s += time.perf_counter() - began
        return False

    def _generate(self, process: SearchProcess) -> list[str]:
        """One generation, after telling what was learnt; begins anew in a new process."""
        if self._pid is None or self._pid != process.pid:
            process.ask("begin", self._slot, *self._description)
            self._pid = process.pid
            self._untold = {**self._told, **self._untold}
        if self._untold:
            process.ask("learn", self._slot, list(self._untold.items()))
            self._told.update(self._untold)
            self._untold = {}
        return process.ask("propose", self._slot)
