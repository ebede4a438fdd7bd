"""Which of the outcomes that the store knows today's templates would still make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf

from tilewright.core.records import Candidate, Measurement, Outcome
from tilewright.graph.tasks import TaskKey
from tilewright.graph.workload import Workload
from tilewright.store.known_candidates import own

Hashes = Callable[[Sequence[tuple[Workload, Candidate]]], Sequence[str | None]]


def without_outdated(
    known: Mapping[TaskKey, list[Outcome]],
    workloads: Mapping[TaskKey, Workload],
    current_hashes: Hashes,
) -> tuple[dict[TaskKey, list[Outcome]], int]:
    """Outcomes that today's templates would make, and how many groups have none of them left.

    A group is what one implementation gave for one task. Templates change at some time, so the
    first measurement whose kernel still has the same hash is found by bisection, all groups side by
    side; usually that is the oldest one, and one kernel per group is lowered. What another program
    measured is never among them: its kernel was not ours.
    """
    kept = {key: own(outcomes) for key, outcomes in known.items()}
    groups: dict[tuple[TaskKey, str], list[Measurement]] = defaultdict(list)
    for key, outcomes in kept.items():
        for outcome in sorted(outcomes, key=lambda outcome: outcome.created_at):
            if isinstance(outcome, Measurement):
                groups[key, outcome.candidate.implementation].append(outcome)
    low, high = dict.fromkeys(groups, 0), {group: len(found) for group, found in groups.items()}
    probes = dict.fromkeys(groups, 0)
    while probes:
        asked = {group: groups[group][index] for group, index in probes.items()}
        hashes = current_hashes([(workloads[g[0]], m.candidate) for g, m in asked.items()])
        for (group, measurement), now in zip(asked.items(), hashes, strict=True):
            if now == measurement.kernel_hash:
                high[group] = probes[group]
            else:
                low[group] = probes[group] + 1
        probes = {g: (low[g] + high[g]) // 2 for g in groups if low[g] < high[g]}
    for (key, name), first in low.items():
        left = groups[key, name][first:]
        since = left[0].created_at if left else inf
        if first:
            kept[key] = [
                o for o in kept[key] if o.candidate.implementation != name or o.created_at >= since
            ]
    return kept, sum(first == len(groups[group]) for group, first in low.items())
