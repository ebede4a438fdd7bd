"""`benchmarks/core_curves.py` on one core and on two: kernels are prepared, timed by TVM's runtime
alone, and reported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from card.archive import lines
from core_curves import main
from curves.archive import Archive
from curves.reporting import curve_rows, report
from curves.wishes import wishes
from helpers.commands.command_line import ALL
from tilewright.core.codec import to_builtins
from tilewright.hardware.device import local_placement
from tilewright.hardware.probe import allotted_cpus

TWO = pytest.mark.skipif(len(allotted_cpus(affinity=ALL)) < 2, reason="needs two cores")
pytestmark = pytest.mark.usefixtures("all_cores")


@TWO
def test_the_whole_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "kernels", tmp_path / "results.jsonl"
    asked = ["zoo:mlp", "--cores", "1", "2", "--most", "2", "--operators", "1"]
    main(["prepare", *asked, "--file", str(folder)])
    archive = Archive.read(folder)
    assert len(archive.tasks) == 3
    monkeypatch.setenv("TVM_USE_RUNTIME_LIB", "1")  # in children, that is without the compiler
    run = ["run", "--file", str(folder), "--out", str(out), "--turns", "1", "--copied", "65536"]
    main([*run, "--pairs", "1"])
    measured = out.read_bytes()
    found = list(lines(out))
    assert not [line for line in found if "failure" in line]
    assert all(line["error"] <= line["bound"] for line in found if line["part"] == "check")
    assert {line["part"] for line in found} > {"copy", "launch", "hand over", "check", "time"}
    rows = curve_rows(out)
    assert {(row.workload.key, row.cores) for row in rows if row.own} == {
        (task.workload.key, cores) for task in archive.tasks for cores in (1, 2)
    }
    kernels = sum(len(task.kernels) for task in archive.tasks)
    assert len(rows) == 2 * kernels, "each kernel on either number of cores"
    assert all(len(row.samples_s) == 7 and row.latency_s > 0 for row in rows)
    main([*run, "--pairs", "0"])
    more = out.read_bytes().removeprefix(measured).decode()
    assert [json.loads(line)["part"] for line in more.splitlines()] == ["machine"]
    main(["report", str(out)])
    assert re.search(r"^\| dense \| 2 \| \d", capsys.readouterr().out, flags=re.MULTILINE)


@TWO
def test_numbers_of_cores_that_are_not_prepared_are_refused(tmp_path: Path) -> None:
    Archive(features=(), counts=(1, 4), tasks=()).write(tmp_path)
    asked = ["run", "--file", str(tmp_path), "--out", str(tmp_path / "out"), "--cores", "1", "2"]
    with pytest.raises(SystemExit, match=r"has kernels for 1, 4 cores.*nothing is there for 2"):
        main(asked)


def test_rows_join_the_samples_of_all_turns_and_tables_compare_them() -> None:
    (wish,) = wishes(local_placement(1), (1, 2, 16), ["op:relu[shape=64x512]"], (1, 0))
    task = {
        "text": wish.workload.text,
        "family": wish.family,
        "source": wish.source,
        "kernels": [
            {"key": key, "candidate": to_builtins(candidate), "types": [], "made_for": made_for}
            for key, candidate, made_for in (
                ("a", wish.candidates[1], [1]),
                ("b", wish.candidates[16], [2, 16]),
            )
        ],
    }
    results = [{"part": "task", "task": 0, **task}]
    results += [
        {"part": "time", "task": 0, "key": key, "cores": cores, "samples_s": samples_s}
        for key, cores, samples_s in (
            ("a", 1, [8.0, 9.0]),
            ("a", 1, [10.0]),
            ("b", 1, [18.0]),
            ("a", 2, [5.0]),
            ("b", 2, [4.0]),
            ("b", 16, [1.0]),
        )
    ]
    said = "\n".join(report(results))
    assert "| elementwise | 1 | 2.25 (2.25 to 2.25) |  |  | 9.00 (9.00 to 9.00) |" in said
    assert "| elementwise | 1 | 4.50 (4.50 to 4.50) |  |  | 18.00 (18.00 to 18.00) |" in said
    assert "| 1 |  | 1.25 (1.25 to 1.25) |  |" in said
    assert "| 16 | 2.00 (2.00 to 2.00) |  |  |" in said
