"""`benchmarks/many_cores.py` on two cores: a network in lanes and operators beside a neighbour."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curves.lanes_worker import stages_from
from curves.many_cores_told import grid
from helpers.commands.command_line import ALL
from many_cores import main
from tilewright.hardware.probe import allotted_cpus

pytestmark = [
    pytest.mark.skipif(len(allotted_cpus(affinity=ALL)) < 2, reason="needs two cores"),
    pytest.mark.usefixtures("all_cores"),
]


@pytest.mark.on_request
def test_the_whole_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, text = tmp_path / "results.jsonl", "op:relu[shape=64x512]"
    asked = ["--networks", "mlp", "--operators", text, "--cores", "2", "--rounds", "1"]
    main(["run", "--plans", str(tmp_path), "--out", str(out), *asked, "--turns", "1"])
    lines = [json.loads(line) for line in out.open()]
    assert not [line for line in lines if "failure" in line]
    same = {line["way"]: line["bit_for_bit"] for line in lines if line["part"] == "same"}
    assert same == {"sequence": True, "lanes of one": True}
    points = grid(lines)
    assert points.keys() == {(text, cores, beside) for cores, beside in ((1, 0), (2, 0), (1, 1))}
    (begun,) = (e["told"] for e in lines if e["part"] == "begun" and e.get("way") == "lanes of one")
    assert all(stages_from(begun["stages"]))
    (thought,) = (line for line in lines if line["part"] == "simulated")
    assert 0 < thought["simulated_s"] < 1
    main(["report", str(out)])
    told = capsys.readouterr().out
    assert "| mlp | in turn on 1 |" in told and f"| `{text}` | 1 |" in told
