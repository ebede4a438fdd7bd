"""`explain --threads`: the best number of threads of a network, from at most five measurements.

Times fall with the threads until they share a core, a memory channel or a barrier too many; where
that happens nobody knows beforehand, but it is rarely below half of the cores. So all of them and
four shares of them down to a half are measured, and the fastest measured one is taken: by what was
measured it is never worse than using all, whatever the curve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from tilewright.core.events import EventSink, Stage
from tilewright.core.predictions import ThreadsResult, ThreadTime
from tilewright.core.records import Placement
from tilewright.core.scratch import scratch_folder
from tilewright.measure.targeting import open_networks
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.store.base import Store
from tilewright.store.known_candidates import SettingsName, choose_plan

SHARES = (1.0, 7 / 8, 3 / 4, 5 / 8, 1 / 2)
_REPEATS, _WARMUP = 15, 2

Timer = Callable[[Placement], float]
"""Seconds of the network at a placement, that is, with its number of threads."""


def network_time_s(
    placement: Placement,
    *,
    model: str,
    options: ModelOptions,
    store: Store,
    settings: SettingsName,
    max_error: float,
) -> float:
    """Compile a network for a placement and time it alone."""
    network = prepare(model, options, placement)
    plan = choose_plan(network, store, placement, settings, max_error=max_error)
    with scratch_folder() as folder, open_networks(placement) as worker:
        worker.compile(plan, network.graph.constants, folder)
        worker.load("network", folder, plan.constant_names)
        inputs = network.sample_inputs(options.seed)
        return median(worker.time("network", inputs, repeats=_REPEATS, warmup=_WARMUP))


def study_threads(
    model: str,
    placement_with: Callable[[int], Placement],
    most: int,
    timer: Timer,
    events: EventSink,
) -> ThreadsResult:
    """Measure `most` threads and up to four fewer, and pick the fastest measured."""
    times_s: dict[int, float] = {}
    for count in counts_to_measure(most):
        events(Stage(name="time", detail=f"{model} with {count} threads"))
        times_s[count] = timer(placement_with(count))
    best = best_count(times_s)
    return ThreadsResult(
        model=model,
        measured=tuple(ThreadTime(threads=n, latency_s=s) for n, s in times_s.items()),
        best_threads=best,
        loss_of_all=times_s[most] / times_s[best] - 1,
    )


def counts_to_measure(most: int) -> tuple[int, ...]:
    """At most five numbers of threads, `most` first, falling: 16 → (16, 14, 12, 10, 8).

    Raises ValueError for less than one.
    """
    if most < 1:
        raise ValueError(f"{most} threads")
    return tuple(dict.fromkeys(max(1, round(share * most)) for share in SHARES))


def best_count(times_s: Mapping[int, float]) -> int:
    """The number of threads with the least time, the smaller of two equal ones. `times_s` are
    seconds by number of threads, at least one."""
    return min(times_s, key=lambda count: (times_s[count], count))
