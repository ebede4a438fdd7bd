"""`profile --power --memory` with meters that a script makes up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.command_line import run, small_model, succeed

ONE_WATT = 'read seconds rest < /proc/uptime; echo "$seconds J 0.01"'
"""A counter that goes up by a joule a second; the kernel tells hundredths."""


def profile(folder: Path, model: object, script: str) -> dict[str, Any]:
    (folder / "meter.sh").write_text(script)
    meter = f"command:sh '{folder}/meter.sh'"
    words = ("--settings", "default", "--memory", "--power", "--meter", meter)
    return succeed(folder, "profile", model, *words)


@pytest.mark.on_request
@pytest.mark.slow
def test_a_machine_of_one_watt(tmp_path: Path) -> None:
    data = profile(tmp_path, small_model(tmp_path / "small.onnx", filters=(8,)), ONE_WATT)
    memory = data["memory"]
    assert memory["reason"] or memory["measured_bytes"] >= memory["planned_bytes"] / 2 > 0
    energy = data["energy"]
    assert (energy["method"], energy["reason"]) == ("command: sh", "")
    assert energy["power_w"] == pytest.approx(1, rel=0.05)
    assert energy["idle_power_w"] == pytest.approx(1, rel=0.05)
    assert len(energy["samples_j"]) == 3 and energy["window_s"] >= 1
    # at one watt, joules are the seconds of a run and of the loop around it
    assert energy["energy_j"] > 0.2 * data["network_latency_s"]
    succeed(tmp_path, "db", "export", tmp_path / "all.jsonl")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    (kept,) = (line for line in map(json.loads, lines) if line["record"] == "network")
    assert kept["measured_bytes"] == memory["measured_bytes"]
    assert kept["latency_s"] == data["network_latency_s"]
    assert kept["energy"]["energy_j"] == energy["energy_j"]
    assert kept["energy"]["idle_power_w"] == energy["idle_power_w"]
    assert energy["runs"] * max(energy["samples_j"]) >= 2 * energy["window_s"]


@pytest.mark.slow
def test_a_meter_that_goes_away_leaves_the_times(tmp_path: Path) -> None:
    gone = f"cd '{tmp_path}'; echo x >> asked; [ $(wc -l < asked) -le 5 ] || exit 7; {ONE_WATT}"
    data = profile(tmp_path, "op:relu[shape=1x64x8x8]", gone)
    energy = data["energy"]
    assert "ended with 7" in energy["reason"]
    assert energy["energy_j"] is None and energy["power_w"] is None and energy["runs"] == 0
    assert energy["idle_power_w"] == pytest.approx(1, rel=0.05)
    assert data["network_latency_s"] > 0


def test_an_unknown_meter_is_told_before_work_begins(tmp_path: Path) -> None:
    wrong = run(tmp_path, "profile", "op:relu[shape=1x8]", "--power", "--meter", "rapl")
    assert wrong.code == 2 and "'rapl'" in wrong.err and "powercap" in wrong.err
