"""The planners `ios` and `stages`: stages of groups beside each other, by dynamic programming.

    stage 1   a           on 4 cores
    stage 2   b → c       on 3 cores, beside d on 1 core
    stage 3   concat      on 4 cores

A stage ends what is left of a network: nothing that is not in it waits for it (an ending). Calls of
an ending that hang together are a group, which runs one call after the other; groups share the
cores so that the slowest ends soonest. Each set of calls that is left after an ending is planned
once (Ding et al., Inter-Operator Scheduler, MLSys 2021; the cores of a group are ours).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf

from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.choosing import best
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot

_PRUNED = ((3, 8), (2, 4), (1, 4), (1, 2))
"""The most calls of a group and groups of a stage, tried in this order where a set has more endings
than are looked at."""
_SETS = 10
"""So many sets of calls are gone through for each ending that may be looked at: of a hundred calls
that wait for nothing, most sets have too many groups to be one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Groups of call numbers, the cores that each has, and how long the slowest takes, with a
    hand-off before and after where not all cores go on together."""

    groups: tuple[tuple[int, ...], ...]
    cores: tuple[int, ...]
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages of a network on one device in order; `exact` says that no set of calls or ending
    was left out but those that are pruned by the size of groups."""

    stages: tuple[Stage, ...]
    exact: bool

    @property
    def latency_s(self) -> float:
        """How long they take one after the other."""
        return sum(stage.latency_s for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ios:
    """The best stages on any device that can compute all calls. When they are laid out each call
    begins as soon as it can, without regard to the ends of stages. It looks at latency alone and
    takes what the planner `sequential` finds where that is better.

    At most `most_endings` endings of a set are looked at, and about `most_steps` in all: of each
    size the most promising sets, until their share is used up."""

    name: str = "ios"
    most_endings: int = 500
    most_steps: int = 100_000

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The best of them; `limit_s` is not needed."""
        attempts: list[Callable[[], Schedule]] = [partial(Sequential().schedule, problem, limit_s)]
        notes: list[str] = []
        for device in problem.devices:
            tables = tables_of(problem, device.name)
            found = None if tables is None else self.stages(tables)
            if tables is not None and found is not None:
                attempts += _decoded(tables, found)
                wide = sum(len(stage.groups) > 1 for stage in found.stages)
                rest = "" if found.exact else ", not all sets of calls looked at"
                notes.append(
                    f"{device.name}: {len(found.stages)} stages, {wide} of several groups{rest}"
                )
        return replace(best(problem, self.name, attempts), note="; ".join(notes))

    def stages(self, tables: Tables) -> Stages | None:
        """The best stages on a device; None where there are none."""
        count, steps, exact = len(tables.fastest), self.most_steps, True
        levels: list[dict[int, _Left]] = [{} for _ in range(count + 1)]
        levels[count][(1 << count) - 1] = _Left(spent_s=0.0, before=0, ending=0)
        for size in range(count, 0, -1):
            level, enough = levels[size], steps - max(0, steps) // size
            for left in sorted(level, key=lambda each: tables.promise(each, level[each])):
                if steps < enough:
                    exact = False
                    break
                endings, complete = self._endings(tables, left)
                exact &= complete
                steps -= len(endings)
                for ending in endings:
                    spent_s = level[left].spent_s + tables.stage(ending).latency_s
                    rest = left & ~ending
                    known = levels[rest.bit_count()].get(rest)
                    if spent_s < (inf if known is None else known.spent_s):
                        levels[rest.bit_count()][rest] = _Left(
                            spent_s=spent_s, before=left, ending=ending
                        )
        if not levels[0]:
            return None
        return Stages(stages=tuple(_way_back(tables, levels)), exact=exact)

    def _endings(self, tables: Tables, left: int) -> tuple[list[int], bool]:
        """The endings of a set of calls, and whether these are all of the widest kind."""
        found: list[int] = []
        for most, groups in _PRUNED:
            widest = _Widest(left=left, calls=most, groups=min(groups, tables.cores))
            ways = _grown(tables, widest, 0, (), tables.free_of(left, left))
            looked_at = islice(ways, _SETS * self.most_endings)
            found = list(islice(filter(None, looked_at), self.most_endings + 1))
            if len(found) <= self.most_endings and next(ways, None) is None:
                return found, (most, groups) == _PRUNED[0]
        return found[: self.most_endings], False


@dataclass(frozen=True, slots=True, kw_only=True)
class InStages:
    """The same stages, each of which begins when the one before has ended, and groups keep their
    cores: what lanes in one parallel loop do (`plan.lanes`), so that a network on this CPU takes
    what such a plan says. It looks for stages as `searching` does."""

    name: str = "stages"
    searching: Ios = field(default_factory=Ios)

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The best of the devices that can compute all calls, or one call after the other;
        `limit_s` is not needed."""
        attempts: list[Callable[[], Schedule]] = [partial(Sequential().schedule, problem, limit_s)]
        for device in problem.devices:
            tables = tables_of(problem, device.name, widest=True)
            found = None if tables is None else self.searching.stages(tables)
            if tables is not None and found is not None:
                attempts.append(partial(_laid_out, tables, found))
        return best(problem, self.name, attempts)


def _decoded(tables: Tables, found: Stages) -> Iterator[Callable[[], Schedule]]:
    """Stages laid out group after group, and in the order in which their calls begin. Group after
    group, calls that need not wait for each other may take the cores that another group was to
    have; in the order of begins none is later than in the stages, where no limit comes between."""
    modes = tables.modes(found)
    grouped = [call for stage in found.stages for group in stage.groups for call in group]
    numbers = tables.problem.numbers
    begins = sorted(_slots(tables, found), key=lambda slot: slot.begin_s)
    for order in (grouped, [numbers[slot.call] for slot in begins]):
        yield partial(decode, tables.problem, order, modes)


def _laid_out(tables: Tables, found: Stages) -> Schedule:
    """Stages one after the other, the groups of each on cores of their own."""
    slots = tuple(_slots(tables, found))
    return judged(tables.problem, Schedule(planner="stages", slots=slots, objective=0.0))


def _slots(tables: Tables, found: Stages) -> Iterator[Slot]:
    """Where each call stands in stages one after the other."""
    begin_s = 0.0
    for stage in found.stages:
        times = zip(stage.groups, stage.cores, strict=True)
        spare_s = (stage.latency_s - max(tables.on(*each) for each in times)) / 2
        first = 0
        for group, cores in zip(stage.groups, stage.cores, strict=True):
            now_s = begin_s + spare_s
            for call in group:
                latency_s, place, used = tables.fastest[call][cores] or (inf, 0, 0)
                slot = Slot(
                    call=tables.problem.calls[call].name,
                    mode=place,
                    begin_s=now_s,
                    end_s=now_s + latency_s,
                    cores=tuple(range(first, first + used)),
                )
                yield slot
                now_s = slot.end_s
            first += cores
        begin_s += stage.latency_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """How calls came to be left: what the stages take that were cut off, and from which set."""

    spent_s: float
    before: int
    ending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Widest:
    """The endings of `left` that have at most so many groups of so many calls."""

    left: int
    calls: int
    groups: int


def _way_back(tables: Tables, levels: Sequence[Mapping[int, _Left]]) -> Iterator[Stage]:
    """The stages in order: the last ending that was cut off is the first stage."""
    left = 0
    while left.bit_count() < len(levels) - 1:
        step = levels[left.bit_count()][left]
        yield tables.stage(step.ending)
        left = step.before


def _grown(
    tables: Tables, widest: _Widest, ending: int, groups: tuple[int, ...], ready: int
) -> Iterator[int]:
    """All endings made of this one with its groups and of calls that are ready or become so, the
    last of them first; 0 for a set that has too many groups. While it grows there may be more
    groups, which later calls join."""
    while ready:
        call = ready.bit_length() - 1
        ready ^= 1 << call
        group = sum((each for each in groups if each & tables.beside[call]), 1 << call)
        if group.bit_count() > widest.calls:
            continue
        now = (*(each for each in groups if not each & group), group)
        yield ending | 1 << call if len(now) <= widest.groups else 0
        if len(now) <= widest.groups * max(1, widest.calls - 1):
            left = widest.left & ~(ending | 1 << call)
            more = ready | tables.free_of(tables.before[call] & left, left)
            yield from _grown(tables, widest, ending | 1 << call, now, more)


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What the planner reads of a problem on one device; sets of calls are the bits of a number.

    `fastest` has for each call and number of cores the latency and place of the mode that is
    fastest on so many or fewer, and how many it takes; None where there is none. `before` and
    `after` are the calls that each waits for and that wait for it, `beside` both.
    """

    problem: SchedulingProblem
    cores: int
    fastest: Sequence[Sequence[tuple[float, int, int] | None]]
    before: Sequence[int]
    after: Sequence[int]
    beside: Sequence[int]
    work_s: Sequence[float]
    _stages: dict[int, Stage] = field(default_factory=dict[int, "Stage"])
    _times: dict[int, list[float]] = field(default_factory=dict[int, "list[float]"])

    def free_of(self, calls: int, left: int) -> int:
        """Those of the calls that nothing waits for of what is left."""
        return sum(1 << call for call in _bits(calls) if not self.after[call] & left)

    def promise(self, left: int, reached: _Left) -> float:
        """What all stages take at least where so many calls are left."""
        return reached.spent_s + sum(self.work_s[call] for call in _bits(left)) / self.cores

    def stage(self, ending: int) -> Stage:
        """An ending as a stage; it takes for ever where its groups need more cores than there
        are."""
        if ending not in self._stages:
            self._stages[ending] = self._shared(self._groups(ending))
        return self._stages[ending]

    def modes(self, stages: Stages) -> list[int]:
        """The mode of each call by stages."""
        found = [0] * len(self.fastest)
        for stage in stages.stages:
            for group, cores in zip(stage.groups, stage.cores, strict=True):
                for call in group:
                    chosen = self.fastest[call][cores]
                    found[call] = chosen[1] if chosen else 0
        return found

    def _groups(self, ending: int) -> list[int]:
        found: list[int] = []
        while ending:
            group = ending & -ending
            more = group
            while more:
                call = more.bit_length() - 1
                more ^= 1 << call
                new = self.beside[call] & ending & ~group
                group |= new
                more |= new
            found.append(group)
            ending &= ~group
        return found

    def _shared(self, groups: Sequence[int]) -> Stage:
        """Groups with cores: more for the slowest as long as there are some that speed it up."""
        times = [self._group_s(group) for group in groups]
        given = [next((k for k, time in enumerate(each) if time < inf), 0) for each in times]
        given = given if len(groups) > 1 else [self.cores]
        while sum(given) <= self.cores:
            slowest = max(range(len(groups)), key=lambda at: times[at][given[at]])
            now_s, spare = times[slowest][given[slowest]], self.cores - sum(given)
            reach = range(given[slowest] + 1, given[slowest] + spare + 1)
            more = next((k for k in reach if times[slowest][k] < now_s), None)
            if more is None:
                break
            given[slowest] = more
        longest = max(each[k] for each, k in zip(times, given, strict=True))
        handing = 0.0 if self._undivided(groups) else 2 * self.problem.handoff_s
        return Stage(
            groups=tuple(tuple(_bits(group)) for group in groups),
            cores=tuple(given),
            latency_s=longest + handing if sum(given) <= self.cores else inf,
        )

    def _undivided(self, groups: Sequence[int]) -> bool:
        """Whether a stage begins and ends with a call on all cores, as the stages beside it may."""
        ends = (groups[0] & -groups[0]).bit_length() - 1, groups[0].bit_length() - 1
        chosen = [self.fastest[call][self.cores] for call in ends]
        return len(groups) == 1 and all(each and each[2] == self.cores for each in chosen)

    def _group_s(self, group: int) -> list[float]:
        """What a group takes on each number of cores, one call after the other."""
        if group not in self._times:
            calls = _bits(group)
            self._times[group] = [self.on(calls, cores) for cores in range(self.cores + 1)]
        return self._times[group]

    def on(self, group: Sequence[int], cores: int) -> float:
        """What calls take one after the other on so many cores."""
        total, last = 0.0, None
        for call in group:
            chosen = self.fastest[call][cores]
            if chosen is None:
                return inf
            total += chosen[0]
            if last not in (None, chosen[2]):
                total += self.problem.handoff_s
            last = chosen[2]
        return total


def tables_of(problem: SchedulingProblem, device: str, *, widest: bool = False) -> Tables | None:
    """What there is to read of one device; None where it cannot compute some call. With `widest`
    calls have all cores of their group that they have a mode for, even if fewer were faster."""
    cores = problem.device[device].cores
    fastest: list[list[tuple[float, int, int] | None]] = []
    work_s: list[float] = []
    for call, places in zip(problem.calls, usable_modes(problem), strict=True):
        there = [(call.modes[at], at) for at in places if call.modes[at].device == device]
        if not there:
            return None
        work_s.append(min(mode.cores * mode.latency_s for mode, _ in there))
        fastest.append(
            [
                min(
                    ((m.latency_s, at, m.cores) for m, at in there if m.cores <= most),
                    key=lambda each: (-each[2] if widest else 0, each[0], -each[2]),
                    default=None,
                )
                for most in range(cores + 1)
            ]
        )
    before = [sum(1 << number for number, _ in waits) for waits in problem.before]
    after = [sum(1 << number for number, _ in waits) for waits in problem.after]
    return Tables(
        problem=problem,
        cores=cores,
        fastest=fastest,
        before=before,
        after=after,
        beside=[one | other for one, other in zip(before, after, strict=True)],
        work_s=work_s,
    )


def _bits(calls: int) -> list[int]:
    """The calls of a set, in order."""
    found: list[int] = []
    while calls:
        found.append((calls & -calls).bit_length() - 1)
        calls &= calls - 1
    return found
