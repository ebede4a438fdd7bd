"""What is believed of tasks: what the store knows, less what older templates made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.records import Candidate, Measurement, Outcome
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Workload
from tilewright.store.known_candidates import own, ranked

Hashes = Callable[[Sequence[tuple[Workload, Candidate]]], Sequence[str | None]]
_Group = tuple[TaskKey, str]


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is believed of the tasks of one network, as a referee wants it."""

    fused: Mapping[TaskKey, Task]
    known: dict[TaskKey, list[Outcome]]

    @property
    def tasks(self) -> Mapping[TaskKey, Task]:
        """All tasks are searched as they are."""
        return self.fused


def known_of(
    tasks: Mapping[TaskKey, Task],
    known: Mapping[TaskKey, list[Outcome]],
    wanted: Callable[[TaskKey, Candidate], bool] = lambda _key, _candidate: True,
) -> Known:
    """What is believed of `tasks`: outcomes of wanted candidates only, where one of these was
    measured right, else all."""
    found: dict[TaskKey, list[Outcome]] = {}
    for key in tasks:
        every = known.get(key, [])
        chosen = [outcome for outcome in every if wanted(key, outcome.candidate)]
        found[key] = chosen if ranked(chosen) else list(every)
    return Known(fused=tasks, known=found)


def believed(
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
    known = {key: own(outcomes) for key, outcomes in known.items()}
    groups = _measured(known)
    low = dict.fromkeys(groups, 0)
    high = {group: len(found) for group, found in groups.items()}
    probes = dict.fromkeys(groups, 0)
    while probes:
        asked = [(g, groups[g][index]) for g, index in probes.items()]
        hashes = current_hashes([(workloads[g[0]], m.candidate) for g, m in asked])
        for (group, measurement), now in zip(asked, hashes, strict=True):
            if now == measurement.kernel_hash:
                high[group] = probes[group]
            else:
                low[group] = probes[group] + 1
        probes = {g: (low[g] + high[g]) // 2 for g in groups if low[g] < high[g]}
    kept = {key: list(outcomes) for key, outcomes in known.items()}
    gone = 0
    for (key, name), found in groups.items():
        if low[key, name] == 0:
            continue
        rest = found[low[key, name] :]
        gone += not rest
        since = rest[0].created_at if rest else float("inf")
        kept[key] = [
            o for o in kept[key] if o.candidate.implementation != name or o.created_at >= since
        ]
    return kept, gone


def _measured(known: Mapping[TaskKey, list[Outcome]]) -> dict[_Group, list[Measurement]]:
    groups: dict[_Group, list[Measurement]] = {}
    for key, outcomes in known.items():
        for outcome in outcomes:
            if isinstance(outcome, Measurement):
                groups.setdefault((key, outcome.candidate.implementation), []).append(outcome)
    for found in groups.values():
        found.sort(key=lambda measurement: measurement.created_at)
    return groups
