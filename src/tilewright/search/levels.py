"""What `optimize` and `tune` are asked for, their level above all.

A task is the fused subgraph. At the operator level its bare anchor is tuned instead, with the type
and the layouts the anchor has inside the subgraph, and the setting is then carried over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msgspec import structs

from tilewright.core import arguments, errors, forms, records
from tilewright.core.budget import Limit
from tilewright.core.grouping import grouped
from tilewright.graph.tasks import Task, TaskKey, bare_anchor
from tilewright.kernels.base import CHOSEN
from tilewright.kernels.spaces import MAX_ERRORS, search_space
from tilewright.models import ModelOptions
from tilewright.plan.assignment.solving import DEFAULT as AUTO
from tilewright.plan.planners import planner_named
from tilewright.search.tuners.registry import DEFAULT

Level = Literal["op", "subgraph"]
LEVELS: tuple[Level, ...] = ("op", "subgraph")
SCOPES = (*LEVELS, "graph")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLevel:
    """Tuning subgraphs, then choosing layouts and algorithms over the whole graph.

    `solver`, a solver or a planner of another package, solves the problem, which is written to
    `save_problem`, a path or its text, where that is given.
    """

    solver: str = AUTO
    save_problem: Path | None = None

    def __post_init__(self) -> None:
        planner_named(arguments.text_of(self.solver, "solver"))
        object.__setattr__(
            self, "save_problem", arguments.path_or_none(self.save_problem, "save_problem")
        )


Scope = Level | GraphLevel


def checked_level(name: str | GraphLevel) -> Scope:
    """One of the known levels, `graph` with the usual solver; raises UsageError otherwise."""
    if isinstance(name, GraphLevel):
        return name
    if name == "graph":
        return GraphLevel()
    if name in LEVELS:
        return name
    named = arguments.text_of(name, "level")
    raise errors.UsageError(f"unknown level {named!r}", hint=errors.close_matches(named, SCOPES))


def level_name(level: Scope) -> str:
    """What results call a level."""
    return "graph" if isinstance(level, GraphLevel) else level


def anchor_group(task: Task) -> str:
    """What tasks with the same anchor in the same layouts share; empty without an anchor."""
    bare = bare_anchor(task.workload, task.forms)
    return "" if bare is None else f"{bare[0].key}@{','.join(forms.form_texts(bare[1]))}"


def bare_task(task: Task) -> Task:
    """The task that is tuned at the operator level: the bare anchor, or the task without one."""
    bare = bare_anchor(task.workload, task.forms)
    if bare is None:
        return task
    workload, ports = bare
    return replace(task, key=(workload.key, ports), workload=workload, forms=ports)


def bare_tasks(tasks: Mapping[TaskKey, Task]) -> dict[TaskKey, Task]:
    """The distinct bare tasks of a network, their counts added up."""
    alike = grouped([(bare.key, bare) for bare in map(bare_task, tasks.values())])
    return {
        key: replace(found[0], count=sum(bare.count for bare in found))
        for key, found in alike.items()
    }


def carried_over(
    ranked: Sequence[records.Candidate], task: Task, placement: records.Placement
) -> records.Candidate | None:
    """The best of a bare anchor's candidates that the fused task can take, in its layouts."""
    space = search_space(task.workload, task.forms, placement)
    for candidate in ranked:
        moved = structs.replace(candidate, forms=task.forms)
        number = space.number(moved)
        if number is not None and space.valid(number):
            return moved
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """What was asked for. `folder` is where the artifact goes; `command` is the verb.
    `origin` says in words what `model` was made from, where Python handed over an object.

    `max_error` is the allowed error of each output relative to its largest value; implementations
    with a larger error bound are not used. With `least_sqnr_db` outputs are right where their ratio
    of signal to noise is not below that many decibels, whatever the error of single elements.
    `usual_error` where nobody asked for an error.
    """

    model: str
    options: ModelOptions
    budget: Limit
    folder: Path
    max_error: float
    seed: int
    least_sqnr_db: float | None = None
    usual_error: bool = False
    origin: str = ""
    tuner: str = DEFAULT
    level: Scope = "subgraph"
    command: str = "optimize"

    @property
    def graph(self) -> GraphLevel | None:
        """How the graph tuner is asked to work, None without it."""
        return self.level if isinstance(self.level, GraphLevel) else None

    @property
    def only_predicted(self) -> bool:
        """Whether the graph tuner is to choose from records and facts, with nothing built."""
        return self.command == "tune" and self.graph is not None and self.budget.nothing

    def allows(self, check: records.NetworkCheck) -> bool:
        """Whether outputs are as right as was asked for."""
        if self.least_sqnr_db is None:
            return check.max_rel_error <= self.max_error
        return check.sqnr_db is not None and check.sqnr_db >= self.least_sqnr_db

    @property
    def kernel_error(self) -> float:
        """The error bound up to which implementations are used; where noise is a cost of the
        choice, what the network may have does not limit single kernels."""
        usual = MAX_ERRORS[self.options.precision]
        return max(self.max_error, usual) if self.options.precision in CHOSEN else self.max_error

    def used(self, check: records.NetworkCheck) -> float:
        """The power of the noise in the outputs by what is allowed."""
        if self.least_sqnr_db is not None and check.sqnr_db is not None:
            return 10.0 ** ((self.least_sqnr_db - check.sqnr_db) / 10.0)
        return (check.max_rel_error / self.max_error) ** 2

    @property
    def limit(self) -> str:
        """How messages tell the limit that an error exceeds."""
        if self.least_sqnr_db is None:
            return f"more than the allowed {self.max_error:g}"
        return f"less than the {self.least_sqnr_db:g} dB that are asked for"

    @property
    def asked(self) -> str:
        """The limit of the error as `--max-error` takes it: `40dB`, or `0.001`."""
        decibels = self.least_sqnr_db
        return f"{self.max_error:g}" if decibels is None else f"{decibels:g}dB"

    @property
    def searched_level(self) -> Level:
        """What single tasks are tuned at; the graph tuner works on fused subgraphs."""
        return "op" if self.level == "op" else "subgraph"
