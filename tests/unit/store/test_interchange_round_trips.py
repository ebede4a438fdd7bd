"""Records that leave in another program's form and come back."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from helpers.records.interchange_records import CONVOLUTION, PLACEMENT, convolution_outcomes
from helpers.records.store_records import MEASUREMENTS, OUTCOMES, failure, failures, measurement
from tilewright.core.errors import ModelError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Measurement, Outcome
from tilewright.core.results import ImportResult
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.store import open_store
from tilewright.store.database import SqliteStore

RELU = Workload(
    arguments=(Argument(type=TensorType((4,))),), steps=(Step(operator="relu", inputs=(0,)),)
)


def everything(store: SqliteStore) -> list[str]:
    """All outcomes as text, in no order."""
    with tempfile.TemporaryDirectory() as name:
        store.export(Path(name) / "all.jsonl")
        entries = map(json.loads, (Path(name) / "all.jsonl").read_text().splitlines())
        return sorted(
            json.dumps(entry, sort_keys=True)
            for entry in entries
            if entry["record"] in ("measurement", "failure")
        )


@pytest.mark.parametrize("kind", ["autotvm", "t4"])
@settings(max_examples=12, deadline=None)
@given(
    random=st.lists(OUTCOMES, max_size=4),
    real=st.lists(convolution_outcomes(), min_size=1, max_size=4),
)
def test_outcomes_come_back_equal(kind: str, random: list[Outcome], real: list[Outcome]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_store(folder / "a.db") as source, open_store(folder / "b.db") as target:
            source.add_workload(CONVOLUTION)
            source.add_device(PLACEMENT.device)
            source.add([*random, *real])
            count = source.export(folder / "x", kind)
            assert count == len(random) + len(real)
            taken = target.import_file(folder / "x", kind)
            assert (taken.lines, taken.imported, taken.skipped) == (count, count, ())
            assert (taken.unmatched, taken.note) == (0, "")
            assert everything(target) == everything(source)
            assert target.workload(CONVOLUTION.key) == CONVOLUTION
            assert target.devices() == [PLACEMENT.device]
            again = target.import_file(folder / "x", kind)
            assert (again.imported, again.known) == (0, count)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@settings(max_examples=12, deadline=None)
@given(random=st.lists(MEASUREMENTS, max_size=5))
def test_tables_come_back_equal(kind: str, random: list[Measurement]) -> None:
    """Knobs are sorted in a table; nothing else changes."""
    ordered = [
        replace(
            m, candidate=structs.replace(m.candidate, settings=tuple(sorted(m.candidate.settings)))
        )
        for m in random
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_store(folder / "a.db") as source, open_store(folder / "b.db") as target:
            source.add_workload(RELU)
            source.add([*ordered, replace(measurement(), workload_key=RELU.key, instance="here")])
            source.export(folder / f"x.{kind}")
            taken = target.import_file(folder / f"x.{kind}")
            assert (taken.kind, taken.skipped) == (kind, ())
            assert everything(target) == everything(source)
            assert target.workload(RELU.key) == RELU
            assert target.import_file(folder / f"x.{kind}").imported == 0


def exported(store: SqliteStore, path: Path) -> Path:
    store.add([measurement(number=n) for n in range(3)])
    store.export(path)
    return path


def skipped(taken: ImportResult) -> list[int]:
    return [item.line for item in taken.skipped]


def test_a_csv_file_cut_short_anywhere(store: SqliteStore, tmp_path: Path) -> None:
    text = exported(store, tmp_path / "m.csv").read_bytes()
    header = text.index(b"\r\n") + 2
    ends = [i for i in range(len(text)) if text.startswith(b"\r\n", i)]
    with open_store(tmp_path / "b.db") as other:
        for cut in range(header, len(text), 23):
            (tmp_path / "cut.csv").write_bytes(text[:cut])
            taken = other.import_file(tmp_path / "cut.csv")
            whole = sum(end <= cut for end in ends) - 1
            assert taken.lines - len(taken.skipped) >= whole
            assert everything(other)[0] in everything(store) if whole else True
        assert set(everything(other)) <= set(everything(store))


def test_tables_of_others_are_refused(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("")
    polars.DataFrame({"x": [1]}).write_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "b.csv", "a.parquet"):
        with pytest.raises(ModelError, match=r"has no column workload_key"):
            store.import_file(tmp_path / name)
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="no Parquet file"):
        store.import_file(tmp_path / "cut.parquet")


def test_broken_cells_are_told_by_their_line(store: SqliteStore, tmp_path: Path) -> None:
    lines = exported(store, tmp_path / "m.csv").read_text().splitlines()
    changes = {1: ('"{""tile""', '"[""tile""'), 2: ("0.5,2,5", "0.5,two,5"), 3: ("0.004", "nan")}
    for number, (old, new) in changes.items():
        assert old in lines[number]
        lines[number] = lines[number].replace(old, new, 1)
    (tmp_path / "bad.csv").write_text("\n".join(lines))
    with open_store(tmp_path / "b.db") as other:
        taken = other.import_file(tmp_path / "bad.csv")
        assert (skipped(taken)[:2], taken.lines) == ([2, 3], 3)
        assert "warmup" in taken.skipped[1].reason


def test_the_form_of_t4(store: SqliteStore, tmp_path: Path) -> None:
    store.add([measurement(), failure()])
    store.export(tmp_path / "x.t4")
    document = json.loads((tmp_path / "x.t4").read_text())
    assert document["schema_version"] == "1.0.0"
    good, bad = document["results"]
    assert {"configuration", "times", "invalidity", "correctness"} <= set(good) & set(bad)
    assert good["configuration"] == {"tile": 8, "unroll": True}
    assert good["times"]["runtimes"] == pytest.approx([3.0, 1.0, 2.0])
    assert good["measurements"] == [{"name": "time", "value": pytest.approx(2.0), "unit": "ms"}]
    assert (good["invalidity"], bad["invalidity"]) == ("correct", "runtime")
    assert bad["times"]["runtimes"] == []


@pytest.mark.parametrize("ending", ["t4", "json"])
def test_a_single_object_cut_short_gives_what_is_whole(
    store: SqliteStore, tmp_path: Path, ending: str
) -> None:
    path = exported(store, tmp_path / f"x.{ending}")
    text = path.read_text()
    path.write_text(text[: text.rindex("candidate")])
    with open_store(tmp_path / "b.db") as other:
        taken = other.import_file(path)
    assert (taken.imported, skipped(taken)) == (2, [3])
    assert "cut short" in taken.skipped[0].reason


def kernel_tuner(**changes: Any) -> dict[str, Any]:
    """A result as Kernel Tuner's `store_output_file` writes it; its schema is T4 1.0.0."""
    return {
        "timestamp": "2023-12-21 10:44:42.236642+00:00",
        "configuration": {"lanes": 16},
        "times": {
            "compilation": 661.5,
            "benchmark": 5.0,
            "framework": 53.1,
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": [1.5, 1.25],
        },
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [{"name": "time", "value": 1.375, "unit": "ms"}],
        "objectives": ["time"],
    } | changes


