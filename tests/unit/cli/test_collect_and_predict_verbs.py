"""`collect`, `predict` and energy on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from helpers.fakes.session import FakeSession

Command = Callable[..., Any]


def test_fields_of_predictions(tilewright: Command) -> None:
    def data(*tokens: str) -> Any:
        return json.loads(tilewright(*tokens, "--format", "json").out)["data"]

    assert {"samples", "failures", "elapsed_s"} <= set(data("collect", "--op", "conv2d"))
    predicted = data("predict", "zoo:resnet50")
    wanted = "latency_s latency_low_s latency_high_s power_w energy_j peak_memory_bytes"
    wanted += " power_low_w power_high_w energy_low_j energy_high_j"
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


def test_several_devices(tilewright: Command) -> None:
    gpu = "cuda -model=H100"
    asked = ("predict", "zoo:mlp", "--devices", "llvm", "--devices", gpu)
    data = json.loads(tilewright(*asked, "--format", "json").out)["data"]
    assert data["calls"][0]["modes"][0]["implementation"] == "recurrent_loop"
    assert data["transfers"][0]["bytes_per_s"] == 63e9
    ran = tilewright(*asked)
    assert "63 GB/s" in ran.out and "nothing computes it" in ran.out
    head, row = tilewright(*asked, "--format", "csv").out.splitlines()
    assert head == f"name,family,result_bytes,llvm,{gpu}" and row == "loop,lstm,32,0.001,"
    for other in (("--target", "simulated"), ("--metric", "memory"), ("--table", "ops.csv")):
        assert tilewright(*asked, *other).code == 2


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
    assert design.held == ((),)
    flags = ("--clock", "usual,1.5GHz", "--power-cap", "65W", "--cache-ways", "2")
    assert tilewright("collect", "--op", "conv2d", *flags).code == 0
    held = session.calls[-1]["design"].held
    assert ["+".join(one.text for one in each) for each in held] == [
        "power-cap=65W+cache-ways=2",
        "clock=1.5GHz+power-cap=65W+cache-ways=2",
    ]
    flags = ("--turbo", "off", "--clock", "2GHz", "--governor", "performance", "--smt", "usual,off")
    assert tilewright("collect", "--op", "conv2d", *flags).code == 0
    held = session.calls[-1]["design"].held
    assert ["+".join(one.text for one in each) for each in held] == [
        "governor=performance+turbo=off+clock=2GHz",
        "smt=off+governor=performance+turbo=off+clock=2GHz",
    ]


def test_a_share_of_a_networks_time(tilewright: Command, session: FakeSession) -> None:
    assert tilewright("collect", "zoo:mlp", "--share", "0.9").code == 0
    assert session.calls[-1]["design"].share == 0.9
    for text in ("0", "1.5", "90%", "nan"):
        ran = tilewright("collect", "zoo:mlp", "--share", text)
        assert ran.code == 2 and "share" in ran.err


@pytest.mark.parametrize("flag", ["--threads", "--neighbours", "--cache"])
@pytest.mark.parametrize("text", ["1,1", "1,,2", "x,"])
def test_factors_that_are_no_lists(tilewright: Command, flag: str, text: str) -> None:
    ran = tilewright("collect", "--op", "conv2d", flag, text)
    assert ran.code == 2 and flag in ran.err
