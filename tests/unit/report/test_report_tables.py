"""What the tables of single results say, cell by cell, and how they look in a file."""

from __future__ import annotations

from dataclasses import replace

from helpers.fakes.forecasts import PREDICTED
from helpers.records.report_results import OPTIMIZED, PEAK_BYTES_PER_S, PEAK_FLOP_PER_S
from tilewright.core.mixtures import CoarserEstimate
from tilewright.core.predictions import EvaluateRow
from tilewright.core.records import EnergyUse
from tilewright.core.results import (
    ImportResult,
    MemoryUse,
    ProfileResult,
    SkippedLine,
    TargetRow,
)
from tilewright.report import displays, formats, views
from tilewright.report.tables import Column, Table


def facts(table: Table) -> dict[str, str]:
    """The rows of a table of facts, as people read them."""
    return {name: shown for name, shown in table.shown()}


def test_the_summary_of_a_run() -> None:
    table = views.optimize_summary(OPTIMIZED)
    assert table.title == "zoo:small"
    assert facts(table) == {
        "latency": "5 ms",
        "default settings": "7.5 ms, speed-up 1.50× (1.40 to 1.60)",
        "ONNX Runtime": "6 ms, speed-up 1.20× (1.15 to 1.25)",
        "largest error": "3.0e-06 (1.0e-06 of the largest value)",
        "threads": "2",
        "target": '{"kind":"llvm"}',
        "measurements": "1\u202f200, 4 failed",
        "elapsed": "119 s",
        "artifact": "tilewright-out/small",
    }
    raw = {record["name"]: record["value"] for record in table.records}
    assert (raw["latency"], raw["largest error"], raw["elapsed"]) == (0.005, 3e-6, 119.0)


def summary(**changed: object) -> dict[str, str]:
    return facts(views.optimize_summary(replace(OPTIMIZED, **changed)))


def test_the_summary_tells_only_what_is_known() -> None:
    """An error without a largest value to compare it with, a reference that was not timed or not
    compared, times that differed between rounds."""
    assert summary(max_rel_error=None)["largest error"] == "3.0e-06"
    untimed = summary(reference_latency_s=None, reference_untimed=True)
    assert untimed["ONNX Runtime"] == "not timed on the device"
    uncompared = summary(
        speedup_vs_reference=None, speedup_vs_reference_low=None, speedup_vs_reference_high=None
    )
    assert uncompared["ONNX Runtime"] == "6 ms"
    agreeing = summary(top1_agreement=0.75, top1_rows=4)
    assert agreeing["largest element"] == "agrees in 75.0 % of 4 rows"
    gain = CoarserEstimate(precision="auto", types=("bfloat16",), speedup=2.0, latency_s=0.0025)
    told = summary(coarser=gain)["--precision auto"]
    assert told == "about 2.5 ms with bfloat16, 2.00×, by estimates; not measured"
    assert summary(baseline_latency_s=None, speedup_vs_baseline=None)["default settings"] == "–"
    varied = summary(latency_variation=0.25, reference_variation=0.5)
    assert varied["latency"] == "5 ms, varied by 25.0 % between rounds"
    assert varied["ONNX Runtime"].endswith("(1.15 to 1.25), varied by 50.0 % between rounds")


PROFILED = ProfileResult(
    model="zoo:small",
    target="llvm",
    threads=2,
    tasks=OPTIMIZED.tasks,
    network_latency_s=0.005,
    tasks_latency_s=0.0049,
    peak_flop_per_s=PEAK_FLOP_PER_S,
    peak_bytes_per_s=PEAK_BYTES_PER_S,
    planned_memory_bytes=3 << 20,
    weight_bytes=50 << 20,
)
MEMORY = MemoryUse(
    planned_bytes=60 << 20,
    weight_bytes=50 << 20,
    arena_bytes=3 << 20,
    workspace_bytes=1536,
    interface_bytes=2 << 20,
    code_bytes=5 << 20,
    reason="no such counter",
)
ENERGY = EnergyUse(
    method="rapl",
    energy_j=0.25,
    power_w=50.0,
    idle_power_w=12.5,
    samples_j=(0.2, 0.25, 0.3),
    runs=1200,
    window_s=2.0,
)


