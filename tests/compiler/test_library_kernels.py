"""Tasks that ONNX Runtime computes: every operator said in ONNX against numpy, in any layouts,
alone and within a compiled network."""

from __future__ import annotations

import gc
from base64 import b64decode
from dataclasses import replace
from weakref import ref

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.every_anchor import CASES, DECONV, WINDOW
from helpers.kernels.one_kernel import random_arrays, step, workload
from helpers.networks.small_networks import Builder
from tilewright.compiler import islands
from tilewright.compiler.builders.registry import builder_named
from tilewright.compiler.execute import LoadedNetwork
from tilewright.compiler.kernel_runs import BuiltKernel
from tilewright.compiler.onnx_models import task_model
from tilewright.core.forms import PLAIN, Form, blocked, parse_form
from tilewright.core.records import Candidate, Protocol
from tilewright.graph.arrays import to_logical, to_physical
from tilewright.graph.evaluate import magnitude, run_graph, run_workload
from tilewright.graph.network import Array, Graph, TensorType
from tilewright.graph.operators import OPERATORS
from tilewright.graph.plan import lane_of
from tilewright.graph.tasks import fused_network
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.island import NAME, SPEC
from tilewright.kernels.onnx_nodes import Untranslatable
from tilewright.kernels.onnx_rules import onnx_task
from tilewright.kernels.plans import default_settings, lay_out, with_candidates
from tilewright.kernels.spaces import library_candidates
from tilewright.measure.checking import sample_arguments

PLACEMENT = replace(local_placement(), libraries=(NAME,))
BUILDER = builder_named(NAME)
NAMED = {
    "leaky_relu": dict(alpha=0.1),
    "elu": dict(alpha=0.7),
    "celu": dict(alpha=0.7),
    "selu": dict(alpha=1.6, gamma=1.05),
    "thresholded_relu": dict(alpha=0.5),
    "shrink": dict(bias=0.2, lambd=0.5),
    "hard_sigmoid": dict(alpha=0.3, beta=0.4),
    "clip": dict(minimum=-0.5, maximum="inf"),
    "cast": dict(dtype="int32"),
}
LEFT_OUT = {"bitcast", "shift_left", "shift_right", "modulo", "interpolate", "opaque"}
INTEGERS = [TensorType((3, 5), "int32")] * 2
MOVES = {
    "reshape": ([(2, 6)], step("reshape", 0, shape=(3, 4))),
    "transpose": ([(2, 3, 4)], step("transpose", 0, permutation=(2, 0, 1))),
    "slice": ([(5, 6)], step("slice", 0, starts=(4, 1), stops=(-1, 6), steps=(-2, 2))),
    "concat": ([(2, 3), (2, 4)], step("concat", 0, 1, axis=1)),
    "pad": ([(2, 3)], step("pad", 0, before=(0, 2), after=(1, 0), value="-inf", mode="constant")),
    "expand": ([(3, 1)], step("expand", 0, shape=(2, 3, 4))),
    "gather": ([(5, 3), TensorType((4,), "int64")], step("gather", 0, 1, axis=0)),
    "resize_nearest": (
        [(1, 2, 3, 5)],
        step("resize_nearest", 0, shape=(1, 2, 7, 10), scales=(1.0, 1.0, 2.4, 2.0),
             coordinate="half_pixel", rounding="round_prefer_floor"),
    ),
    "modulo": (INTEGERS, step("modulo", 0, 1)),
    "divide": (INTEGERS, step("divide", 0, 1)),
    "clip": (INTEGERS[:1], step("clip", 0, minimum="-inf", maximum=2.0)),
    "avg_pool2d": (
        [(1, 8, 9, 21)],
        step("avg_pool2d", 0, count_include_pad=False, **{**WINDOW, "dilation": (1, 1)}),
    ),
    "attention": (
        [(2, 9, 24), (2, 11, 24), (2, 11, 16), TensorType((2, 1, 1, 11), "bool")],
        step("attention", 0, 1, 2, 3, heads=4, key_heads=4, scale=0.4, causal=False, fill=-1e38),
    ),
    "causal attention": (
        [(2, 9, 24), (2, 9, 24), (2, 9, 16), (4, 1, 9)],
        step("attention", 0, 1, 2, 3, heads=4, key_heads=4, scale=0.4, causal=True, fill="-inf"),
    ),
}  # fmt: skip