def t4_file(path: Path, *results: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"results": list(results), "schema_version": "1.0.0"}))
    return path


def configuration() -> dict[str, Any]:
    """A valid setting of some implementation of `CONVOLUTION` in plain layouts."""
    from tilewright.kernels.registry import implementation
    from tilewright.kernels.search_space import knob_space

    spec = implementation("conv2d_direct")
    forms = (PLAIN,) * 3
    space = knob_space(spec, CONVOLUTION, PLACEMENT.target, PLACEMENT.resources, forms)
    return space.settings(next(iter(space)))


def test_t4_of_another_tuner(store: SqliteStore, tmp_path: Path) -> None:
    fits = configuration()
    path = t4_file(
        tmp_path / "kt.json",
        kernel_tuner(configuration=fits),
        kernel_tuner(configuration=fits, invalidity="compile"),
        kernel_tuner(configuration=fits, invalidity="constraints"),
        kernel_tuner(),
        kernel_tuner(configuration=fits | {"lanes": 7}),
        kernel_tuner(configuration=fits, times={"runtimes": []}),
        kernel_tuner(configuration=fits, times={}, measurements=[]),
        kernel_tuner(configuration=fits, timestamp="yesterday"),
    )
    refused = store.import_file(path)
    assert (refused.kind, refused.imported, len(refused.skipped)) == ("t4", 0, 8)
    assert "--task KEY" in refused.skipped[0].reason
    taken = store.import_file(path, task=CONVOLUTION, placement=PLACEMENT)
    reasons = {item.line: item.reason for item in taken.skipped}
    assert set(reasons) == {3, 4, 5, 7}
    assert "constraints" in reasons[3]
    assert "those of no implementation" in reasons[4]
    assert "lanes=7" in reasons[5]
    assert "no times" in reasons[7]
    known = store.outcomes(CONVOLUTION.key, PLACEMENT.key)
    first = [o for o in known if isinstance(o, Measurement) and len(o.samples_s) == 2][-1]
    assert first.samples_s == pytest.approx((0.0015, 0.00125))
    assert first.created_at == 1703155482.236642
    assert dict(first.candidate.settings) == fits
    assert first.kernel_hash.startswith("imported:")
    assert [f.kind for f in failures(store, CONVOLUTION.key, PLACEMENT.key)] == ["build"]


def test_files_that_are_no_t4(store: SqliteStore, tmp_path: Path) -> None:
    for text in ("", "hello", '{"schema_version": "1.0.0"}', "[1, 2, 3]"):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ModelError, match="no T4 results file"):
            store.import_file(tmp_path / "x.json", "t4")
    (tmp_path / "x.json").write_text('{"results": [1, {"tilewright": 2}, {"tilewright": {}}]}')
    assert skipped(store.import_file(tmp_path / "x.json")) == [1, 2, 3]