def test_the_summary_of_a_profile() -> None:
    assert facts(views.profile_summary(PROFILED)) == {
        "network": "5 ms",
        "sum of the tasks": "4.9 ms",
        "threads": "2",
        "target": "llvm",
        "measured peak": "200 GFLOP/s, 20.0 GB/s",
    }


def test_memory_is_measured_or_says_why_not() -> None:
    unmeasured = facts(views.memory_table(MEMORY))
    assert unmeasured == {
        "planned peak": "60 MiB",
        "measured peak": "no such counter",
        "weights, packed": "50 MiB",
        "intermediates": "3 MiB",
        "workspaces": "1.5 KiB",
        "inputs and outputs": "2 MiB",
        "code": "5 MiB",
    }
    measured = replace(MEMORY, measured_bytes=64 << 20, method="rss", reason="")
    assert facts(views.memory_table(measured))["measured peak"] == "64 MiB (rss)"


def test_energy_tells_its_windows_or_what_is_missing() -> None:
    assert facts(views.energy_table(ENERGY)) == {
        "energy per run": "250 mJ",
        "power": "50.0 W",
        "idle power": "12.5 W",
        "meter": "rapl",
        "runs": "1\u202f200 in 3 windows of 2 s",
    }
    without = facts(views.energy_table(EnergyUse(method="none", reason="no meter")))
    assert without == {
        "energy per run": "–",
        "power": "–",
        "idle power": "–",
        "meter": "none",
        "missing": "no meter",
    }


def test_a_profile_shows_memory_and_energy_where_they_were_looked_at() -> None:
    def titles(result: ProfileResult) -> list[str]:
        found = displays.page(result)
        assert found is not None
        return [table.title for table in found.more]

    assert titles(PROFILED) == []
    assert titles(replace(PROFILED, memory=MEMORY)) == ["Memory"]
    assert titles(replace(PROFILED, memory=MEMORY, energy=ENERGY)) == ["Memory", "Energy"]


def test_phases_are_shares_of_their_sum() -> None:
    table = views.phases_table({"import": 0.0625, "tune": 0.375, "verify": 0.0625})
    assert table.shown() == [
        ["import", "62.5 ms", "12.5 %"],
        ["tune", "375 ms", "75.0 %"],
        ["verify", "62.5 ms", "12.5 %"],
    ]
    assert [column.number for column in table.columns] == [False, True, True]
    assert [line[2] for line in views.phases_table({"import": 0.0}).shown()] == ["0 %"]


def test_counts_are_sizes_by_their_names_and_texts_as_they_are() -> None:
    table = views.counts_table({"folder": "~/cache", "files": 1234, "kept_bytes": 1536})
    assert [column.label for column in table.columns] == ["folder", "files", "kept"]
    assert [column.number for column in table.columns] == [False, True, True]
    assert table.shown() == [["~/cache", "1\u202f234", "1.5 KiB"]]


def row(family: str, group: str) -> EvaluateRow:
    return EvaluateRow(
        family=family,
        target="latency_s",
        group=group,
        n=7,
        mape=0.125,
        median_ape=0.1,
        p90_ape=0.5,
        within_5=0.25,
        within_10=0.5,
        within_20=0.75,
        spearman=0.875,
        coverage_90=0.9,
    )


def test_families_are_named_where_there_are_several() -> None:
    cells = ["latency_s", "all", "7", "12.5 %", "10.0 %", "50.0 %", "25.0 %", "50.0 %", "75.0 %"]
    cells += ["0.875", "90.0 %"]
    assert views.evaluation_table([row("dense", "all")]).shown() == [cells]
    several = views.evaluation_table([row("dense", "all"), row("conv2d", "all")]).shown()
    assert several == [["dense", *cells], ["conv2d", *cells]]


