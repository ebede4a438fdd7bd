"""The benchmarks resume where they stopped, and hide no loss."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import artifacts_in_turn
import mixed_bound
import predicted_networks
import serving
from bar_records import Item, Record, Records
from bar_tables import write_tables
from bars import SECTIONS, chosen_items
from kept import kept, once
from predictor_tables import BARS, rendered
from predictors import items


def record(network: str, *, speedup: float = 1.0, error: str = "") -> Record:
    row = {
        "peer": "onnxruntime",
        "precision": "fp32",
        "default_precision": False,
        "latency_s": 0.010,
        "latency_spread": 0.01,
        "peer_latency_s": 0.010 * speedup,
        "peer_spread": 0.02,
        "speedup": speedup,
        "max_rel_error": 1e-6,
    }
    return Record(
        id=Item(section="cnns", network=network, budget="5m").id,
        section="cnns",
        network=network,
        budget="5m",
        date="2030-01-02",
        compare=[] if error else [row],
        optimize={} if error else {"measurements": 7, "environment": {"CPU": "a CPU"}},
        error=error,
    )


def test_what_is_there_is_found_again(tmp_path: Path) -> None:
    Records(tmp_path).add(record("resnet18"))
    Records(tmp_path).add(record("vgg19_bn", error="exit code 1"))
    with (tmp_path / "bars.jsonl").open("a") as file:
        file.write('{"id": "cnns-resnet50-5m", "sec')
    known = Records(tmp_path)
    items = {item.network: item for item in chosen_items(["cnns"], [], None)}
    assert known.get(items["resnet18"]) == record("resnet18")
    assert known.get(items["vgg19_bn"]) is None, "what failed is tried again"
    assert known.get(items["resnet50"]) is None, "a line cut short does not count"


def test_tables_show_losses_and_failures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bars: begin -->\nold\n<!-- bars: end -->\nafter\n")
    records = Records(tmp_path)
    for made in (
        record("resnet18", speedup=2.0),
        record("resnet50", speedup=0.5),
        record("vgg19_bn", error="exit code 1; see the log"),
    ):
        records.add(made)
    write_tables(page, records)
    write_tables(page, records)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "a geometric mean of 1.000 over 2 networks and is least on resnet50 (0.50)" in text
    assert "Networks on which tilewright is slower: resnet50." in text
    assert "cnns-vgg19_bn-5m: exit code 1" in text
    assert text.count("### Convolutional networks") == 1


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_name_networks_of_the_zoo(section: str) -> None:
    from tilewright.models import zoo

    items = chosen_items([section], [], None)
    assert items and {item.network for item in items} <= set(zoo.names())
    assert len({item.id for item in items}) == len(items)
    assert [i.budget for i in chosen_items([section], ["mlp"], "3")] == ["3"]


def test_bars_of_prediction_belong_to_items_that_are_run(tmp_path: Path) -> None:
    assert {bar.item for bar in BARS} == {item.name for item in items()}
    row = {
        "target": "power_w",
        "group": "NVIDIA H200",
        "n": 10,
        "mape": 0.1,
        "median_ape": 0.02,
        "p90_ape": 0.2,
        "within_10": 0.8,
        "spearman": None,
        "coverage_90": 0.9,
    }
    kept = tmp_path / "gemm_power" / "result.json"
    kept.parent.mkdir()
    kept.write_text(
        json.dumps(
            {
                "date": "2030-01-02",
                "command": "tilewright evaluate",
                "runs": [{"cpu_s": 3.0, "rows": [row], "picks": []}],
            }
        )
    )
    text = rendered(tmp_path)
    assert "| gemm_power | median error of `power_w` | ≤ 2.5% | 2.0% | yes |" in text
    assert "| gemm_power | mean error of `power_w` | ≤ 9.0% | 10.0% | no |" in text
    assert "on 2030-01-02 by `tilewright evaluate`; one run took 3 s of CPU time." in text


def test_networks_are_judged_by_the_median_of_their_slices() -> None:
    near, far = (80.0, 90.0), (350.0, 400.0)
    item = {
        "network": "small", "measured_s": 2e-3, "tasks_s": 1e-3,
        "slices": [
            (1e-3, *near), (1.1e-3, *near), (1.2e-3, *near), (2e-3, 80.0, 400.0),
            *[(9e-3, *far)] * 3,
        ],
        "predicted": {"latency_s": 1e-3, "latency_low_s": 5e-4, "latency_high_s": 1.15e-3},
        "operators": [{"latency_s": 9e-4, "measured_s": 1e-3, "count": 1}],
    }  # fmt: skip
    assert predicted_networks.measured(item) == 2e-3
    shown = predicted_networks.row(item)
    assert shown[3] == "2.00 (1.00 to 9.00)" and shown[4] == "-50.0%"
    assert shown[5:7] == ("1.10, -9.1%", "9.00, -88.9%")
    alone = {**item, "slices": []}
    assert predicted_networks.row(alone)[3:7] == ("2.00", "-50.0%", "", "")
    told = predicted_networks.summaries([item, alone])
    assert [each[1:4] for each in told] == [
        ("all", "2", "50.0%"), ("cores near", "1", "9.1%"), ("cores far", "1", "88.9%"),
    ]  # fmt: skip
    assert told[1][4:] == ("9.1%", "100%", "100%")


def test_artifacts_in_turn_are_told_by_the_ratios_of_their_rounds() -> None:
    rounds_s = {"first": [2e-3, 4e-3, 2.2e-3, 2.1e-3], "second": [1e-3, 2e-3, 1e-3, 1e-3]}
    first, second, ratio = artifacts_in_turn.told(rounds_s).splitlines()
    assert first == "first   2.15 ms (2.08 to 2.65)" and second == "second  1 ms (1 to 1.25)"
    assert ratio == "first / second  2.050 (2.000 to 2.125)"


def test_one_round_has_no_quartiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["artifacts_in_turn.py", "a", "b", "--rounds", "1"])
    with pytest.raises(SystemExit):
        artifacts_in_turn.main()
    assert "--rounds must be 2 or more" in capsys.readouterr().err


def test_what_a_mixture_gains_at_most_is_told_by_the_bound_not_by_what_was_found() -> None:
    found = {"seconds": 1.9e-3, "bound_s": 1.6e-3}
    row = {
        "uniform_s": 2e-3, "uniform_db": 41.4, "default_s": 2.2e-3, "default_db": 41.0,
        "exactly": {**found, "on_codes": ["a"], "nodes": 3},
        **{kind: {"seconds": 2e-3, "bound_s": 2e-3} for kind in ("margin", "room")},
        "without_codes": {"seconds": 1.8e-3, "bound_s": 1.8e-3},
    }  # fmt: skip
    shown = dict(zip(mixed_bound.HEADER, mixed_bound.cells("Zen 4", "resnet18", row), strict=True))
    assert shown["gain at most"] == "1.250" and shown["without codes"] == "1.111"
    assert shown["with a margin"] == shown["with more room"] == "1.000"
    assert shown["on codes"] == "1 of 3" and shown["gap"] == "15.79%"
    assert shown["default layouts"] == "2.2 ms, 41.0 dB"
    row["without_codes"] = {"seconds": 1.5e-3, "bound_s": 1.5e-3}
    cells = mixed_bound.cells("Zen 4", "resnet18", row)
    shown = dict(zip(mixed_bound.HEADER, cells, strict=True))
    assert shown["mixture at least"] == "1.5 ms", "no bound is above a choice that is known"
    assert shown["gain at most"] == "1.333" and shown["gap"] == "21.05%"


def test_a_result_is_made_once_and_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "resnet18" / "result.json"
    with pytest.raises(RuntimeError, match="stopped"):
        once(path, _stopped)
    assert kept([path]) == []
    first = once(path, lambda: {"latency_s": 1e-3})
    assert first["latency_s"] == 1e-3
    assert once(path, _stopped) == first
    assert kept([path, tmp_path / "missing.json"]) == [first]
    assert [each.name for each in path.parent.iterdir()] == ["result.json"]


def _stopped() -> dict[str, object]:
    raise RuntimeError("stopped")


@pytest.mark.parametrize("other", [("--batches",), ("--network", "zoo:lstm")])
def test_a_soak_of_a_plan_has_networks_of_its_own(
    other: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["serving.py", "soak", "--plan", "lanes", *other])
    monkeypatch.setattr(serving, "soak", lambda *_: True)
    with pytest.raises(SystemExit, match="2"):
        serving.main()
    assert "leave out --batches and --network" in capsys.readouterr().err
