"""Default candidates and kernels are those recorded; the comparison sees what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from default_kernels import (
    PROCESSORS,
    RECORDED,
    SHOWN,
    cases,
    compared,
    differences,
    lines_of,
    main,
    read,
    write,
)
from tilewright.models.zoo import names

SAMPLE = (
    ("avx512", 2, "mlp"),
    ("avx2", 1, "squeezenet1_1"),
    ("neon", 2, "mobilenet_v2"),
    ("avx2", 1, "bert_base"),
)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: "-".join(map(str, case)))
def test_kernels_are_those_recorded(case: tuple[str, int, str]) -> None:
    pattern = "/".join(map(str, case))
    recorded = read(RECORDED, f"^{pattern}$")
    assert recorded
    assert differences(recorded, lines_of(case)) == []


def test_tasks_with_one_anchor_are_compared_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "^avx512/2/mlp$", "--anchor", "dense"]) == 0
    recorded = read(RECORDED, "^avx512/2/mlp$", "dense")
    assert capsys.readouterr().out == f"{len(recorded)} tasks, 0 differences\n"
    assert recorded and all("\tdense-" in name for name in recorded)


def test_every_network_is_recorded_for_every_processor_and_number_of_threads() -> None:
    recorded = {name.split("\t")[0] for name in read(RECORDED)}
    assert recorded == {"/".join(map(str, case)) for case in cases()}
    assert len(recorded) == len(PROCESSORS) * 2 * len(names())


def test_what_differs_is_told(tmp_path: Path) -> None:
    before = {"avx2/1/a\tk\tplain": "x[]\t1", "avx2/1/b\tk\tplain": "x[]\t2"}
    after = {"avx2/1/a\tk\tplain": "y[]\t1", "avx2/2/a\tk\tplain": "x[]\t2"}
    write(tmp_path / "recorded.tsv", before)
    assert read(tmp_path / "recorded.tsv") == before
    assert read(tmp_path / "recorded.tsv", "/b$") == {"avx2/1/b\tk\tplain": "x[]\t2"}
    assert [text.split("\t")[0] for text in differences(before, after)] == [
        "went: avx2/1/b",
        "differs: avx2/1/a",
        "came: avx2/2/a",
    ]
    assert differences(before, before) == []


def test_a_pattern_without_a_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (
        ["--only", "riscv"],
        ["--record", "--only", "avx2"],
        ["--record", "--anchor", "dense"],
        ["--anchor", "dens"],
    ):
        with pytest.raises(SystemExit, match="2"):
            main(argv)
    told = capsys.readouterr().err
    assert "names no case" in told and "names no recorded task" in told


def test_differences_are_told_as_they_come_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = {f"avx2/1/{net}\tk{n}\tplain": "x[]\t1" for net in "ab" for n in range(15)}
    found = (("avx2/1/a", {}), ("avx2/1/b", {"avx2/1/b\tk0\tplain": "x[]\t1"}))
    assert compared(recorded, iter(found)) == 1
    told = capsys.readouterr().out.splitlines()
    assert len(told) == SHOWN + 2
    assert told[-2:] == ["and 9 more", "1 tasks, 29 differences"]
