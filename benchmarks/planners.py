"""Planners of schedules on real networks, with imaginary cores, accelerators and limits.

    python benchmarks/planners.py networks [--cores 4 8 16] [--planner NAME]… [--network NAME]…
                                           [--contention BYTES_PER_S]
    python benchmarks/planners.py blocks [--cores 4 8 16] [--network NAME]…
    python benchmarks/planners.py drawn [--cores 4 8 16]
    python benchmarks/planners.py towers      all: [--seconds 10] [--db DATABASE]

`networks` reads the calls of each network with their predicted times on this CPU, of all its cores;
what a call takes on other numbers of cores is assumed: the time falls with the number to the power
0.8, and a hand-off takes 5 µs. A row for each network, number of cores and planner has the latency,
how many times as fast it is as one call after the other, the gap to the proven bound, and seconds.
With `--contention` calls that run at a time slow each other down by what they stream (the scale of
`cost/contention.py`), and the latency beside each other, as the simulator has it, is told as well.

`blocks` asks `cpsat` for the proven gap of parts of networks that branch, of up to 60 calls each:
as many sections in a row as fit, between calls that all others come before or after; of a section
with more calls the first 60, the next 60 and so on; and of two networks beside each other the
first 30 calls at most of each. Beside the gap stands how far the bound that needs no search is
below. `drawn` asks the same of series-parallel blocks drawn at random, of 20, 40 and 60 calls of
10 to 100 µs on all cores.

`towers` puts two networks beside each other, whose results a head joins, on those cores and on an
accelerator that is assumed, too: 0.2 to 8 times as fast as 8 cores, chosen at random call by call,
for twice the energy, or 1.04 times as long for 0.6 of that. Rows compare with the better device
alone, then say what the least energy is that up to 5 % more latency buys, what is saved, and the
most that any plan could save by the proven bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise, product
from random import Random

from tilewright import Session
from tilewright.core.planning import PlanningData
from tilewright.plan.scheduling.beside import beside_each_other
from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.measures import measures
from tilewright.plan.scheduling.parts import (
    Limits,
    Link,
    Mode,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)
from tilewright.plan.scheduling.planners.cpsat import CpSat
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.precedence import never_beside_another, waits_of, width
from tilewright.plan.scheduling.problem import SchedulingProblem

NETWORKS = ("squeezenet1_1", "googlenet", "inception_v3", "nasnet_mobile")
PLANNERS = ("sequential", "heft", "threads", "ios", "nash", "cpsat")
PAIRS = (("squeezenet1_1", "googlenet"), ("googlenet", "inception_v3"), ("resnet18", "googlenet"))
POWER, HANDOFF_S = 0.8, 5e-6
WATT_OF_A_CORE, TIMES_THE_ENERGY = 5.0, 2.0
BRANCHING = (
    "squeezenet1_1",
    "googlenet",
    "inception_v3",
    "nasnet_mobile",
    "ssd_resnet50_512",
    "resnet50",
    "bert_base",
)
_MOST = 60
SLOWER_CLOCK, LESS_ENERGY = 1.04, 0.6


def network(
    session: Session, name: str, cores: int, prefix: str = "", contention: float | None = None
) -> SchedulingProblem:
    """A network on a CPU of so many cores, by the assumption above."""
    data: PlanningData = session.planning_data(f"zoo:{name}", ["llvm"])
    counts = [1 << power for power in range(cores.bit_length())]
    threads, made_by = data.devices[0].threads, {c.output: c.name for c in data.calls}
    sizes = {tensor.name: tensor.bytes for tensor in data.tensors}
    calls = [
        ScheduledCall(
            name=prefix + call.name,
            modes=tuple(
                replace(
                    _mode(call.modes[0].latency_s * (threads / count) ** POWER, count),
                    moved_bytes=call.modes[0].moved_bytes,
                )
                for count in counts
            ),
            output_bytes=sizes[call.output],
            answer=call.output in data.outputs,
        )
        for call in data.calls
    ]
    waits = [
        Wait(before=prefix + made_by[tensor], after=prefix + call.name, bytes=sizes[tensor])
        for call in data.calls
        for tensor in call.inputs
        if tensor in made_by
    ]
    return SchedulingProblem(
        devices=(
            ScheduleDevice(name="cpu", cores=cores, idle_w=0.0, contention_bytes_per_s=contention),
        ),
        calls=tuple(calls),
        waits=tuple(waits),
        handoff_s=HANDOFF_S,
        name=name,
    )


def _mode(seconds: float, cores: int) -> Mode:
    return Mode(
        device="cpu",
        cores=cores,
        latency_s=seconds,
        low_s=seconds,
        high_s=seconds,
        source="model",
        energy_j=seconds * cores * WATT_OF_A_CORE,
    )


def towers(session: Session, names: tuple[str, str], cores: int, seed: int) -> SchedulingProblem:
    """Two networks and a head on a CPU and an accelerator."""
    random = Random(seed)
    sides = [network(session, name, cores, f"{name}/") for name in names]
    calls, waits = [], []
    for side in sides:
        for call in side.calls:
            best = call.modes[-1]
            seconds = best.latency_s / 2 ** random.uniform(-2.3, 3)
            joules = TIMES_THE_ENERGY * (best.energy_j or 0.0)
            times = {"latency_s": seconds, "low_s": seconds, "high_s": seconds}
            card = replace(best, device="card", cores=1, energy_j=joules, **times)
            slow = {name: second * SLOWER_CLOCK for name, second in times.items()}
            saving = replace(card, energy_j=joules * LESS_ENERGY, kernel="slower clock", **slow)
            calls.append(replace(call, modes=(*call.modes, card, saving), answer=False))
            if call.answer:
                waits.append(Wait(before=call.name, after="head", bytes=call.output_bytes))
        waits += side.waits
    head = _mode(20e-6, 1)
    modes = (head, replace(head, device="card"))
    return SchedulingProblem(
        devices=(sides[0].devices[0], ScheduleDevice(name="card", kind="accelerator", idle_w=0.0)),
        calls=(*calls, ScheduledCall(name="head", modes=modes, answer=True)),
        waits=tuple(waits),
        links=tuple(
            Link(origin=a, destination=b, latency_s=10e-6, bytes_per_s=20e9)
            for a, b in (("cpu", "card"), ("card", "cpu"))
        ),
        handoff_s=HANDOFF_S,
        name=" and ".join(names),
    )


def blocks(
    session: Session, cores: int, names: Sequence[str] = BRANCHING
) -> Iterator[SchedulingProblem]:
    """Parts of networks, up to 60 calls each, alone and two beside each other."""
    problems = {name: network(session, name, cores) for name in names}
    for problem in problems.values():
        yield from parts(problem, _MOST)
    halves = [next(parts(problem, _MOST // 2), problem) for problem in problems.values()]
    yield from (beside(one, other) for one, other in pairwise(halves))


def drawn(_: Session, cores: int, __: Sequence[str] = ()) -> Iterator[SchedulingProblem]:
    """Blocks that no network has."""
    for size, seed in product((20, 40, _MOST), range(3)):
        yield series_parallel(size, cores, seed)


def parts(problem: SchedulingProblem, most: int) -> Iterator[SchedulingProblem]:
    """A network in rows of whole sections with so many calls at most, the last of one being the
    first of the next; of a section with more calls so many at a time. Chains are left out."""
    begin, last = 0, len(problem.calls) - 1
    cuts = sorted({*never_beside_another(waits_of(problem)), last})
    while begin < last:
        fit = [cut for cut in cuts if begin < cut < begin + most]
        end = fit[-1] if fit else min(begin + most, last + 1) - 1
        part = part_of(problem, begin, end)
        if width(waits_of(part)) > 1:
            yield part
        begin = end if fit else end + 1


def part_of(problem: SchedulingProblem, begin: int, end: int) -> SchedulingProblem:
    """The calls with these numbers, to the last one, as a problem: what others read is an answer,
    and what they wait for of others is there."""
    calls = problem.calls[begin : end + 1]
    names = {call.name for call in calls}
    waits = tuple(wait for wait in problem.waits if {wait.before, wait.after} <= names)
    read = {wait.before for wait in waits}
    answers = (replace(call, answer=call.answer or call.name not in read) for call in calls)
    title = f"{problem.name} {begin} to {end}"
    return replace(problem, name=title, calls=tuple(answers), waits=waits)


def beside(one: SchedulingProblem, other: SchedulingProblem) -> SchedulingProblem:
    """The calls of both, none of which waits for one of the other problem."""
    sides = [(f"{number}/", side) for number, side in enumerate((one, other))]
    return replace(
        one,
        name=f"{one.name} | {other.name}",
        calls=tuple(replace(c, name=at + c.name) for at, side in sides for c in side.calls),
        waits=tuple(
            replace(wait, before=at + wait.before, after=at + wait.after)
            for at, side in sides
            for wait in side.waits
        ),
    )


def series_parallel(size: int, cores: int, seed: int) -> SchedulingProblem:
    """So many calls, by splits of a wait in two: a call between its ends, or one beside it."""
    random, counts = Random(seed), [1 << power for power in range(cores.bit_length())]
    waits = [(0, 1)]
    for number in range(2, size):
        at = random.randrange(len(waits))
        before, after = waits[at]
        if random.random() < 0.5:
            waits[at : at + 1] = [(before, number), (number, after)]
        else:
            waits += [(before, number), (number, after)]
    calls: list[ScheduledCall] = []
    writers: dict[int, set[int]] = {number: set() for number in range(size)}
    for before, after in waits:
        writers[after].add(before)
    for number in TopologicalSorter(writers).static_order():
        seconds = random.uniform(10e-6, 100e-6)
        modes = tuple(_mode(seconds * (cores / count) ** POWER, count) for count in counts)
        calls.append(ScheduledCall(name=f"c{number}", modes=modes, answer=number == 1))
    return SchedulingProblem(
        devices=(ScheduleDevice(name="cpu", cores=cores, idle_w=0.0),),
        calls=tuple(calls),
        waits=tuple(Wait(before=f"c{b}", after=f"c{a}") for b, a in dict.fromkeys(waits)),
        handoff_s=HANDOFF_S,
        name=f"drawn {seed}",
    )


def block_rows(session: Session, given: argparse.Namespace) -> Iterator[str]:
    """A row for each block and number of cores."""
    made = blocks if given.what == "blocks" else drawn
    for cores in given.cores:
        for problem in made(session, cores, given.network or BRANCHING):
            plain = schedule_with("sequential", problem).latency_s
            found = schedule_with("cpsat", problem, given.seconds)
            yield (
                f"{problem.name:>46} {len(problem.calls):>3} calls {cores:>3} cores "
                f"{found.latency_s * 1e3:8.4f} ms {plain / found.latency_s:6.3f}x "
                f"gap {100 * found.gap:6.2f} %, without a search "
                f"{100 * (1 - bound(problem) / found.latency_s):6.2f} %, {found.solve_s:6.2f} s  "
                f"{found.note}"
            )


def alone(problem: SchedulingProblem, device: str, seconds: float) -> float:
    """The best latency on one device."""
    calls = (
        replace(call, modes=tuple(mode for mode in call.modes if mode.device == device))
        for call in problem.calls
    )
    return schedule_with("cpsat", replace(problem, calls=tuple(calls)), seconds).latency_s


def rows(session: Session, given: argparse.Namespace) -> Iterator[str]:
    """A row for each network, number of cores and planner."""
    for name, cores in product(given.network or NETWORKS, given.cores):
        problem = network(session, name, cores, contention=given.contention)
        plain = schedule_with("sequential", problem).latency_s
        for planner in given.planner or PLANNERS:
            found = schedule_with(planner, problem, given.seconds)
            beside_s = beside_each_other(problem, found).latency_s
            beside = f"{beside_s * 1e3:9.4f} ms beside " if given.contention else ""
            yield (
                f"{name:>14} {len(problem.calls):>4} calls {cores:>3} cores {planner:>10} "
                f"{found.latency_s * 1e3:9.4f} ms {beside}{plain / found.latency_s:6.3f}x "
                f"gap {100 * found.gap:6.2f} % {found.solve_s:8.3f} s  {found.note}"
            )


def tower_rows(session: Session, given: argparse.Namespace) -> Iterator[str]:
    """Rows of two networks on two devices, and of what energy costs in latency."""
    for seed, names in enumerate(PAIRS):
        problem = towers(session, names, given.cores[0], seed)
        best = min(alone(problem, device.name, given.seconds) for device in problem.devices)
        for planner in ("heft", "nash", "cpsat"):
            found = schedule_with(planner, problem, given.seconds)
            yield (
                f"{problem.name:>28} {planner:>6} {found.latency_s * 1e3:8.3f} ms "
                f"{best / found.latency_s:6.3f}x of the better device, gap {100 * found.gap:.1f} %"
            )
        within = Limits(deadlines_s={"": 1.05 * found.latency_s})
        capped = replace(problem, objective="energy", limits=within)
        saving = CpSat().improved(capped, [found], given.seconds)
        energy_j = measures(problem, found).energy_j or 1.0
        yield (
            f"{'':>28} {saving.latency_s / found.latency_s:6.3f} times the latency, "
            f"{saving.objective / energy_j:5.3f} times the energy: saved "
            f"{100 * (1 - saving.objective / energy_j):.1f} %, at most "
            f"{100 * (1 - saving.bound / energy_j):.1f} % could be, gap {100 * saving.gap:.1f} %"
        )


def main() -> None:
    """Print the rows of one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("networks", "blocks", "drawn", "towers"))
    parser.add_argument("--cores", type=int, nargs="+", default=[8])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--planner", action="append", default=[])
    parser.add_argument("--network", action="append", default=[])
    parser.add_argument("--contention", type=float)
    parser.add_argument("--db")
    given = parser.parse_args()
    made = {"networks": rows, "blocks": block_rows, "drawn": block_rows, "towers": tower_rows}
    for row in made[given.what](Session(db=given.db), given):
        print(row, flush=True)


if __name__ == "__main__":
    main()