def test_the_reason_for_no_energy_is_told_once() -> None:
    """A network's forecast has it in its summary; kernels alone have it below their table."""

    def sentences(result: object) -> tuple[str, ...]:
        found = displays.page(result)
        assert found is not None
        return found.sentences

    unknown = replace(PREDICTED, metrics=("latency", "energy"), energy_reason="no meter here")
    assert sentences(unknown) == ()
    assert repr(unknown).count("no meter here") == 1
    assert sentences(replace(unknown, network=None)) == ("no meter here",)
    assert sentences(replace(PREDICTED, network=None)) == ()


def test_vectors_of_a_target_are_told_in_bits() -> None:
    here = TargetRow(name="llvm", usable=True, detail="this CPU", threads=2, vector_bytes=64)
    assert views.TARGETS.of([here, replace(here, usable=False, vector_bytes=0)]).shown() == [
        ["llvm", "yes", "2", "512 bit", "this CPU"],
        ["llvm", "no", "2", "–", "this CPU"],
    ]


def test_an_import_is_one_row_of_counts() -> None:
    skipped = (SkippedLine(line=4, reason="no record"),)
    table = views.import_table(ImportResult(path="a", kind="t4", imported=1234, skipped=skipped))
    assert table.shown() == [["t4", "0", "1\u202f234", "0", "0", "0", "0"]]
    assert [column.number for column in table.columns] == [False, *[True] * 6]
    assert "skipped" not in table.raw()[0] and "path" in table.raw()[0]


def test_lines_that_were_not_taken_in_are_counted_beyond_the_first_twenty() -> None:
    def taken(lines: int, note: str = "") -> displays.Page:
        skipped = tuple(SkippedLine(line=n, reason="no record") for n in range(lines))
        result = ImportResult(path="a.log", kind="t4", imported=3, skipped=skipped, note=note)
        found = displays.page(result)
        assert found is not None
        return found

    assert not taken(0).more and not taken(0).notes
    assert len(taken(20).more[0].records) == 20 and not taken(20).notes
    many = taken(23, "Times of another program")
    assert len(many.more[0].records) == 20
    assert taken(21).notes == ["More skipped lines, 1 of them, are in --format json."]
    assert many.notes == [
        "More skipped lines, 3 of them, are in --format json.",
        "Times of another program.",
    ]


TABLE = Table(
    columns=(Column(field="name", label="a_name"), Column(field="n", label="n", number=True)),
    records=({"name": 'x|"<y>"', "n": 1}, {"name": None, "n": 20}),
    title="A & B",
)


def test_a_table_as_markdown() -> None:
    rows = '| a\\_name | n |\n| --- | ---: |\n| x\\|"\\<y\\>" | 1 |\n| – | 20 |\n'
    assert formats.to_markdown(TABLE) == f"### A \\& B\n\n{rows}"
    assert formats.to_markdown(replace(TABLE, title="")) == rows


def test_a_table_as_csv() -> None:
    """Raw values: nothing where there is none, JSON for what has parts."""
    assert formats.to_csv(TABLE) == 'name,n\n"x|""<y>""",1\n,20\n'
    parts = replace(TABLE, records=({"name": ["a", "b"], "n": True},))
    assert formats.to_csv(parts) == 'name,n\n"[""a"", ""b""]",true\n'


def test_a_table_as_html() -> None:
    """Cells are safe between tags and within an attribute's quotes."""
    body = (
        "<thead><tr><th>a_name</th><th>n</th></tr></thead><tbody>"
        "<tr><td>x|&quot;&lt;y&gt;&quot;</td><td>1</td></tr><tr><td>–</td><td>20</td></tr></tbody>"
    )
    assert formats.to_html(TABLE) == f"<table><caption>A &amp; B</caption>{body}</table>"
    assert formats.to_html(replace(TABLE, title="")) == f"<table>{body}</table>"


def test_a_fragment_has_tables_then_sentences_then_the_report() -> None:
    table = formats.to_html(TABLE)
    assert formats.notebook_fragment([TABLE], ["a < b", ""]) == (
        f'<div class="tilewright">{table}<p>a &lt; b</p></div>'
    )
    unfolds = formats.notebook_fragment([], report='<p title="x">')
    assert 'sandbox="allow-scripts"' in unfolds
    assert 'srcdoc="&lt;p title=&quot;x&quot;&gt;"' in unfolds
