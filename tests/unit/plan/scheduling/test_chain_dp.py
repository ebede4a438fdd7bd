"""`chain_dp` is exact on chains: against all modes, and all pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, problems
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.parts import Link, Objective, ScheduledCall, ScheduleDevice, Wait
from tilewright.plan.scheduling.planners.chain_dp import ChainDp
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem


def chain(seed: int, calls: int, objective: Objective) -> SchedulingProblem:
    """A chain on a CPU of two cores and a GPU."""
    random = Random(seed)
    made = [
        ScheduledCall(
            name=f"call{number}",
            modes=(
                mode("cpu", us=random.randint(5, 60), energy_j=random.randint(1, 9) * MICRO),
                mode("cpu", 2, us=random.randint(3, 40), energy_j=random.randint(1, 9) * MICRO),
                mode("cuda", us=random.randint(1, 40), energy_j=random.randint(1, 9) * MICRO),
            ),
            answer=number == calls - 1,
        )
        for number in range(calls)
    ]
    return SchedulingProblem(
        devices=(
            ScheduleDevice(name="cpu", cores=2, idle_w=0.1, price_per_hour=1.0),
            ScheduleDevice(name="cuda", kind="cuda", idle_w=0.3, price_per_hour=3.0),
        ),
        calls=tuple(made),
        waits=tuple(
            Wait(before=f"call{n}", after=f"call{n + 1}", bytes=1000 * random.randint(1, 9))
            for n in range(calls - 1)
        ),
        links=tuple(
            Link(origin=a, destination=b, latency_s=2 * MICRO, bytes_per_s=1e9)
            for a, b in (("cpu", "cuda"), ("cuda", "cpu"))
        ),
        handoff_s=random.choice((0, 3)) * MICRO,
        objective=objective,
    )


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    calls=st.integers(1, 5),
    objective=st.sampled_from(["latency", "energy", "price"]),
)
def test_no_choice_of_modes_is_better(seed: int, calls: int, objective: Objective) -> None:
    problem = chain(seed, calls, objective)
    found = schedule_with("chain_dp", problem)
    least = inf
    for modes in product(range(3), repeat=calls):
        least = min(least, decode(problem, range(calls), modes).objective)
    assert found.objective == pytest.approx(least)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), calls=st.integers(1, 6))
def test_no_pipeline_is_better(seed: int, calls: int) -> None:
    """Every division into contiguous stages on the GPU, the CPU, or each of its cores."""
    problem = replace(chain(seed, calls, "throughput"), handoff_s=0.0)
    found = schedule_with("chain_dp", problem)
    times = [[each.latency_s for each in call.modes] for call in problem.calls]
    times = [[one, min(one, both), gpu] for one, both, gpu in times]
    sizes = [wait.bytes / 1e9 + 2 * MICRO for wait in problem.waits]
    least = inf
    for lanes in ({"cpu": 1}, {"core0": 0, "core1": 0}):
        places = (*((name, column) for name, column in lanes.items()), ("cuda", 2))
        for way in product(places, repeat=calls):
            names = [name for name, _ in way]
            stages = [n for at, n in enumerate(names) if not at or names[at - 1] != n]
            if len(set(stages)) < len(stages) or (
                "cpu" in names and "core0" in names + ["core0"] and {"core0", "core1"} & set(names)
            ):
                continue
            loads = {name: 0.0 for name in names}
            longest = 0.0
            for at, (name, column) in enumerate(way):
                loads[name] += times[at][column]
                if at and (names[at - 1] == "cuda") != (name == "cuda"):
                    longest = max(longest, sizes[at - 1])
            least = min(least, max(longest, *loads.values()))
    assert found.objective <= least * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3))
def test_no_schedule_of_chain_dp_breaks_a_limit(problem: SchedulingProblem) -> None:
    found = schedule_with("chain_dp", problem)
    assert found.objective <= schedule_with("sequential", problem).objective


def test_what_lies_between_calls_in_common_is_one_link() -> None:
    calls = {name: on_cores(10, 2) for name in "abcd"}
    found = schedule_with("chain_dp", plain_problem(calls, "a>b a>c b>d c>d"))
    assert found.note == "1 of 2 links are several calls"


def test_a_way_that_is_missing_is_not_gone() -> None:
    problem = chain(1, 4, "throughput")
    found = schedule_with("chain_dp", replace(problem, links=problem.links[:1]))
    assert all(way.origin == "cpu" for way in found.transfers)


def test_pipelines_are_left_out_where_they_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four devices of eight cores have 256 divisions; those of few lanes are looked at."""
    devices = tuple(ScheduleDevice(name=f"d{n}", cores=8) for n in range(4))
    modes = tuple(mode(device.name, cores) for device in devices for cores in (1, 8))
    calls = {f"c{n}": modes for n in range(60)}
    waits = " ".join(f"c{n}>c{n + 1}" for n in range(59))
    problem = plain_problem(calls, waits, devices=devices, objective="throughput")
    looked_at: list[int] = []

    def counted(_: object, lanes: Mapping[str, tuple[int, int]]) -> None:
        looked_at.append(sum(count for count, _ in lanes.values()))

    monkeypatch.setattr("tilewright.plan.scheduling.planners.chain_dp._Chain.pipeline", counted)
    found = ChainDp().schedule(problem, 1.0)
    assert 0 < len(looked_at) < 256 and max(looked_at) < 32 and looked_at[0] == 4
    left_out = 256 - len(looked_at)
    assert found.note == f"{left_out} divisions into lanes are left out, they take too long"
