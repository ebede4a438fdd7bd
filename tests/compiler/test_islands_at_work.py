"""Islands as kernels: what ONNX Runtime gives for islands of several outputs, alone and in turn."""

from __future__ import annotations

from base64 import b64encode

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi

from tilewright.compiler import islands
from tilewright.compiler.builders.registry import builder_named
from tilewright.core.forms import PLAIN
from tilewright.graph.network import UNKNOWN, TensorType, attributes
from tilewright.graph.operators import island_text, results_text
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.island import CALLED
from tilewright.kernels.spaces import ranked_defaults
from tilewright.testing.builders import BuilderConformance

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[4, 6] x) => (float[4, 6] doubled, int64[2, n] places, float[6] sums)
    { doubled = Add(x, x)  places = NonZero(x)
      axis = Constant<value = int64[1] {0}>()  sums = ReduceSum<keepdims = 0>(x, axis) }"""
MODEL = b64encode(onnx.parser.parse_model(TEXT).SerializeToString()).decode()
KINDS = (TensorType((4, 6)), TensorType((2, UNKNOWN), "int64"), TensorType((6,)))
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
WANTED = X + X, np.stack(np.nonzero(X)), X.sum(axis=0)
PLACEMENT = local_placement()


def workload(index: int) -> Workload:
    named = attributes(
        model=MODEL,
        results=results_text(KINDS),
        island=island_text(["double"], "why"),
        output_index=index,
    )
    step = Step(operator="opaque", inputs=(0,), attributes=named)
    return Workload(arguments=(Argument(type=KINDS[0]),), steps=(step,))


class TestIslands(BuilderConformance):
    builder = builder_named("onnxruntime")
    placement = PLACEMENT
    workloads = tuple(map(workload, range(3)))

    def test_results(self) -> None:
        """numpy has no reference for an island; here it has."""
        for each, wanted in zip(self.workloads, WANTED, strict=True):
            ((candidate, _),) = ranked_defaults(each, (PLAIN, PLAIN), PLACEMENT)
            on = PLACEMENT.target, PLACEMENT.resources
            kernel = self.builder.build(each, candidate, *on)
            for _ in range(2):
                np.testing.assert_allclose(kernel.run([X]), wanted, rtol=1e-6)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_one_run_serves_all_outputs_in_any_order(order: tuple[int, ...]) -> None:
    session = islands.Session(MODEL)
    for turn in (1, 2):
        x = X * turn
        wanted = x + x, np.stack(np.nonzero(x)), x.sum(axis=0)
        runs = []
        for index in order:
            result = np.empty_like(wanted[index]) if KINDS[index].is_static else None
            # once the first output is there, the operands are not looked at again
            found = session.call(index, [x if not runs else np.zeros_like(x)], result)
            assert result is None or found is result
            np.testing.assert_allclose(found, wanted[index], rtol=1e-6)
            runs.append(index)


def test_a_run_that_failed_leaves_nothing_behind() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[4, 6] x, int64[2] i) => (float[2, 6] y, float[4, 6] z)
        { y = Gather(x, i)  z = Neg(x) }"""
    model = b64encode(onnx.parser.parse_model(text).SerializeToString()).decode()
    session = islands.Session(model)
    good, bad = np.array([0, 3]), np.array([0, 9])
    result = np.empty((2, 6), np.float32)
    session.call(0, [X, good], result)
    session.abandon()
    with pytest.raises(islands.IslandError, match="Gather.*out of"):
        session.call(0, [X, bad], result)
    np.testing.assert_array_equal(session.call(1, [2 * X, good], None), -2 * X)


def test_the_function_that_networks_call() -> None:
    function = tvm_ffi.get_global_func(CALLED)
    x, result = tvm.runtime.tensor(X), tvm.runtime.tensor(np.zeros_like(X))
    assert function(MODEL, "0", x, result) is None
    np.testing.assert_allclose(result.numpy(), WANTED[0])
    np.testing.assert_array_equal(function(MODEL, "1?", x).numpy(), WANTED[1])