def elementwise(name: str) -> tuple[list[TensorType | tuple[int, ...]], object]:
    """A case of an elementwise operator; logical ones on what is true or false."""
    operator = OPERATORS[name]
    kind = TensorType((3, 5), "bool") if name in ("not", "and", "or") else (3, 5)
    kinds = [kind] * (operator.arity or 1)
    if name == "where":
        kinds[0] = TensorType((3, 1), "bool")
    return kinds, step(name, *range(len(kinds)), **NAMED.get(name, {}))


def of_case(shapes, made) -> Workload:
    return workload(shapes, made)


ELEMENTWISE = {
    name: elementwise(name)
    for name, operator in OPERATORS.items()
    if operator.elementwise and name not in LEFT_OUT
}
EVERY = {**ELEMENTWISE, **CASES, **MOVES}


def plain(task: Workload) -> tuple[Form, ...]:
    return (PLAIN,) * (len(task.arguments) + 1)


def computed(task: Workload, forms: tuple[Form, ...], arrays: list[Array]) -> Array:
    """What ONNX Runtime makes of a task's model."""
    session = onnxruntime.InferenceSession(
        b64decode(task_model(task, forms)), providers=["CPUExecutionProvider"]
    )
    given = zip(session.get_inputs(), arrays, forms, strict=False)
    (found,) = session.run(None, {value.name: to_physical(a, form) for value, a, form in given})
    return to_logical(found, forms[-1], task.result.shape)


def right(found: Array, task: Workload, arrays: list[Array]) -> None:
    with np.errstate(all="ignore"):
        expected, scale = run_workload(task, arrays), magnitude(task, arrays)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    apart = np.abs(found[finite] - expected[finite])
    error = apart / np.broadcast_to(scale, expected.shape)[finite]
    assert error.max(initial=0.0) <= SPEC.error_bound(task)


@pytest.mark.parametrize("name", EVERY)
def test_every_operator_means_the_same(name: str) -> None:
    task = of_case(*EVERY[name])
    if name == "attention" or name in CASES:
        arrays = sample_arguments(task, 3)
    else:
        arrays = random_arrays(task)
    if name in ("divide", "modulo"):
        arrays[1] = np.where(arrays[1] == 0, 3, arrays[1])
    if name == "power":
        arrays[0] = np.abs(arrays[0])
    right(computed(task, plain(task), arrays), task, arrays)


@pytest.mark.parametrize("cell", ["lstm_coupled", "gru", "gru_reset_after", "rnn"])
@pytest.mark.parametrize("reverse", [False, True])
def test_cells(cell: str, reverse: bool) -> None:
    gates = {"lstm_coupled": 4, "rnn": 1}.get(cell, 3)
    of_cell = {"lstm_coupled": "sigmoid tanh tanh", "rnn": "leaky_relu:0.1"}
    names = ["state", *(["bias"] if cell == "gru_reset_after" else []), "lengths"]
    shapes = {"state": (2, 5), "bias": (5,), "lengths": TensorType((2,), "int32")}
    made = step(
        "recurrent", *range(2 + len(names)), cell=cell, operands=" ".join(names), reverse=reverse,
        activations=of_cell.get(cell, "hard_sigmoid:0.3:0.4 tanh"), clip=0.8, finals=1,
    )  # fmt: skip
    task = workload([(4, 2, 5 * gates), (5, 5 * gates), *(shapes[n] for n in names)], made)
    arrays = random_arrays(task)
    arrays[-1] = np.array([4, 2], np.int32)
    right(computed(task, plain(task), arrays), task, arrays)


def reduction(name: str, dtype: str) -> Workload:
    return workload([TensorType((3, 5), dtype)], step(name, 0, axes=(1,), keepdims=True))


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (workload([(3, 5), (3, 5)], step("modulo", 0, 1)), "modulo of floats"),
        (workload([TensorType((3,), "float16")], step("relu", 0)), "float16"),
        (workload([TensorType((3,), "int32")], step("bitcast", 0, dtype="float32")), "bitcast"),
        (of_case(*CASES["attention"]), "share keys"),
        (workload([TensorType((2, 3), "int8")] * 2, step("batch_matmul", 0, 1, transpose_b=True)),
         "batch_matmul of int8"),
        (workload([TensorType((3,), "int16")] * 2, step("maximum", 0, 1)), "maximum of int16"),
        (workload([TensorType((3,), "uint8")], step("relu", 0)), "relu of uint8"),
        *((reduction(f"reduce_{name}", dtype), f"reduce_{name} of {dtype}")
          for name, dtype in (("mean", "int32"), ("mean", "int64"), ("sum", "uint8"),
                              ("prod", "uint8"))),
    ],
)  # fmt: skip
def test_what_is_not_translated(task: Workload, why: str) -> None:
    with pytest.raises(Untranslatable, match=why):
        onnx_task(task, plain(task))
    assert not SPEC.takes(task, plain(task))


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([PLAIN, blocked(4), blocked(8), parse_form("acdb"), parse_form("aBcd4b")]),
    st.sampled_from([PLAIN, blocked(4), parse_form("acdb")]),
    st.booleans(),
)
def test_any_layouts_at_the_edge(read: Form, written: Form, twice: bool) -> None:
    steps = [step("conv2d_transpose", 0, 1, **{**DECONV, "groups": 1}), step("silu", 2)]
    task = workload([(1, 8, 5, 4), (8, 12, 3, 3)], *(steps if twice else steps[:1]))
    arrays = random_arrays(task)
    right(computed(task, (read, PLAIN, written), arrays), task, arrays)


