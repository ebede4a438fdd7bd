"""Which sibling calls of networks a plan merges: convolutions of one image, say, that one kernel
computes.

    branches    a 40 µs, b 30 µs   →   network with "a + b"   55 µs   →   ios: merged

What a merged call takes is told of a network in which it is there, as of every other: by
predictors, or in its place. Merges whose results are no views of what one kernel writes are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tilewright.core.errors import ModelError
from tilewright.core.grouping import grouped
from tilewright.core.planning import PlanningCall, PlanningData
from tilewright.core.records import Placement
from tilewright.core.schedules import MergingGain
from tilewright.deploy.plan_models import merging
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.siblings import Group, inner_parts, sibling_groups, stacked_name
from tilewright.kernels.base import MIXED
from tilewright.plan.network_scheduling import prefixes
from tilewright.plan.scheduling.alternatives import AsRun
from tilewright.plan.scheduling.answering import Answer
from tilewright.plan.scheduling.merging import decided
from tilewright.plan.scheduling.parts import Merge, Mode
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.robust import at_upper_ends
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.simulator import simulate
from tilewright.plan.scheduling.sureness import merging_gain
from tilewright.plan.sources import ModelSource, NetworkSource
from tilewright.report.schedules import valued


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """Networks, what is known of each on the devices, in itself (`known`) and with several devices
    of a kind and those that tables tell of (`data`), and the problem of running them."""

    sources: Sequence[NetworkSource]
    known: Sequence[PlanningData]
    data: Sequence[PlanningData]
    problem: SchedulingProblem

    @property
    def merges(self) -> list[tuple[Group, ...]]:
        """The calls that are one in each network."""
        return [each.merges if isinstance(each, ModelSource) else () for each in self.sources]


Foresee = Callable[[Sequence[NetworkSource]], Foreseen]


def with_merges(
    usual: Foreseen,
    placements: Mapping[str, Placement],
    foresee: Foresee,
    limit_s: float,
    *,
    robust: bool = False,
) -> Foreseen:
    """The networks with those siblings merged with which `ios` finds the best schedule, in about
    `limit_s` seconds (`plan.scheduling.merging`), `robust` by the upper ends of intervals; the same
    object where nothing gains, nothing can be merged, or not enough is known of what is."""
    merges: dict[str, tuple[int, Group, Merge]] = {}
    each = [_layers(source, placements) for source in usual.sources]
    for layer in zip(*each, strict=True):
        if any(layer):
            sources = list(map(merging, usual.sources, layer))
            with suppress(ModelError):  # such as one for an energy that nobody knows
                merges |= _merges(usual, foresee(sources), layer)
    if not merges:
        return usual
    problem = replace(usual.problem, merges=tuple(merge for _, _, merge in merges.values()))
    counted = at_upper_ends if robust else _as_it_is
    chosen = decided(problem, counted, limit_s).numbers
    taken = [merges[name] for name in merges if name in chosen]
    if not taken:
        return usual
    own = ([group for at, group, _ in taken if at == n] for n in range(len(usual.sources)))
    with suppress(ModelError):
        return foresee(list(map(merging, usual.sources, own)))
    return usual


def better(
    plans: tuple[Foreseen, Foreseen],
    found: Sequence[Answer | NothingFound],
    *,
    robust: bool = False,
    as_run: AsRun | None = None,
) -> tuple[Foreseen, Answer]:
    """Of networks as they come and with merges the ones with the lesser objective, `robust` by the
    upper ends of intervals, and their answer, which says what merging gave, and for the least
    latency whether it is sure that it gains where schedules are run `as_run`. Raises NothingFound
    where there is neither."""
    (usual, merged), (apart, one) = plans, found
    if isinstance(one, NothingFound):
        if isinstance(apart, NothingFound):
            raise apart
        return usual, apart
    without, promise = "nothing was found without", None
    names = ", ".join(stacked_name(group) for groups in merged.merges for group in groups)
    if isinstance(apart, Answer):
        if apart.problem.objective == "latency":
            those, theirs = (one.problem, one.schedule), (apart.problem, apart.schedule)
            promise = merging_gain(those, theirs, as_run)
        if _counted(apart, robust=robust) <= _counted(one, robust=robust):
            said = f"nothing is merged: with {names} it is {valued(one.result, one.result.value)}"
            return usual, _with_note(apart, said, promise)
        without = f"it was {valued(apart.result, apart.result.value)} without"
    before, after = (len(each.problem.calls) for each in plans)
    said = f"{after} calls instead of {before}, since {names} are merged; {without}"
    return merged, _with_note(one, said, promise)


def _counted(found: Answer, *, robust: bool) -> float:
    """What a schedule is chosen by."""
    if not robust:
        return found.schedule.objective
    return simulate(at_upper_ends(found.problem), found.schedule).objective


def _with_note(found: Answer, said: str, promise: MergingGain | None) -> Answer:
    """An answer that says something more, and what merging promises."""
    note = "; ".join(filter(None, (found.schedule.note, said)))
    result = replace(found.result, note=note, merging=promise)
    return replace(found, schedule=replace(found.schedule, note=note), result=result)


def _as_it_is(problem: SchedulingProblem) -> SchedulingProblem:
    return problem


def _layers(
    source: NetworkSource, placements: Mapping[str, Placement]
) -> tuple[list[Group], list[Group]]:
    """The calls of a network that all devices can merge, and of those groups the ones without what
    begins a concatenation; none of what was compiled, or has types that shipped."""
    if not isinstance(source, ModelSource) or source.options.precision == MIXED:
        return [], []
    networks = list(_cut(source, placements))
    known = [sibling_groups(network) for network in networks]
    groups = [group for group in known[0] if all(group in other for other in known)]
    return groups, inner_parts(networks[0], groups)


def _cut(source: NetworkSource, placements: Mapping[str, Placement]) -> Iterator[FusedNetwork]:
    """The network as each device that computes all of it has it."""
    for placement in placements.values():
        with suppress(ModelError):
            yield source.prepared(placement).fused


def _merges(
    usual: Foreseen, merged: Foreseen, layer: Sequence[Sequence[Group]]
) -> dict[str, tuple[int, Group, Merge]]:
    """The merges of a layer that may gain, by the names of what they become, with the number of
    the network and the calls there."""
    found: dict[str, tuple[int, Group, Merge]] = {}
    there = {call.name: call for call in merged.problem.calls}
    for number, (prefix, data) in enumerate(zip(prefixes(usual.data), merged.data, strict=True)):
        own = {call.name: call for call in data.calls}
        more = [
            each
            for each in data.calls
            if prefix + each.name in there and prefix + each.name not in usual.problem.numbers
        ]
        for group in layer[number]:
            name = stacked_name(group)
            copied = any(_is_part(each, own[name]) for each in more)
            merge = Merge(
                calls=tuple(prefix + each for each in group), modes=there[prefix + name].modes
            )
            if not copied and _may_gain(usual.problem, merge):
                found[merge.name] = number, group, merge
    return found


def _is_part(call: PlanningCall, whole: PlanningCall) -> bool:
    """Whether a call copies what a merged one wrote, or joins it: it is no view there."""
    return whole.output in call.inputs or call.name.startswith(f"{whole.name}: ")


def _may_gain(problem: SchedulingProblem, merge: Merge) -> bool:
    """Whether on some cores of a device the merged call takes less than its calls one by one."""
    apart = [_least_s(problem.calls[problem.numbers[name]].modes) for name in merge.calls]
    return any(
        all(place in each for each in apart) and seconds < sum(each[place] for each in apart)
        for place, seconds in _least_s(merge.modes).items()
    )


def _least_s(modes: Sequence[Mode]) -> dict[tuple[str, int], float]:
    """What a call takes on so many cores of each device at least."""
    places = grouped([((mode.device, mode.cores), mode.latency_s) for mode in modes])
    return {place: min(seconds) for place, seconds in places.items()}
