"""What all parts of a search work with: where kernels are built, timed and kept, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypedDict, Unpack

from tilewright.core.budget import Budget
from tilewright.core.events import EventSink, Note
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Failure, Outcome, Placement, Protocol
from tilewright.cost.floors import Peaks
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.kernels.search_space import SearchSpace
from tilewright.kernels.spaces import (
    MAX_ERROR,
    library_candidates,
    ranked_defaults,
    search_space,
    too_inexact,
)
from tilewright.measure.base import Measurer, ignore
from tilewright.search.levels import Level, OptimizeRequest
from tilewright.search.tuners.registry import DEFAULT
from tilewright.store.base import Store

Guess = Callable[[Workload, tuple[Form, ...]], Sequence[Candidate]]


@dataclass(slots=True)
class Counts:
    """How many candidates a run has measured so far, and how many failed."""

    measurements: int = 0
    failures: int = 0


class Kept(TypedDict):
    """What a command that searches keeps and spends: fields of `SearchContext`."""

    store: Store
    events: EventSink
    budget: Budget
    protocol: Protocol
    run_id: int | None
    checkpoint: Callable[[], None]
    counts: Counts


@dataclass(slots=True, kw_only=True)
class SearchContext:
    """Where and how the kernels of one run are searched.

    Between rounds `stop` is asked whether to go on, and `checkpoint` is called. Implementations
    with an error bound above `max_error` are out, as are their records. `guess` tells settings that
    are worth a try first, for a workload in layouts. Without `recall` nothing that earlier runs
    measured counts.
    """

    placement: Placement
    store: Store
    measurer: Measurer
    events: EventSink
    budget: Budget
    peaks: Peaks
    protocol: Protocol
    seed: int = 0
    run_id: int | None = None
    model: str = ""
    tuner: str = DEFAULT
    level: Level = "subgraph"
    recall: bool = True
    max_error: float = MAX_ERROR
    guess: Guess = lambda _workload, _forms: ()
    stop: Callable[[], bool] = lambda: False
    checkpoint: Callable[[], None] = lambda: None
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def of(
        cls,
        request: OptimizeRequest,
        place: tuple[Placement, Measurer, Peaks],
        **kept: Unpack[Kept],
    ) -> SearchContext:
        """What a search works with that is asked for, where kernels are measured at a place, whose
        peaks are known."""
        placement, measurer, peaks = place
        return cls(
            placement=placement,
            measurer=measurer,
            peaks=peaks,
            seed=request.seed,
            model=request.model,
            tuner=request.tuner,
            level=request.searched_level,
            max_error=request.kernel_error,
            **kept,
        )

    @property
    def ends(self) -> bool:
        """Whether nothing more is to be measured."""
        return self.budget.exhausted or self.stop()

    def note(self, message: str) -> None:
        """Tell people something."""
        self.events(Note(message=message))

    def space(self, task: Task) -> SearchSpace:
        """The settings of a task that can be searched."""
        return search_space(task.workload, task.forms, self.placement, self.max_error)

    def defaults(self, task: Task) -> dict[Candidate, float]:
        """The default settings of each implementation with their estimates, the best first."""
        return dict(ranked_defaults(task.workload, task.forms, self.placement, self.max_error))

    def libraries(self, task: Task) -> list[Candidate]:
        """What libraries offer for a task."""
        return library_candidates(task.workload, task.forms, self.placement, self.max_error)

    def exact_enough(self, task: Task, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes of implementations that are exact enough for a task."""
        out = too_inexact(task.workload, task.forms, self.placement, self.max_error)
        return [o for o in outcomes if o.candidate.implementation not in out]

    def measure(
        self,
        task: Task,
        candidates: Sequence[Candidate],
        *,
        protocol: Protocol | None = None,
        give_up_s: float = inf,
        finished: Callable[[Outcome], None] = ignore,
    ) -> list[Outcome]:
        """Measure candidates of a task. Each outcome is kept and counted as soon as it is known,
        and then told to `finished`, so that a kill loses at most what is in flight."""

        def known(outcome: Outcome) -> None:
            self.keep(outcome)
            self.budget.measured()
            finished(outcome)

        return self.measurer.measure(
            task.workload,
            candidates,
            protocol or self.protocol,
            run_id=self.run_id,
            give_up_s=give_up_s,
            finished=known,
        )

    def keep(self, outcome: Outcome) -> None:
        """Store an outcome, as one of the network that is searched for, and count it."""
        self.store.add([replace(outcome, model=self.model)])
        failed = isinstance(outcome, Failure)
        self.counts.failures += failed
        self.counts.measurements += not failed