def network(scale: float = 1.0) -> Graph:
    """Two equal layers with weights of their own, and a convolution in blocks of channels."""
    b = Builder()
    x = b.input(1, 16, 12, 12)
    for _ in range(2):
        x = b.add("relu", b.conv(x, 16))
    flat = b.add("reshape", x, shape=(24, 96))
    for _ in range(2):
        weights = b.constant(scale * b.random.normal(size=(96, 96)))
        flat = b.add("tanh", b.add("dense", flat, weights))
    return b.graph(flat)


def given_away(graph: Graph) -> LoadedNetwork:
    """The network with everything in ONNX Runtime's hands that it takes."""
    fused = fused_network(graph)
    forms = choose_forms(fused, PLACEMENT.target, PLACEMENT.resources)
    plan = lay_out(fused, forms, lane_of(PLACEMENT), default_settings(PLACEMENT))
    chosen = {
        key: Candidate(implementation=NAME, settings=(), forms=task.forms)
        for key, task in plan.tasks.items()
        if SPEC.takes(task.workload, task.forms)
    }
    assert len(chosen) >= 2 and any(form != PLAIN for key in chosen for form in key[1])
    found = with_candidates(plan, chosen)
    assert max(len([c for c in found.calls if c.task == key]) for key in chosen) > 1
    return LoadedNetwork.compiled(found, PLACEMENT.target, graph.constants)


def test_calls_of_one_task_have_weights_of_their_own_and_so_have_networks() -> None:
    x = np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype(np.float32)
    for scale in (0.1, 0.02):
        graph = network(scale)
        loaded = given_away(graph)
        for image in (x, -x):
            (expected,) = run_graph(graph, {graph.inputs[0]: image}).values()
            np.testing.assert_allclose(loaded([image])[0], expected, rtol=1e-4, atol=1e-4)
        symbols = {symbol for symbol, _ in loaded.time_calls([x], repeats=1)}
        assert islands.CALLED in symbols
        opened = [ref(session) for session in islands._current().values()]
        assert opened
        del loaded
        gc.collect()
        assert not any(session() for session in opened), "sessions outlive their network"


def bound_dense(shape: tuple[int, int]) -> tuple[Workload, BuiltKernel]:
    """A dense layer of ONNX Runtime's with weights of its own."""
    task = workload([(64, shape[0]), shape], step("dense", 0, 1))
    bound = replace(task.arguments[1], role="constant")
    task = replace(task, arguments=(task.arguments[0], bound))
    (candidate,) = library_candidates(task, plain(task), PLACEMENT)
    on = PLACEMENT.target, PLACEMENT.resources
    kernel = BUILDER.build(task, candidate, *on)
    assert kernel.kernel_hash == BUILDER.identify(task, candidate, *on)
    return task, kernel


def test_a_kernel_is_timed_with_its_weights_in_turn() -> None:
    task, kernel = bound_dense((300, 400))
    protocol = Protocol(warmup=1, repeats=2, sample_s=1e-4, rotation_bytes=3 * 4 * 300 * 400)
    for _ in range(2):
        assert all(seconds > 0 for seconds in kernel.time(protocol, 0, 1.0))
        assert len(islands._current()) == 3
    arrays = random_arrays(task)
    right(kernel.run(arrays), task, arrays)
    assert not islands._current(), "weights of a run do not stay where they are"


def test_a_kernel_that_runs_again_has_the_weights_of_that_run() -> None:
    """Large weights: what is allocated next lies where they have lain."""
    _, kernel = bound_dense((3000, 100))
    x = np.ones((64, 3000), np.float32)
    for factor in range(8):
        found = kernel.run([x, np.full((3000, 100), factor, np.float32)])
        np.testing.assert_array_equal(found, np.full((64, 100), 3000.0 * factor))
