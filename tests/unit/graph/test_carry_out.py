"""Plans carried out in numpy: what lies where, and what is read where nothing was written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from helpers.networks.graph_arrangement import arranged
from helpers.networks.graph_builder import Builder, random_inputs, run_fused
from helpers.networks.random_graphs import graphs
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.core.targets import threads_alone
from tilewright.graph.arrange import copying
from tilewright.graph.arrays import to_physical
from tilewright.graph.carry_out import PlanMemory, carry_out, results_of_calls
from tilewright.graph.fuse import fuse
from tilewright.graph.network import Graph, TensorType, attributes
from tilewright.graph.plan import MAIN, Lane, NetworkPlan, PlannedCall, PlannedTensor
from tilewright.graph.workload import Argument, Step, Workload

KIND = TensorType((1, 8, 2, 2))
DOUBLE = TensorType((2, 8, 2, 2))
LANE = Lane(device="a-cpu", resources=threads_alone(1))
X = np.arange(32, dtype=np.float32).reshape(KIND.shape)


def planned(
    kind: TensorType, root: str, offset_bytes: int = 0, form: Form = PLAIN
) -> PlannedTensor:
    return PlannedTensor(
        type=kind, root=root, device=LANE.device, form=form, offset_bytes=offset_bytes
    )


def copy(
    name: str,
    source: str,
    target: str,
    kind: TensorType = KIND,
    forms: tuple[Form, ...] = (PLAIN,) * 2,
) -> PlannedCall:
    candidate = Candidate(implementation="injective", settings=(), forms=forms)
    workload = copying(kind)
    return PlannedCall(
        name=name, workload=workload, candidate=candidate, inputs=(source,), output=target
    )


def plan(
    tensors: dict[str, PlannedTensor], *calls: PlannedCall, outputs: tuple[str, ...] = ("y",)
) -> NetworkPlan:
    return NetworkPlan(
        inputs=("x",), outputs=outputs, tensors=tensors, calls=calls, lanes={MAIN: LANE}
    )


def test_a_tensor_lies_in_the_form_that_its_writer_gave_it() -> None:
    """Read in that form it is the tensor; read row by row it is what lies in memory."""
    form = blocked(4)
    tensors = {"x": planned(KIND, "x"), "a": planned(KIND, "a", form=form), "y": planned(KIND, "y")}
    first = copy("first", "x", "a", forms=(PLAIN, form))
    back, bytes_of = (copy("second", "a", "y", forms=(f, PLAIN)) for f in (form, PLAIN))
    found = carry_out(plan(tensors, first, back), {"x": X}, {})
    np.testing.assert_array_equal(found["y"], X)
    found = results_of_calls(plan(tensors, first, bytes_of), {"x": X}, {})
    np.testing.assert_array_equal(found["first"], X)
    np.testing.assert_array_equal(found["second"].ravel(), to_physical(X, form).ravel())
    assert (found["second"] != X).any()


def test_parts_lie_at_their_offsets_and_the_rest_is_stale() -> None:
    tensors = {
        "x": planned(KIND, "x"),
        "whole": planned(DOUBLE, "whole"),
        "front": planned(KIND, "whole"),
        "back": planned(KIND, "whole", KIND.bytes),
        "y": planned(DOUBLE, "y"),
    }
    whole = copy("end", "whole", "y", DOUBLE)
    stale = np.full(4, 0xA5, np.uint8).view(np.float32)[0]
    for part, wanted in (("front", [X[0], 0 * X[0] + stale]), ("back", [0 * X[0] + stale, X[0]])):
        found = carry_out(plan(tensors, copy("begin", "x", part), whole), {"x": X}, {})
        np.testing.assert_array_equal(found["y"], wanted)


def test_an_output_that_is_a_part_of_another_has_its_own_bytes_only() -> None:
    tensors = {
        "x": planned(KIND, "x"),
        "whole": planned(DOUBLE, "whole"),
        "front": planned(KIND, "whole"),
        "back": planned(KIND, "whole", KIND.bytes),
    }
    calls = (copy("one", "x", "front"), copy("other", "front", "back"))
    found = carry_out(plan(tensors, *calls, outputs=("front", "whole")), {"x": X}, {})
    np.testing.assert_array_equal(found["front"], X)
    np.testing.assert_array_equal(found["whole"], np.concatenate([X, X]))


def test_an_output_in_the_memory_of_an_input_leaves_the_callers_array_alone() -> None:
    negated = Workload(
        arguments=(Argument(type=KIND),), steps=(Step(operator="negative", inputs=(0,)),)
    )
    candidate = Candidate(implementation="injective", settings=(), forms=(PLAIN,) * 2)
    call = PlannedCall(
        name="turn", workload=negated, candidate=candidate, inputs=("x",), output="y"
    )
    tensors = {"x": planned(KIND, "x"), "y": planned(KIND, "x"), "z": planned(KIND, "z")}
    given = X.copy()
    memory = PlanMemory(
        plan(tensors, call, copy("after", "x", "z"), outputs=("y", "z")), {"x": given}, {}
    )
    for each in (call, copy("after", "x", "z")):
        memory.run(each)
    found = memory.outputs()
    np.testing.assert_array_equal(found["y"], -X)
    np.testing.assert_array_equal(found["z"], -X, err_msg="what lies there now is read")
    np.testing.assert_array_equal(given, X)
    memory.write(call, X)
    np.testing.assert_array_equal(found["y"], -X, err_msg="what was given out is a copy")


@pytest.mark.parametrize("shape", [(8,), (8, 1, 1)])
def test_constants_are_the_graphs_in_the_shape_of_the_argument(shape: tuple[int, ...]) -> None:
    scaled = Workload(
        arguments=(
            Argument(type=KIND),
            Argument(type=TensorType((8, 1, 1)), role="constant"),
        ),
        steps=(
            Step(operator="multiply", inputs=(0, 1)),
            Step(operator="cast", inputs=(2,), attributes=attributes(dtype="int32")),
        ),
    )
    call = PlannedCall(
        name="scale",
        workload=scaled,
        candidate=Candidate(implementation="injective", settings=(), forms=(PLAIN,) * 3),
        inputs=("x", "w"),
        output="y",
        constants={1: "packed w"},
    )
    tensors = {"x": planned(KIND, "x"), "y": planned(TensorType(KIND.shape, "int32"), "y")}
    weights = np.arange(8, dtype=np.float32).reshape(shape)
    found = carry_out(plan(tensors, call), {"x": X}, {"w": weights})
    assert found["y"].dtype == np.int32
    np.testing.assert_array_equal(found["y"], X * weights.reshape(8, 1, 1))


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_inputs_may_lie_in_any_order_of_the_callers_memory(graph: Graph) -> None:
    made, inputs = arranged(graph), random_inputs(graph)
    wanted = carry_out(made, inputs, graph.constants)
    columns = {name: np.asfortranarray(array) for name, array in inputs.items()}
    every_second = {name: np.repeat(array, 2, -1)[..., ::2] for name, array in inputs.items()}
    for lying_otherwise in (columns, every_second):
        found = carry_out(made, lying_otherwise, graph.constants)
        assert found.keys() == set(graph.outputs)
        for name in graph.outputs:
            np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize("block", [0, 16])
def test_every_call_of_a_network_has_its_logical_result(block: int) -> None:
    """Whatever form the result lies in, it is told in the shape of its type."""
    b = Builder()
    x = b.conv(b.input(1, 16, 6, 6), 32)
    graph = b.graph(b.conv(b.add("relu", x), 16))
    made, inputs = arranged(graph, block), random_inputs(graph)
    found = results_of_calls(made, inputs, graph.constants)
    wanted = run_fused(fuse(graph), inputs)
    assert list(found) == [call.name for call in made.calls]
    for call in made.calls:
        np.testing.assert_allclose(found[call.name], wanted[call.output], rtol=1e-4, atol=1e-4)
