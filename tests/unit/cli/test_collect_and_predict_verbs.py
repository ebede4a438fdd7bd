"""`collect`, `predict` and energy on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cli_fakes import PROFILED, FakeSession

from tilewright.core.results import EnergyUse

Command = Callable[..., Any]


def test_fields_of_predictions(tilewright: Command) -> None:
    def data(*tokens: str) -> Any:
        return json.loads(tilewright(*tokens, "--format", "json").out)["data"]

    assert {"samples", "failures", "elapsed_s"} <= set(data("collect", "--op", "conv2d"))
    predicted = data("predict", "zoo:resnet50")
    wanted = "latency_s latency_low_s latency_high_s power_w energy_j peak_memory_bytes"
    assert set(predicted["network"]) == set(wanted.split())
    assert predicted["network"]["power_w"] is None
    wanted = "name family latency_s low_s high_s source"
    assert set(wanted.split()) <= set(predicted["operators"][0])
    assert {"factors", "turning_points", "facts"} <= set(data("explain", "op:conv2d[c=64]"))
    assert data("explain", "zoo:mlp", "--thread-counts")["best_threads"] == 1


def test_a_table_of_operators_or_a_model(tilewright: Command) -> None:
    ran = tilewright("predict", "--table", "ops.csv", "--format", "json")
    assert json.loads(ran.out)["data"]["network"] is None
    assert tilewright("predict").code == 2
    assert tilewright("predict", "zoo:mlp", "--table", "ops.csv").code == 2
    assert tilewright("predict", "--table", "ops.csv").code == 0


def test_values_of_a_study_are_numbers(tilewright: Command) -> None:
    ran = tilewright("study", "padding", "op:conv2d[c=64,pad=1]", "--values", "0,x")
    assert ran.code == 2
    assert "0,1,2,3" in ran.err


def test_collect_wants_something_to_collect(tilewright: Command) -> None:
    ran = tilewright("collect")
    assert ran.code == 2
    assert "family of operators or a network" in ran.err


def test_factors_of_collect(tilewright: Command, session: FakeSession) -> None:
    flags = ("--threads", "1,2", "--cache", "warm,cold", "--neighbours", "0,1", "--adaptive")
    assert tilewright("collect", "--op", "conv2d", *flags, "--dtype", "int8").code == 0
    design = session.calls[-1]["design"]
    assert (design.threads, design.caches, design.neighbours) == ((1, 2), ("warm", "cold"), (0, 1))
    assert (design.adaptive, design.dtypes, design.settings) == (True, ("int8",), 3)


@pytest.mark.parametrize("flag", ["--threads", "--neighbours", "--cache"])
@pytest.mark.parametrize("text", ["1,1", "1,,2", "x,"])
def test_factors_that_are_no_lists(tilewright: Command, flag: str, text: str) -> None:
    ran = tilewright("collect", "--op", "conv2d", flag, text)
    assert ran.code == 2 and flag in ran.err


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


def test_energy_of_what_is_collected(tilewright: Command, session: FakeSession) -> None:
    assert tilewright("collect", "--op", "relu").code == 0
    assert session.meter is None
    assert tilewright("collect", "--op", "relu", "--power").code == 0
    assert session.meter == "auto"
    assert tilewright("collect", "--op", "relu", "--power", "--meter", "hwmon").code == 0
    assert session.meter == "hwmon"
    wrong = tilewright("collect", "--op", "relu", "--meter", "hwmon")
    assert wrong.code == 2 and "--power" in wrong.err
