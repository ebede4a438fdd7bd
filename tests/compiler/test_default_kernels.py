"""Default candidates and kernels are those recorded; the comparison sees what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from default_kernels import PROCESSORS, RECORDED, cases, differences, lines_of, main, read, write
from tilewright.models.zoo import names

SAMPLE = (("avx512", 2, "mlp"), ("avx2", 1, "squeezenet1_1"), ("neon", 2, "mobilenet_v2"))


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: "-".join(map(str, case)))
def test_kernels_are_those_recorded(case: tuple[str, int, str]) -> None:
    pattern = "/".join(map(str, case))
    recorded = read(RECORDED, f"^{pattern}$")
    assert recorded
    assert differences(recorded, lines_of(case)) == []


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
    for argv in (["--only", "riscv"], ["--record", "--only", "avx2"]):
        with pytest.raises(SystemExit, match="2"):
            main(argv)
    assert "names no case" in capsys.readouterr().err
