"""A network as a graph: calls in layers, edges between them, what a box says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.records.report_results import CALL, CONV, OPTIMIZED
from tilewright.core.accounts import KernelChange, LastRun, RoundTimes
from tilewright.core.mixtures import FrontPoint, MixtureReport
from tilewright.report import calls, displays, html, mixtures, rounds
from tilewright.report.layers import layers

BOX, WIRE, GAP = 10.0, 2.0, 3.0
DIAMOND = {"a": [], "b": ["a"], "c": ["b"], "d": ["a", "c"]}


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    count = draw(st.integers(1, 25))
    numbers = [
        draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else set() for n in range(count)
    ]
    return {f"n{n}": [f"n{m}" for m in sorted(read)] for n, read in enumerate(numbers)}


def test_layers_are_longest_paths_and_edges_pass_between_boxes() -> None:
    found = layers(DIAMOND, box=BOX, wire=WIRE, gap=GAP)
    assert [found.nodes[name][1] for name in "abcd"] == [0, 1, 2, 3]
    assert (("a", 0), ("a", 1)) in found.edges and (("a", 2), ("d", 3)) in found.edges
    assert abs(found.places["b", 1] - found.places["a", 1]) >= (BOX + WIRE) / 2 + GAP
    chain = layers({"a": [], "b": ["a"], "c": ["b"]}, box=BOX, wire=WIRE, gap=GAP)
    assert chain.width == BOX and set(chain.places.values()) == {BOX / 2}, "straight down"


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_no_boxes_overlap_and_every_edge_is_there(graph: Mapping[str, Sequence[str]]) -> None:
    found = layers(graph, box=BOX, wire=WIRE, gap=GAP)
    rows: dict[int, list[tuple[float, float]]] = {}
    for point, place in found.places.items():
        width = BOX if found.nodes[point[0]] == point else WIRE
        assert width / 2 - 1e-6 <= place <= found.width - width / 2 + 1e-6
        rows.setdefault(point[1], []).append((place, width))
    for row in rows.values():
        row.sort()
        for (one, wide), (other, broad) in zip(row, row[1:], strict=False):
            assert other - one >= (wide + broad) / 2 + GAP - 1e-6
    below: dict[object, set[object]] = {}
    for upper, lower in found.edges:
        assert lower[1] == upper[1] + 1
        below.setdefault(upper, set()).add(lower)
    for name, sources in graph.items():
        for source in sources:
            point = found.nodes[source]
            while point[1] < found.nodes[name][1] - 1:
                point = (source, point[1] + 1)
            assert found.nodes[name] in below[point]


def test_boxes_tell_operator_time_layouts_and_type() -> None:
    copied = replace(
        CALL, name="copied", kind="conversion", inputs=("layer1.conv1",), operator="copy",
        implementation="copies", layouts=("NCHW16c", "NCHW"), in_place_s=None, dtype="bfloat16",
    )  # fmt: skip
    last = replace(CALL, name="x" * 99, inputs=("layer1.conv1", "copied", "elsewhere"))
    drawn = calls.chart((CALL, copied, last), (CONV,))
    assert drawn is not None
    first, second, third = drawn.rows["calls"]
    assert (first["operator"], first["time"], first["colour"]) == (
        "conv2d",
        "1.1 ms",
        "var(--compute)",
    )
    assert first["layouts"] == "NCHW16c → OIHW16i16o"
    assert first["result"] == "float32[1, 64, 56, 56]"
    assert (second["operator"], second["kernel"], second["time"]) == ("conversion", False, "1 ms")
    assert second["layout"] == "NCHW16c → NCHW bfloat16"
    assert second["colour"] == "var(--other)", "no task has its layouts"
    assert len(str(third["brief"])) < 30 < len(str(third["name"]))
    assert [row["heat"] for row in drawn.rows["calls"]] == [1.0, 0.001 / 0.0011, 1.0]
    assert len(drawn.rows["edges"]) == 4, "one of them passes the layer of the conversion"
    grey, teal = "var(--faded)", "var(--s3)"
    assert [row["typed"] for row in drawn.rows["calls"]] == [grey, teal, grey]
    assert [row["stripe"] - row["left"] for row in drawn.rows["calls"]] == [6, 6, 6]
    assert sorted(row["typed"] for row in drawn.rows["edges"]) == [grey, grey, grey, teal]
    assert calls.type_hues((CALL, copied, last)) == {"float32": "faded", "bfloat16": "s3"}
    alike = calls.chart((CALL, last), (CONV,))
    assert alike is not None and not calls.type_hues((CALL, last))
    assert not calls.type_hues((CALL, replace(last, dtype="int64"))), "both in grey"
    assert all(row["stripe"] == row["left"] for row in alike.rows["calls"])
    assert calls.chart((), ()) is None


def test_memory_names_its_peak_and_draws_weights_that_are_near() -> None:
    small, large = (
        replace(CALL, alive_bytes=3 << 20),
        replace(CALL, name="peak", alive_bytes=6 << 20),
    )
    drawn = calls.memory_chart((small, large, small), 10 << 20)
    assert drawn is not None
    assert [row["size"] for row in drawn.rows["alive"]] == [3.0, 6.0, 3.0]
    assert [row["label"] for row in drawn.rows["peaks"]] == ["peak 6 MiB: peak"]
    assert [row["label"] for row in drawn.rows["weights"]] == ["weights 10 MiB"]
    assert drawn.parameters["unit"] == "MiB" and drawn.parameters["top"] == 1.15 * 10
    far = calls.memory_chart((small, large), 1 << 30)
    assert far is not None and far.rows["weights"] == [] and far.parameters["top"] == 1.15 * 6
    assert calls.memory_chart((replace(CALL, alive_bytes=0),), 5) is None


def test_rounds_are_dots_with_their_median() -> None:
    ours = RoundTimes(name="tilewright", rounds_s=(0.001, 0.003, 0.002))
    drawn = rounds.chart((ours, replace(ours, name="ONNX Runtime")))
    assert drawn is not None
    assert [row["time_s"] for row in drawn.rows["rounds"]][:3] == [0.001, 0.003, 0.002]
    assert [row["told"] for row in drawn.rows["medians"]] == ["2 ms", "2 ms"]
    assert rounds.chart((ours,)) is None
    assert rounds.chart((replace(ours, rounds_s=(0.1,)), replace(ours, rounds_s=(0.1,)))) is None


def test_mixtures_are_a_front_with_the_chosen_and_the_measured_one() -> None:
    front = (
        FrontPoint(predicted_s=0.004, sqnr_db=48.0),
        FrontPoint(predicted_s=0.005, sqnr_db=51.0, chosen=True),
        FrontPoint(predicted_s=0.009, sqnr_db=300.0),
    )
    found = MixtureReport(
        predicted_sqnr_db=51.0, measured_sqnr_db=50.5, correction=1.0, corrections=0, gap=0.0,
        solve_s=0.1, noise_s=4.0, calibrated=False, kept=(), layers=(), front=front,
    )  # fmt: skip
    drawn = mixtures.chart(found)
    assert drawn is not None
    assert [row["ratio_db"] for row in drawn.rows["front"]] == [48.0, 51.0, 61.0]
    assert [row["label"] for row in drawn.rows["front"]] == ["", "chosen", "single precision"]
    assert [row["ratio"] for row in drawn.rows["front"]] == ["48.0 dB", "51.0 dB", "no noise"]
    assert [row["label"] for row in drawn.rows["measured"]] == ["measured 50.5 dB"]
    silent = mixtures.chart(replace(found, measured_sqnr_db=120.0))
    assert silent is not None and silent.rows["measured"] == []
    assert mixtures.chart(replace(found, front=front[:1])) is None and mixtures.chart(None) is None
    text = html.render(replace(OPTIMIZED, mixture=found))
    assert 'class="chart mixture"' in text and "chart mixture" not in html.render(OPTIMIZED)


def test_the_page_has_the_graph_where_calls_are_known() -> None:
    assert "call by call" in html.render(replace(OPTIMIZED, calls=(CALL,)))
    assert "call by call" not in html.render(OPTIMIZED)


def test_the_last_run_is_told_with_the_kernels_that_changed() -> None:
    change = KernelChange(task="conv", before="one", after="two", before_s=None, after_s=0.002)
    last = LastRun(at=0.0, latency_s=0.006, changes=(change,))
    told = replace(OPTIMIZED, last_run=last)
    text = html.render(told).replace("<wbr>", "")
    assert "6 ms, now 5 ms (1.20× the speed); 1 task with another kernel." in text
    assert "Since the last run" in text and "2 ms" in text
    assert "Since the last run" not in html.render(OPTIMIZED)
    page = displays.page(told)
    assert page is not None and any("now 5 ms" in note for note in page.notes)
