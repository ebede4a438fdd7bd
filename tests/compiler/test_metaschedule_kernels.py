"""Traced kernels inside networks and for operators outside the vocabulary."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tvm

from helpers.kernels.one_kernel import PLACEMENT, random_arrays, step, workload
from helpers.kernels.traced_kernel import traced
from helpers.networks import small_networks
from helpers.networks.opaque_models import CASES, encoded
from helpers.networks.small_networks import Builder, check_network
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN
from tilewright.graph.network import TensorType
from tilewright.graph.operators import results_text


def test_a_network_of_traced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def chosen(task, forms):
        used.append(forms[-1])
        return traced(task, forms)

    monkeypatch.setattr(small_networks, "default_settings", lambda _placement: chosen)
    b = Builder()
    first = b.add("relu", b.conv(b.input(1, 3, 8, 8), 16))
    second = b.add("add", b.conv(b.add("relu", b.conv(first, 16)), 16), first)
    check_network(b.graph(b.add("sigmoid", second)))
    assert len(used) >= 3 and any(form != PLAIN for form in used)


def test_an_operator_outside_the_vocabulary() -> None:
    model = CASES["conv3d"]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = [TensorType(tuple(i.shape)) for i in session.get_inputs()]
    (result,) = [TensorType(tuple(o.shape)) for o in session.get_outputs()]
    named = dict(model=encoded(model), results=results_text([result]), output_index=0)
    task = workload(inputs, step("opaque", 0, 1, **named))
    arrays = random_arrays(task)
    (wanted,) = session.run(
        None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
    )
    kernel = build_kernel(task, traced(task), PLACEMENT.target, PLACEMENT.resources)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    found = tvm.runtime.tensor(np.full(result.shape, np.nan, np.float32))
    kernel.call(*tensors, found)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-4)
