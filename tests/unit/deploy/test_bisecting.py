"""The first wrong call of a plan is named, with a worker that computes in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.prepared_network import prepared
from helpers.networks.graph_builder import Builder, random_inputs
from tilewright.core.forms import PLAIN
from tilewright.deploy import bisecting
from tilewright.graph.carry_out import carry_out
from tilewright.graph.network import Array, Graph, Node, TensorType, attributes
from tilewright.graph.operators import results_text
from tilewright.graph.plan import NetworkPlan

FILTERS = (32, 16, 64, 48, 16, 8)
"""Of the convolutions, one after the other: all are different tasks."""


class Worker:
    """Gives what a plan gives, wrong by `error` where it has the call whose name is `wrong`."""

    def __init__(self, wrong: str | None, error: float = 1.0) -> None:
        self.wrong, self.error = wrong, error
        self.plans: list[NetworkPlan] = []
        self.places: list[Path] = []
        self.constants: Mapping[str, Array] = {}

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_exception: object) -> None: ...

    def compile(self, plan: NetworkPlan, constants: Mapping[str, Array], place: Path) -> None:
        assert not place.exists()
        place.mkdir()
        self.plans.append(plan)
        self.places.append(place)
        self.constants = constants

    def load(self, _name: str, place: Path, order: Sequence[str]) -> None:
        assert place == self.places[-1] and list(order) == list(self.plans[-1].constant_names)

    def run(self, _name: str, inputs: Sequence[Array]) -> list[Array]:
        plan = self.plans[-1]
        given = dict(zip(plan.inputs, inputs, strict=True))
        (output,) = carry_out(plan, given, self.constants).values()
        broken = any(call.name == self.wrong for call in plan.calls)
        return [output + np.float32(self.error) * np.abs(output).max() if broken else output]


def chain(*filters: int) -> Graph:
    b = Builder()
    x = b.input(1, 16, 6, 6)
    for count in filters:
        x = b.conv(x, count)
    return b.graph(x)


def culprit(
    graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch, worker: Worker
) -> tuple[str, NetworkPlan]:
    network = prepared(graph)
    monkeypatch.setattr(bisecting.targeting, "open_networks", lambda _placement: worker)
    said = bisecting.name_culprit(
        network.plan, network.graph.constants, PLACEMENT, random_inputs(network.graph), folder
    )
    assert list(folder.iterdir()) == [], "nothing is left behind"
    return said, network.plan


@pytest.mark.parametrize("index", range(len(FILTERS)))
def test_the_first_wrong_call_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    graph = chain(*FILTERS)
    calls = prepared(graph).plan.calls
    assert len(calls) == len(FILTERS)
    worker = Worker(calls[index].name)
    said, plan = culprit(graph, tmp_path, monkeypatch, worker)
    call = plan.calls[index]
    assert said.startswith(f"the first wrong task is {call.name!r} ({call.workload.key}, nodes ")
    assert len(worker.plans) <= 4, "by halves"
    lengths = [len(probe.calls) for probe in worker.plans]
    assert len(set(zip(lengths, worker.places, strict=True))) == len(set(lengths))
    assert len(set(worker.places)) == len(set(lengths)), "each library has a path of its own"


def test_a_beginning_ends_with_the_suspect_and_a_copy_in_plain_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = chain(*FILTERS)
    worker = Worker(prepared(graph).plan.calls[2].name)
    _, plan = culprit(graph, tmp_path, monkeypatch, worker)
    assert [len(each.calls) - 1 for each in worker.plans] == [3, 2, 3], "halves, and once more"
    for probe in worker.plans:
        *same, copy = probe.calls
        assert [call.name for call in same] == [call.name for call in plan.calls[: len(same)]]
        assert probe.outputs == (copy.output,) and copy.inputs == (same[-1].output,)
        assert copy.candidate.forms == (same[-1].candidate.forms[-1], PLAIN)
        assert copy.lane == same[-1].lane


def test_a_fault_between_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(None)
    said, _ = culprit(chain(*FILTERS), tmp_path, monkeypatch, worker)
    assert said == "the network is right up to every single task: the fault lies between the tasks"
    assert len(worker.plans[-1].calls) == len(FILTERS) + 1, "the whole network was looked at"


SINGLE = bisecting.ROUNDING["float32"]


def test_rounding_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(16, 32)
    first = prepared(graph).plan.calls[0].name
    said, _ = culprit(graph, tmp_path, monkeypatch, Worker(first, SINGLE / 2))
    assert "between the tasks" in said
    said, _ = culprit(graph, tmp_path, monkeypatch, Worker(first, SINGLE * 2))
    assert repr(first) in said


def test_a_tensor_may_have_the_name_of_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = TensorType((1, 4))
    names = ("probe", "probe'")
    nodes = tuple(
        Node(name=f"n{i}", operator=o, inputs=(x,), outputs=(y,), attributes=attributes())
        for i, (o, x, y) in enumerate((("tanh", "x", names[0]), ("relu", *names)))
    )
    types: dict[str, Any] = dict.fromkeys(("x", *names), kind)
    graph = Graph(name="g", nodes=nodes, inputs=("x",), outputs=names, types=types)
    worker = Worker(None)
    _, plan = culprit(graph, tmp_path, monkeypatch, worker)
    taken = {*plan.tensors, *(call.name for call in plan.calls)}
    for probe in worker.plans:
        assert probe.calls[-1].output not in taken


def test_what_has_no_reference_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = TensorType((1, 4))
    named = attributes(model="none", results=results_text([kind]))
    node = Node(name="n", operator="opaque", inputs=("x",), outputs=("y",), attributes=named)
    graph = Graph(
        name="g", nodes=(node,), inputs=("x",), outputs=("y",), types={"x": kind, "y": kind}
    )
    worker = Worker(None)
    said, _ = culprit(graph, tmp_path, monkeypatch, worker)
    assert "operators without a reference" in said and not worker.plans


@pytest.mark.parametrize(
    ("precision", "put_on_codes", "without", "with_codes"),
    [
        ("float32", False, "float32", bisecting.CODED),
        ("auto", True, "auto", "int8"),
        ("auto", False, "auto", bisecting.CODED),
        ("int8", True, "int8", "int8"),
        ("bfloat16", False, "bfloat16", "bfloat16"),
    ],
)
def test_codes_make_most_of_an_error_where_there_are_any(
    precision: str, put_on_codes: bool, without: str, with_codes: str
) -> None:
    """With a network that came on codes `auto` looks for a wrong kernel as single precision does:
    of what our quantizer put on codes no error is told from rounding."""

    def kind(graph: Graph) -> str:
        return bisecting.coarsest_rounding(graph, precision, put_on_codes=put_on_codes)

    b = Builder()
    x = b.input(1, 16, 6, 6)
    assert kind(b.graph(b.conv(x, 16))) == without
    b = Builder()
    clipped = b.add("clip", b.input(1, 16, 6, 6), minimum=0.0, maximum=255.0)
    codes = b.add("cast", clipped, dtype="uint8")
    assert kind(b.graph(codes)) == with_codes
    assert {without, with_codes} <= bisecting.ROUNDING.keys()
