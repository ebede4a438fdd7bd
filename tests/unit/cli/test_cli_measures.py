"""Energy, power and memory on the command line: what is asked for, or the reason why it lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from helpers.fakes import forecasts
from helpers.fakes.session import PROFILED, FakeSession
from tilewright.core.results import EnergyUse, MemoryUse

Command = Callable[..., Any]


def test_energy_is_measured_where_it_is_asked_for(
    tilewright: Command, session: FakeSession
) -> None:
    assert tilewright("profile", "m").code == 0
    assert session.calls[-1]["meter"] is None
    session.profiled = replace(
        PROFILED,
        energy=EnergyUse(
            method="powercap: package-0",
            energy_j=0.123,
            power_w=45.6,
            idle_power_w=7.89,
            samples_j=(0.12, 0.123, 0.13),
            runs=1200,
            window_s=1.001,
        ),
    )
    out = tilewright("profile", "m", "--power").out
    assert session.calls[-1]["meter"] == "auto"
    for text in ("123 mJ", "45.6 W", "7.89 W", "powercap: package-0", "3 windows of 1 s"):
        assert text in out
    data = json.loads(tilewright("profile", "m", "--power", "--format", "json").out)["data"]
    wanted = {"energy_j": 0.123, "power_w": 45.6, "idle_power_w": 7.89, "reason": ""}
    assert wanted.items() <= data["energy"].items()


def test_without_a_meter_the_reason_is_told(tilewright: Command, session: FakeSession) -> None:
    session.profiled = replace(PROFILED, energy=EnergyUse(method="none", reason="No RAPL here."))
    tokens = ("profile", "m", "--power", "--meter", "command:watts --once")
    assert "No RAPL here." in tilewright(*tokens).out
    assert session.calls[-1]["meter"] == "command:watts --once"
    energy = json.loads(tilewright(*tokens, "--format", "json").out)["data"]["energy"]
    assert (energy["energy_j"], energy["power_w"], energy["idle_power_w"]) == (None, None, None)
    assert (energy["method"], energy["reason"]) == ("none", "No RAPL here.")


def test_only_the_metrics_that_were_asked_for_are_shown(
    tilewright: Command, session: FakeSession
) -> None:
    assert tilewright("predict", "zoo:resnet50").code == 0
    assert session.calls[-1]["metrics"] == ()
    network = forecasts.PREDICTED.network
    assert network is not None
    session.predicted = replace(
        forecasts.PREDICTED,
        network=replace(network, latency_s=None, energy_j=0.123),
        energy_reason="no meter",
        operators=(),
        metrics=("power", "memory"),
    )
    words = ("predict", "zoo:resnet50", "--metric", "power", "--metric", "memory")
    out = tilewright(*words).out
    assert session.calls[-1]["metrics"] == ("power", "memory")
    assert "unknown: no meter" in out and "peak memory" in out
    assert "latency" not in out and "energy" not in out
    found = json.loads(tilewright(*words, "--format", "json").out)["data"]
    assert found["network"]["latency_s"] is None and found["operators"] == []
    table = tilewright("predict", "--table", "t.csv", "--metric", "power")
    assert table.code == 0 and session.calls[-1]["metrics"] == ("power",)
    assert tilewright("fit", "conv2d", "--metric", "energy").code == 0
    assert session.calls[-1]["metrics"] == ("energy",)


def test_energy_of_what_is_collected(tilewright: Command, session: FakeSession) -> None:
    assert tilewright("collect", "--op", "relu").code == 0
    assert session.meter is None
    assert tilewright("collect", "--op", "relu", "--power").code == 0
    assert session.meter == "auto"
    assert tilewright("collect", "--op", "relu", "--power", "--meter", "hwmon").code == 0
    assert session.meter == "hwmon"
    wrong = tilewright("collect", "--op", "relu", "--meter", "hwmon")
    assert wrong.code == 2 and "--power" in wrong.err


def test_memory_is_planned_and_measured_where_it_is_asked_for(
    tilewright: Command, session: FakeSession
) -> None:
    planned = MemoryUse(
        planned_bytes=149 << 20,
        weight_bytes=137 << 20,
        arena_bytes=7 << 20,
        workspace_bytes=4 << 20,
        interface_bytes=1 << 19,
        code_bytes=1 << 19,
        reason="--memory measures it.",
    )
    session.profiled = replace(PROFILED, memory=planned)
    out = tilewright("profile", "m").out
    assert session.calls[-1]["memory"] is False
    assert "149 MiB" in out and "--memory measures it." in out
    measured = replace(planned, measured_bytes=151 << 20, method="VmHWM", reason="")
    session.profiled = replace(PROFILED, memory=measured)
    out = tilewright("profile", "m", "--memory").out
    assert session.calls[-1]["memory"] is True
    assert "151 MiB (VmHWM)" in out
    data = json.loads(tilewright("profile", "m", "--memory", "--format", "json").out)["data"]
    assert {"planned_bytes": 149 << 20, "measured_bytes": 151 << 20}.items() <= data[
        "memory"
    ].items()
