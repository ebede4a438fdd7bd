"""Inputs on which noise is measured: taken apart, or refused with what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder
from tilewright.core.errors import ModelError, UsageError
from tilewright.graph.network import Graph
from tilewright.models.calibration import noise_inputs
from tilewright.plan.mixture import kept_single


def graph() -> Graph:
    b = Builder()
    x, ids = b.input(1, 3, 4), b.input(2, dtype="int64")
    table = b.add("gather", b.weight(5, 4), ids, axis=0)
    return b.graph(b.add("add", x, b.add("reduce_sum", table, axes=(0,), keepdims=False)))


GRAPH = graph()
IMAGES = np.random.default_rng(0).standard_normal((6, 3, 4)).astype(np.float32)
IDS = np.arange(12).reshape(6, 2) % 5


def written(tmp_path: Path, **arrays: Any) -> Path:
    path = tmp_path / "inputs.npz"
    np.savez(path, **arrays)
    return path


def test_every_other_input_is_for_judging(tmp_path: Path) -> None:
    found = noise_inputs(GRAPH, written(tmp_path, x0=IMAGES, x1=IDS), 0)
    assert found.given and len(found.fitted) == len(found.judged) == 3
    np.testing.assert_array_equal(found.fitted[1]["x0"], IMAGES[2:3])
    np.testing.assert_array_equal(found.judged[1]["x1"], IDS[3])
    alone = noise_inputs(GRAPH, written(tmp_path, x0=IMAGES[:1], x1=IDS[:1]), 0)
    assert len(alone.fitted) == len(alone.judged) == 1


def test_drawn_inputs_are_others_for_judging() -> None:
    found = noise_inputs(GRAPH, None, 3)
    every = [each["x0"].tobytes() for each in (*found.fitted, *found.judged)]
    assert not found.given and len(set(every)) == 4
    assert len(noise_inputs(GRAPH, None, 3, judged=8).judged) == 8


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"x0": IMAGES}, "lacks the input 'x1'"),
        ({"x0": IMAGES, "x1": IDS, "x2": IDS}, "'x2', which is no input"),
        ({"x0": IMAGES[:, :2], "x1": IDS}, r"shape \[6, 2, 4\]; an input has \[1, 3, 4\]"),
        ({"x0": IMAGES[:5], "x1": IDS}, "5 of 'x0', 6 of 'x1'"),
        ({"x0": np.where(IMAGES > 1, np.nan, IMAGES), "x1": IDS}, "not finite"),
        ({"x0": np.zeros_like(IMAGES), "x1": IDS}, "are all 0.0"),
        ({"x0": IMAGES * np.float32(1e-40), "x1": IDS}, "not normal in float32, up to"),
        ({"x0": IMAGES, "x1": IDS + 4}, "from 4 to 8; the network takes -5 to 4"),
        ({"x0": IMAGES, "x1": IDS / 2}, "are float64, the network takes int64"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, arrays: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        noise_inputs(GRAPH, written(tmp_path, **arrays), 0)


def test_files_that_are_none(tmp_path: Path) -> None:
    text, single = tmp_path / "text.npz", tmp_path / "one.npy"
    text.write_text("no arrays")
    np.save(single, IMAGES)
    for path, told in ((text, "holds no arrays"), (single, "one array without a name")):
        with pytest.raises(UsageError, match=told):
            noise_inputs(GRAPH, path, 0)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        noise_inputs(GRAPH, tmp_path / "none.npz", 0)


def test_what_is_kept_is_named_by_node_or_tensor() -> None:
    b = Builder()
    first = b.conv(b.input(1, 4, 6, 6), 8)
    network = fused(b, b.conv(b.add("relu", first), 8))
    (one, two) = network.calls
    assert kept_single(network, [f"float32:{one.output}"]) == {one.output}
    assert kept_single(network, [f"float32:{two.nodes[0]}"]) == {one.output, two.output}
    with pytest.raises(UsageError, match="no node or tensor 't99'"):
        kept_single(network, ["float32:t99"])
    for wish, why in (
        ("int8:t0", "cannot be kept: no kernels keep what others compute in 'int8'"),
        ("t0", "keeps nothing: it lacks a type"),
        ("float32:", "keeps nothing"),
        (":t0", "cannot be kept"),
    ):
        with pytest.raises(UsageError, match=why) as told:
            kept_single(network, [wish])
        assert "float32 is the only type" in told.value.hint
