"""Timing the calls of a network in their places, on each number of cores that a plan may give them.

The network is compiled once, one call after the other, as it is beside the plan when that is run:
calls in lanes have the same kernels on fewer threads. It runs in a process for each number of
cores, in turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import Placement
from tilewright.core.scratch import scratch_folder
from tilewright.core.targets import threads_alone
from tilewright.core.timings import NOISY_ROUNDS
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.measure.network_timing import time_places
from tilewright.measure.networks import NetworkRunner, NetworkWorker
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.call_times import CallTimes, TimeInPlace, with_readers

ROUNDS = 7
_NAME = "network"
_NOISY = 4
"""The least and the most of each call are farther apart than those of whole rounds."""


def timed_calls(
    network: PreparedNetwork,
    plan: NetworkPlan,
    placement: Placement,
    counts: Collection[int],
    events: EventSink,
) -> CallTimes:
    """What each call takes in its place on so many of a placement's cores: rounds A B A B, each of
    which has the medians of some runs. Raises as `NetworkWorker` does."""
    with scratch_folder() as folder, ExitStack() as stack:
        workers = {
            cores: stack.enter_context(
                NetworkWorker(replace(placement, resources=threads_alone(cores)))
            )
            for cores in sorted(counts)
        }
        events(Stage(name="compile", detail=f"{len(plan.symbols)} kernels"))
        next(iter(workers.values())).compile(plan, network.graph.constants, folder)
        for worker in workers.values():
            worker.load(_NAME, folder, plan.constant_names)
        events(Stage(name="time", detail=f"{len(plan.calls)} calls in their places"))
        times = in_rounds(network, plan, workers)
    tell_noise(times, events)
    return times


def tell_noise(times: CallTimes, events: EventSink) -> None:
    """Say by how much rounds differ, where that is more than the machine usually does."""
    for cores, calls in times.items():
        calmest, most = (
            sum(getattr(each, end) for each in calls.values()) for end in ("seconds", "high_s")
        )
        spread = (most - calmest) / calmest if calmest else 0.0
        if spread > _NOISY * NOISY_ROUNDS:
            where = "1 core" if cores == 1 else f"{cores} cores"
            events(
                Note(
                    message=f"On {where}, calls took up to {spread:.0%} longer in their longest "
                    "rounds than in their calmest: something else runs on this machine, so the "
                    "planned times are uncertain."
                )
            )


def in_rounds(
    network: PreparedNetwork, plan: NetworkPlan, workers: Mapping[int, NetworkRunner]
) -> CallTimes:
    """The same by workers that have the network loaded, by their number of cores."""
    inputs: Sequence[Array] = network.sample_inputs(0)
    own = {call.name for call in network.fused.calls}
    rounds_s = {cores: defaultdict[str, list[float]](list) for cores in workers}
    for _ in range(ROUNDS):
        for cores, worker in workers.items():
            places_s = time_places(worker, _NAME, plan, inputs)
            for name, seconds in with_readers(plan, places_s, own).items():
                rounds_s[cores][name].append(seconds)
    return {
        cores: {name: TimeInPlace.of(each) for name, each in calls.items()}
        for cores, calls in rounds_s.items()
    }
