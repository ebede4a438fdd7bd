"""Operators that ONNX defines by others, a branch and a loop, from file to network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.commands.command_line import reference, succeed

TEXT = """<ir_version: 10, opset_import: ["" : 23]>
decoder (float[1, 3, 8] x, float[8] g, bool flag) => (float[1, 3, 8] y, float[1, 8] last)
<float[8, 8] w, float[1, 8] start> {
  n = RMSNormalization<axis = -1>(x, g)
  q = MatMul(n, w)
  a = Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>(q, n, x)
  b = If(flag) <then_branch = yes () => (float[1, 3, 8] t) { t = Add(a, x) },
                else_branch = no () => (float[1, 3, 8] e) { e = Sub(a, x) }>
  last, y = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
    body = turn (float[1, 8] s, float[1, 8] p) => (float[1, 8] r, float[1, 8] o)
      { m = MatMul(s, w)  u = Add(m, p)  r = Tanh(u)  o = Identity(r) }>(start, b)
}"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    del made.graph.initializer[:]
    for name, shape in (("w", (8, 8)), ("start", (1, 8))):
        values = rng.standard_normal(shape).astype(np.float32) / 4
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = tmp_path_factory.mktemp("bodies") / "decoder.onnx"
    onnx.save(made, path)
    return path


def test_it_is_compiled_and_right(model: Path) -> None:
    network = tilewright.compile(model)
    rng = np.random.default_rng(1)
    for flag in (True, False):
        feed = {"x": rng.standard_normal((1, 3, 8)).astype(np.float32)}
        feed |= {"g": rng.standard_normal(8).astype(np.float32), "flag": np.asarray(flag)}
        wanted = reference(model, feed)
        for name, found in network.run(feed).items():
            np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5)


def test_turns_of_a_loop_share_their_kernels(model: Path, tmp_path: Path) -> None:
    shown = succeed(tmp_path, "show", model)
    products = [task for task in shown["text"].split("\n\n") if "tanh" in task]
    assert len(products) == 2, "the first turn, whose product is known, and the others"
