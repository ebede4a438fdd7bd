"""Random scheduling problems with every feature, drawn so that at least one plan keeps all limits:
that which runs one call after the other on the first device."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from random import Random

from hypothesis import strategies as st

from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import measures
from tilewright.plan.scheduling.parts import (
    Limits,
    Link,
    Mode,
    Objective,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot
from tilewright.plan.scheduling.scheduler import NothingFound

MICRO = 1e-6
OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput", "energy", "price")


def mode(device: str = "cpu", cores: int = 1, us: float = 10.0, **named: object) -> Mode:
    """A mode of so many microseconds, known exactly."""
    seconds = us * MICRO
    given: dict[str, object] = {"low_s": seconds, "high_s": seconds, **named}
    return Mode(device=device, cores=cores, latency_s=seconds, **given)  # type: ignore[arg-type]


def on_cores(
    us: float, cores: int = 2, device: str = "cpu", overhead_us: float = 0.0
) -> tuple[Mode, ...]:
    """Modes on one core and more: the time divided by the cores, and so much more for each."""
    return tuple(
        mode(device, count, us / count + overhead_us * (count - 1)) for count in range(1, cores + 1)
    )


def plain_problem(
    calls: dict[str, tuple[Mode, ...]], waits: str = "", /, cores: int = 2, **named: object
) -> SchedulingProblem:
    """A problem on one CPU without limits; `waits` as in "a>b a>c"; what nothing reads is an
    answer."""
    pairs = [tuple(each.split(">")) for each in waits.split()]
    read = {before for before, _ in pairs}
    given: dict[str, object] = {
        "devices": (ScheduleDevice(name="cpu", cores=cores),),
        "calls": tuple(
            ScheduledCall(name=name, modes=modes, answer=name not in read)
            for name, modes in calls.items()
        ),
        "waits": tuple(Wait(before=before, after=after) for before, after in pairs),
        **named,
    }
    return SchedulingProblem(**given)  # type: ignore[arg-type]


def random_problem(
    seed: int,
    *,
    calls: int = 6,
    devices: int = 2,
    cores: int = 2,
    limits: bool = True,
    objective: Objective = "latency",
) -> SchedulingProblem:
    """Up to so many calls, devices and cores of each: several networks, equal tasks, hand-offs,
    ways that are missing, and limits of every kind, some of them as tight as they can be."""
    random = Random(seed)
    made = tuple(_device(random, number, cores) for number in range(random.randint(1, devices)))
    names = [device.name for device in made]
    networks = [f"network{number}" for number in range(random.choice((1, 1, 2)))]
    tasks = [_modes(random, made) for _ in range(random.randint(1, calls))]
    drawn: list[ScheduledCall] = []
    for number in range(random.randint(1, calls)):
        task = random.randrange(len(tasks))
        drawn.append(
            ScheduledCall(
                name=f"call{number}",
                task=f"task{task}",
                modes=tasks[task],
                network=random.choice(networks),
                output_bytes=random.randint(0, 9) * 100,
                crossing_s=random.choice((0, 0, 2)) * MICRO,
            )
        )
    waits = _waits(random, drawn)
    read = {wait.before for wait in waits}
    problem = SchedulingProblem(
        devices=made,
        calls=tuple(
            replace(call, answer=call.name not in read or random.random() < 0.1) for call in drawn
        ),
        waits=tuple(waits),
        links=tuple(
            Link(
                origin=origin,
                destination=destination,
                latency_s=random.randint(0, 5) * MICRO,
                bytes_per_s=random.choice((1e7, 1e8, 1e9)),
            )
            for origin in names
            for destination in names
            if origin != destination and random.random() < 0.8
        ),
        handoff_s=random.choice((0, 0, 1, 3)) * MICRO,
        objective=objective,
        name=f"random {seed}",
    )
    return limited(problem, random) if limits else problem


def _device(random: Random, number: int, cores: int) -> ScheduleDevice:
    return ScheduleDevice(
        name=f"device{number}",
        kind=random.choice(("cpu", "cuda")),
        cores=random.randint(1, cores),
        idle_w=random.choice((0.0, 1.0, 5.0)),
        price_per_hour=random.choice((0.5, 1.0, 3.0)),
    )


def _modes(random: Random, devices: tuple[ScheduleDevice, ...]) -> tuple[Mode, ...]:
    """The modes of a task: always some on the first device."""
    found: list[Mode] = []
    for number, device in enumerate(devices):
        if number and random.random() < 0.4:
            continue
        alone = random.choice((0, *range(1, 41)))
        counts = [count for count in range(1, device.cores + 1) if random.random() < 0.7]
        for count in counts or [random.randint(1, device.cores)]:
            found += [
                mode(
                    device.name,
                    count,
                    alone / count + random.choice((0, 0, 1, 5)),
                    energy_j=random.randint(0, 20) * MICRO,
                    weight_bytes=random.randint(0, 5) * 100,
                    workspace_bytes=random.randint(0, 3) * 100,
                    moved_bytes=random.randint(0, 20) * 100,
                )
                for _ in range(random.choice((1, 1, 2)))
            ]
    return tuple(found)


def _waits(random: Random, calls: list[ScheduledCall]) -> list[Wait]:
    """Each call reads up to three earlier ones of its network."""
    waits: list[Wait] = []
    sizes = {call.name: random.randint(0, 9) * 100 for call in calls}
    for number, call in enumerate(calls):
        earlier = [other for other in calls[:number] if other.network == call.network]
        for other in random.sample(earlier, min(len(earlier), random.choice((0, 1, 1, 2, 3)))):
            part = random.choice((1, 1, 2))
            waits.append(Wait(before=other.name, after=call.name, bytes=sizes[other.name] // part))
    return waits


def limited(problem: SchedulingProblem, random: Random) -> SchedulingProblem:
    """The problem with limits that the plan on the first device keeps, sometimes just so; none of
    memory where calls that take no time hold some for no time."""
    plan = one_by_one(problem)
    instant = any(not each.latency_s for call in problem.calls for each in call.modes)
    found = measures(problem, plan)
    devices = tuple(
        replace(
            device,
            memory_bytes=None if memory is None or instant else int(memory),
            power_w=_above(random, found.peak_power_w[device.name], 0.1),
            bytes_per_s=random.choice((None, 1e8, 5e8)),
        )
        for device in problem.devices
        for memory in [_above(random, found.peak_memory_bytes[device.name], 100)]
    )
    ends = {call.network: plan.end_of(problem, call.network) for call in problem.calls}
    ends[""] = found.latency_s
    deadlines = {
        network: end * random.choice((1.0, 1.2, 2.0))
        for network, end in ends.items()
        if end and random.random() < 0.3
    }
    energy_j = None if found.energy_j is None else _above(random, found.energy_j, MICRO)
    return replace(
        problem, devices=devices, limits=Limits(deadlines_s=deadlines, energy_j=energy_j)
    )


def _above(random: Random, needed: float, least: float) -> float | None:
    """Just what is needed or more of it, at least `least`; often no limit."""
    factor = random.choice((None, None, 1, 1.2, 2))
    return None if factor is None else max(needed * factor, least)


def one_by_one(problem: SchedulingProblem) -> Schedule:
    """One call after the other in their order on the first device, each in its fastest mode there:
    written down without any planner."""
    home, handoff, time = problem.devices[0].name, problem.handoff_s, 0.0
    slots: list[Slot] = []
    for call in problem.calls:
        there = [place for place, each in enumerate(call.modes) if each.device == home]
        place = min(there, key=lambda place: (call.modes[place].latency_s, place))
        chosen = call.modes[place]
        cores = tuple(range(chosen.cores))
        if slots and slots[-1].cores != cores:
            time += handoff
        end = time + chosen.latency_s
        slots.append(Slot(call=call.name, mode=place, begin_s=time, end_s=end, cores=cores))
        time = end
    return Schedule(planner="one by one", slots=tuple(slots), objective=time)


def problems(
    *,
    calls: int = 6,
    devices: int = 2,
    cores: int = 2,
    limits: bool | None = None,
    objective: Objective | None = None,
) -> st.SearchStrategy[SchedulingProblem]:
    """Problems of up to such sizes, with and without limits and of every objective unless said."""

    def drawn(seed: int, size: int, limited: bool, kind: Objective) -> SchedulingProblem:
        return random_problem(
            seed, calls=size, devices=devices, cores=cores, limits=limited, objective=kind
        )

    return st.builds(
        drawn,
        st.integers(0, 2**32 - 1),
        st.integers(1, calls),
        st.booleans() if limits is None else st.just(limits),
        st.sampled_from(OBJECTIVES) if objective is None else st.just(objective),
    )


def least(problem: SchedulingProblem) -> float:
    """The least objective of all orders in all modes."""
    found: list[float] = []
    for modes in product(*(range(len(call.modes)) for call in problem.calls)):
        for order in permutations(range(len(problem.calls))):
            if any(order.index(b) > order.index(n) for n in order for b, _ in problem.before[n]):
                continue
            try:
                schedule = decode(problem, order, modes)
            except NothingFound:
                continue
            if not list(faults(problem, schedule)):
                found.append(schedule.objective)
    return min(found)
