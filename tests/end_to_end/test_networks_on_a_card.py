"""`benchmarks/networks_on_a_card.py` as far as it goes without a GPU: networks are prepared,
executed on the CPU without TVM, and reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from card.archive import lines
from helpers.networks.onnx_models import model_of, normal
from networks_on_a_card import Prepared, drawn, main, report
from tilewright.testing.cuda_execution import compiler

MODEL = model_of(
    [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Gemm", ["t", "w", "b"], ["y"]),
    ],
    {"x": (1, 64)},
    constants={"w": normal(64, 70, seed=1), "b": normal(70, seed=2)},
)
RUN = """
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None
import networks_on_a_card
networks_on_a_card.main(sys.argv[1:])
"""


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_the_whole_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(MODEL, tmp_path / "small.onnx")
    folder, out = tmp_path / "networks", tmp_path / "results.jsonl"
    simulated = ["--on", "simulated", "--folder", str(folder)]
    main(["prepare", str(tmp_path / "small.onnx"), *simulated])
    prepared = Prepared(folder / "small")
    carried = np.load(folder / "small" / "constants.npz").files
    (large,) = prepared.graph.constants.keys() - {*carried}
    assert prepared.graph.types[large].shape == (64, 70), "what is large is drawn there"
    search = os.pathsep.join(filter(None, sys.path))
    asked = ["run", *simulated, "--out", str(out), "--rivals"]
    environment = {**os.environ, "PYTHONPATH": search}
    subprocess.run([sys.executable, "-c", RUN, *asked], check=True, env=environment)
    (line,) = lines(out)
    assert line["network"] == "small" and line["what"] == "ours" and "failed" not in line
    assert line["max_rel_error"] < 1e-5
    assert line["latency_s"] == pytest.approx(1e-5 * line["launches"])
    assert len(line["calls_s"]) == len(line["calls"]) == len(prepared.plan.calls)
    main(asked)
    assert len(list(lines(out))) == 1, "what is there is not done again"
    capsys.readouterr()
    main(["report", str(out)])
    assert f"| small | {1e3 * line['latency_s']:.3f} |" in capsys.readouterr().out


def test_rivals_are_told_as_times_of_ours() -> None:
    ours = {"network": "net", "what": "ours", "latency_s": 1e-3, "max_rel_error": 2e-6}
    theirs = {"network": "net", "what": "compiled", "latency_s": 1.5e-3}
    failed = {"network": "net", "what": "eager", "failed": "no torch"}
    table = report([ours, theirs, failed]).splitlines()
    assert table[2] == "| net | 1.000 | 2.0e-06 | – | – | 1.50 |"


def test_drawn_weights_follow_from_their_name() -> None:
    weights = drawn("w", (8, 4, 3, 3))
    assert (weights == drawn("w", (8, 4, 3, 3))).all()
    assert not np.array_equal(weights, drawn("v", (8, 4, 3, 3)))
    assert weights.std() == pytest.approx(1 / 6, rel=0.2)
