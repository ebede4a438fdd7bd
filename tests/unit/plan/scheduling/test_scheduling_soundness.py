"""What a scheduling problem refuses, and that the message names it."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings

from helpers.scheduling import MICRO, mode, plain_problem, problems
from tilewright.core.errors import ModelError
from tilewright.plan.scheduling.parts import (
    Limits,
    Link,
    Merge,
    Mode,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)
from tilewright.plan.scheduling.problem import SchedulingProblem

ONE = (mode(),)
CPU = ScheduleDevice(name="cpu", cores=2)
GPU = ScheduleDevice(name="cuda")


def chain(**named: Any) -> SchedulingProblem:
    """Two calls, b after a."""
    return plain_problem({"a": ONE, "b": ONE}, "a>b", **named)


def calls(**modes: Any) -> dict[str, Any]:
    """The fields of a problem of such calls, in a row."""
    names = list(modes)
    return {
        "calls": tuple(ScheduledCall(name=name, modes=each) for name, each in modes.items()),
        "waits": tuple(Wait(before=a, after=b) for a, b in zip(names, names[1:], strict=False)),
    }


def merging(one: str, other: str, modes: tuple[Mode, ...] = ONE) -> dict[str, Any]:
    """The field of a problem whose calls may be merged."""
    return {"merges": (Merge(calls=(one, other), modes=modes),)}


ANSWERS = tuple(ScheduledCall(name=name, modes=ONE, answer=True) for name in "ab")
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a circle": (
        {"waits": (Wait(before="a", after="b"), Wait(before="b", after="a"))},
        "in a circle: 'a' → 'b' → 'a'|in a circle: 'b' → 'a' → 'b'",
    ),
    "a wait for itself": ({"waits": (Wait(before="a", after="a"),)}, "in a circle: 'a' → 'a'"),
    "against the order": ({"waits": (Wait(before="b", after="a"),)}, "'a' stands before 'b'"),
    "a wait twice": ({"waits": (Wait(before="a", after="b"),) * 2}, "'a' → 'b' is there twice"),
    "a wait for nobody": ({"waits": (Wait(before="a", after="bb"),)}, "no call is called 'bb'"),
    "less than nothing": ({"waits": (Wait(before="a", after="b", bytes=-1),)}, "bytes is -1"),
    "disconnected": (
        calls(a=ONE, b=ONE) | {"waits": ()},
        "call 'a' waits for nothing, nothing waits for it",
    ),
    "no call": ({"calls": (), "waits": ()}, "there is no call"),
    "no device": ({"devices": ()}, "there is no device"),
    "a call twice": (
        {"calls": (ScheduledCall(name="a", modes=ONE),) * 2, "waits": ()},
        "two calls are called 'a'",
    ),
    "a device twice": ({"devices": (CPU, CPU)}, "two devices are called 'cpu'"),
    "a call without a name": (
        {"calls": (ScheduledCall(name="", modes=ONE),), "waits": ()},
        "a call has no name",
    ),
    "no mode": (calls(a=ONE, b=()), "call 'b' has no mode: no device can compute it"),
    "an unknown device": (calls(a=ONE, b=(mode("cpv"),)), "no device is called 'cpv'. Known: cpu"),
    "too many cores": (calls(a=ONE, b=(mode(cores=3),)), "3 cores of 'cpu', which has 2"),
    "no core": (calls(a=ONE, b=(mode(cores=0),)), "0 cores"),
    "a time that is none": (calls(a=ONE, b=(mode(us=nan),)), "latency_s is nan"),
    "an endless time": (calls(a=ONE, b=(mode(us=inf),)), "latency_s is inf"),
    "a negative time": (calls(a=ONE, b=(mode(us=-1),)), "latency_s is -"),
    "an interval upside down": (calls(a=ONE, b=(mode(low_s=1.0),)), "is above high_s"),
    "equal tasks that differ": (
        {
            "calls": (
                ScheduledCall(name="a", task="t", modes=ONE),
                ScheduledCall(name="b", task="t", modes=(mode(us=3),)),
            )
        },
        "'a' and 'b' are of the task 't' and have other modes",
    ),
    "a merge of nobody": (merging("a", "x"), "merge 'a \\+ x': no call is called 'x'"),
    "a merge of one": (merging("a", "a"), "merge 'a \\+ a' needs two different calls"),
    "a merge of a row": (merging("a", "b"), "'a \\+ b': one of its calls waits for another"),
    "a merge without a mode": (
        merging("a", "b", ()) | {"calls": ANSWERS, "waits": ()},
        "call 'a \\+ b' has no mode",
    ),
    "a merge of networks": (
        merging("a", "b") | {"calls": (ANSWERS[0], replace(ANSWERS[1], network="n")), "waits": ()},
        "is of several networks",
    ),
    "a merge that is named as a call": (
        merging("a", "b") | {"calls": (*ANSWERS, replace(ANSWERS[0], name="a + b")), "waits": ()},
        "would have the name of another call",
    ),
    "no way": (
        calls(a=ONE, b=(mode("cuda"),)) | {"devices": (CPU, GPU)},
        "'a' runs on 'cpu' and 'b', which reads its result, on 'cuda', and no link goes there",
    ),
    "a link to nobody": (
        {"links": (Link(origin="cpu", destination="gpu", latency_s=0, bytes_per_s=1),)},
        "no device is called 'gpu'",
    ),
    "a link to itself": (
        {"links": (Link(origin="cpu", destination="cpu", latency_s=0, bytes_per_s=1),)},
        "goes nowhere",
    ),
    "a link without speed": (
        {
            "devices": (CPU, GPU),
            "links": (Link(origin="cpu", destination="cuda", latency_s=0, bytes_per_s=0),),
        },
        "bytes_per_s is 0",
    ),
    "a device without cores": ({"devices": (replace(CPU, cores=0),)}, "cores is 0"),
    "idle above the limit": (
        {"devices": (replace(CPU, idle_w=5.0, power_w=4.0),)},
        "draws 5.0 W when idle",
    ),
    "a hand-off that is no time": ({"handoff_s": -1.0}, "handoff_s is -1.0"),
    "a deadline of nobody": ({"limits": Limits(deadlines_s={"x": 1.0})}, "no network 'x'"),
    "a deadline at once": ({"limits": Limits(deadlines_s={"": 0.0})}, "above 0"),
    "an energy below nothing": (
        {"limits": Limits(deadlines_s={}, energy_j=-1.0)},
        "limit energy_j is -1.0",
    ),
    "unknown energy": ({"objective": "energy"}, "nobody knows the idle_w of device 'cpu'"),
    "unknown energy of a mode": (
        {"objective": "energy", "devices": (replace(CPU, idle_w=1.0),)},
        "nobody knows the energy_j of call 'a' on 'cpu'",
    ),
    "unknown price": ({"objective": "price"}, "nobody knows that of device 'cpu'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_planned_is_refused_by_name(fault: str) -> None:
    fields, said = FAULTS[fault]
    with pytest.raises(ModelError, match=said) as refused:
        chain(name="mine", **fields)
    assert refused.value.message.startswith("problem 'mine': ")
    assert refused.value.exit_code == 4 and refused.value.hint


def test_what_gives_an_energy_is_said() -> None:
    with pytest.raises(ModelError) as refused:
        chain(objective="energy")
    assert "meter" in str(refused.value.hint) and "data sheet" in str(refused.value.hint)


def test_calls_that_hang_together_with_nothing_may_be_answers_or_networks_of_their_own() -> None:
    plain_problem({"a": ONE, "b": ONE})
    alone = (
        ScheduledCall(name="a", modes=ONE, network="one"),
        ScheduledCall(name="b", modes=ONE, network="two"),
    )
    assert len(SchedulingProblem(devices=(CPU,), calls=alone).calls) == 2


@settings(max_examples=100, deadline=None)
@given(problems())
def test_what_belongs_together_is_found(problem: SchedulingProblem) -> None:
    for number, call in enumerate(problem.calls):
        assert problem.numbers[call.name] == number
        for before, size in problem.before[number]:
            assert before < number and (number, size) in problem.after[before]
            assert size <= problem.sent_bytes[before]
    assert sum(map(len, problem.before)) == sum(map(len, problem.after)) == len(problem.waits)
    for number, call in enumerate(problem.calls):
        size = problem.sent_bytes[number]
        each = [
            link.latency_s + size / link.bytes_per_s + call.crossing_s for link in problem.links
        ]
        assert problem.transfers_s(number) == pytest.approx(each)
        for link, seconds in zip(problem.links, each, strict=True):
            sent = problem.transfer_s(number, link.origin, link.destination)
            assert sent == pytest.approx(seconds)
            assert problem.transfer_s(number, link.origin, link.origin) == 0.0
        assert problem.transfer_s(number, "device0", "nowhere") is None


def test_a_title_for_messages() -> None:
    assert (chain().title, chain(name="x").title) == ("the problem", "problem 'x'")
    assert chain().calls[0].modes[0].latency_s == 10 * MICRO
