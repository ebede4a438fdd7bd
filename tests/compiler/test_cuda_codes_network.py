"""Networks on codes on a simulated GPU, against numpy and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.commands.command_line import reference
from helpers.networks.cuda_networks import compiled, planned
from helpers.networks.quantized_encoder import quantized
from tilewright.compiler.cuda.execute import LoadedCudaNetwork
from tilewright.graph.evaluate import run_graph
from tilewright.models.loading import load
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.simulated_driver import SimulatedDriver

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
scores (float[1, 17, 32] x) => (float[1, 17, 17] y) <float[32, 32] a> {
  q = MatMul(x, a)  k = Transpose <perm = [0, 2, 1]> (x)  y = MatMul(q, k)
}"""


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
def test_constant_and_computed_matrices_are_multiplied_as_codes(tmp_path: Path) -> None:
    """Results are numpy's, and differ from ONNX Runtime's by a code at the most."""
    file = quantized(tmp_path, TEXT)
    graph = load(str(file)).graph
    plan, weights = planned(graph)
    computed = {
        call.candidate.implementation
        for call in plan.calls
        if call.workload.anchor_name in ("dense", "batch_matmul")
    }
    assert computed == {"cuda_product_int8"}
    network = LoadedCudaNetwork(compiled(plan), weights, SimulatedDriver(seed=1))
    x = np.random.default_rng(9).standard_normal((1, 17, 32)).astype(np.float32)
    (found,) = network([x])
    np.testing.assert_allclose(found, run_graph(graph, {"x": x})["y"], rtol=0, atol=1e-4)
    wanted = reference(file, {"x": x})["y"]
    assert np.abs(found - wanted).max() <= 1.01 * np.diff(np.unique(wanted)).min()
