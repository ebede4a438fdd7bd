"""Which candidate each task gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.fakes.levels import DIRECT, WINOGRAD, convolution, task
from helpers.fakes.measuring import OF_PLACEMENT, PLACEMENT, measured
from helpers.fakes.prepared_network import prepared, two_convolutions
from tilewright.core.codec import to_builtins
from tilewright.core.errors import StoreError, UsageError
from tilewright.core.forms import PLAIN, blocked, parse_form
from tilewright.core.records import (
    Candidate,
    Failure,
    FailureKind,
    Measurement,
    Outcome,
    Protocol,
    ShippedPlan,
)
from tilewright.core.targets import threads_alone
from tilewright.kernels.spaces import ranked_defaults
from tilewright.store import open_store
from tilewright.store.interchange.lines import IMPORTED
from tilewright.store.known_candidates import (
    PlanOfBefore,
    best_known,
    candidates_of,
    checked_settings,
    defaults,
    plan_of,
    ranked,
    shipping_key,
)


def candidate(number: int) -> Candidate:
    return Candidate(implementation="one", settings=(("k", number),), forms=(PLAIN,))


def took(number: int, *seconds: float) -> Measurement:
    return Measurement(
        workload_key="w",
        candidate=candidate(number),
        device_class="d",
        resources=threads_alone(1),
        protocol=Protocol(),
        kernel_hash="h",
        samples_s=seconds,
        build_s=0.0,
    )


def failed(number: int, kind: FailureKind) -> Failure:
    return Failure(
        workload_key="w",
        candidate=candidate(number),
        device_class="d",
        resources=threads_alone(1),
        kind=kind,
        message="",
    )


def order(outcomes: list[Outcome]) -> list[int]:
    return [int(m.candidate.setting("k")) for m in ranked(outcomes)]


def test_fastest_first_by_median() -> None:
    assert order([took(1, 3.0), took(2, 1.0, 9.0, 1.0), took(3, 2.0)]) == [2, 3, 1]
    assert ranked([]) == []


def test_the_newest_measurement_counts_faster_or_slower() -> None:
    assert order([took(1, 1.0), took(2, 2.0), took(1, 3.0)]) == [2, 1]
    assert order([took(1, 5.0), took(2, 2.0), took(1, 1.0)]) == [1, 2]
    assert len(ranked([took(1, 1.0), took(1, 2.0)])) == 1


def test_wrong_results_are_out_whenever_they_were_found() -> None:
    assert order([failed(1, "wrong result"), took(1, 1.0), took(2, 2.0)]) == [2]
    assert order([took(1, 1.0), took(2, 2.0), failed(1, "wrong result")]) == [2]
    assert order([took(1, 1.0), failed(1, "wrong result")]) == []


@pytest.mark.parametrize("kind", ["timeout", "crash", "out of memory", "build"])
def test_other_failures_do_not_take_a_measurement_away(kind: FailureKind) -> None:
    assert order([took(1, 1.0), failed(1, kind)]) == [1]


def test_times_of_other_programs_choose_nothing(tmp_path: Path) -> None:
    relu = task(convolution("relu"))
    default, second = (c for c, _ in ranked_defaults(relu.workload, relu.forms, PLACEMENT)[:2])
    with open_store(tmp_path / "a.db") as store:
        store.add_device(PLACEMENT.device)
        store.add_workload(relu.workload)
        store.add([measured(relu.workload, second, 1e-9, kernel_hash=f"{IMPORTED}t4")])
        assert best_known({relu.key: relu}, store, PLACEMENT) == {relu.key: default}
        store.add([measured(relu.workload, second, 1e-3)])
        assert best_known({relu.key: relu}, store, PLACEMENT) == {relu.key: second}


def test_the_best_known_obeys_the_allowed_error(tmp_path: Path) -> None:
    relu = task(convolution("relu"))
    tasks = {relu.key: relu}
    ranking = ranked_defaults(relu.workload, relu.forms, PLACEMENT)
    fast = next(c for c, _ in ranking if c.implementation == WINOGRAD)
    exact = next(c for c, _ in ranking if c.implementation == DIRECT)
    with open_store(tmp_path / "a.db") as store:
        store.add_device(PLACEMENT.device)
        store.add_workload(relu.workload)
        store.add([measured(relu.workload, fast, 1e-6), measured(relu.workload, exact, 1e-3)])
        assert best_known(tasks, store, PLACEMENT)[relu.key] == fast
        assert best_known(tasks, store, PLACEMENT, 1e-4)[relu.key] == fast
        strict = best_known(tasks, store, PLACEMENT, 8e-6)[relu.key]
        assert strict.implementation == DIRECT
        usual = defaults(tasks, PLACEMENT, 8e-6)[relu.key]
        assert usual.implementation != WINOGRAD


def test_names_of_settings() -> None:
    assert [checked_settings(name) for name in ("default", "best", "shipped")]
    with pytest.raises(UsageError, match="bset") as caught:
        checked_settings("bset")
    assert "best" in str(caught.value)


def test_a_plan_of_before_has_what_it_names_and_defaults_for_the_rest() -> None:
    """Before, a shipment named the candidate of each task; tasks that came since are not named."""
    network = prepared(two_convolutions())
    usual = {call.task: call.candidate for call in network.plan.calls}
    named, *others = (key for key in usual if key[0].startswith("conv2d"))
    task = network.tasks[named]
    second = ranked_defaults(task.workload, task.forms, PLACEMENT)[1][0]
    before = PlanOfBefore(assignment={shipping_key(named): second})
    found = {call.task: call.candidate for call in before.planned(network, PLACEMENT).calls}
    assert found == {**usual, named: second} and second != usual[named] and others
    empty = PlanOfBefore(assignment={})
    assert empty.planned(network, PLACEMENT) == network.plan


def test_a_plan_of_before_has_the_forms_it_names() -> None:
    network = prepared(two_convolutions())
    inner = network.plan.calls[0].output
    assert network.plan.tensors[inner].form != PLAIN
    laid_out = PlanOfBefore(assignment={}, forms={inner: PLAIN}).planned(network, PLACEMENT)
    assert laid_out.tensors[inner].form == PLAIN
    reader = network.plan.calls[1]
    wanted = (PLAIN, *reader.candidate.forms[1:])
    ports = PlanOfBefore(assignment={}, ports={reader.name: wanted})
    (copy,) = [c for c in ports.planned(network, PLACEMENT).calls if c.kind == "conversion"]
    assert copy.inputs == (inner,) and copy.candidate.forms[-1] == PLAIN


def test_what_shipped_before_is_read_as_a_plan() -> None:
    network = prepared(two_convolutions())
    key, task = next(iter(network.tasks.items()))
    second = ranked_defaults(task.workload, task.forms, PLACEMENT)[1][0]
    before = PlanOfBefore(assignment={shipping_key(key): second})
    shipped = ShippedPlan(
        network_key="n", model="a.onnx", latency_s=1.0, plan=to_builtins(before), **OF_PLACEMENT
    )
    assert plan_of(shipped, network, PLACEMENT) == before.planned(network, PLACEMENT)
    assert candidates_of(shipped) == before.assignment
    damaged = replace(shipped, plan={"assignment": 3})
    with pytest.raises(StoreError, match=r"the plan that shipped for a\.onnx cannot be read"):
        candidates_of(damaged)


def test_shipping_keys_tell_layouts_apart() -> None:
    every = [(PLAIN,), (blocked(8),), (PLAIN, parse_form("a"))]
    keys = {shipping_key(("w", forms)) for forms in every}
    assert len(keys) == 3
