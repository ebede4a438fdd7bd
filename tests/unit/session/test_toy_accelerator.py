"""A processor of a kind that tilewright has never heard of, brought by one small package."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from helpers.plugins.offer import HERE, offering
from helpers.plugins.toy_accelerator.builder import BUILDER
from helpers.plugins.toy_accelerator.device import ACCESS, EXTENDED, KIND, PLACEMENT
from helpers.plugins.toy_accelerator.spec import SPEC, own_form
from tilewright.cli.main import main
from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, Form, in_channel_blocks, parse_form
from tilewright.graph.network import TensorType
from tilewright.graph.plan_fields import read_plan
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.registry import applicable
from tilewright.kernels.spaces import forget_spaces
from tilewright.store import open_store
from tilewright.testing.accesses import AccessConformance
from tilewright.testing.builders import BuilderConformance
from tilewright.testing.implementations import ImplementationConformance, plain, single

PACKAGE = HERE / "helpers/plugins/toy_accelerator"
POINTS = {
    "tilewright.element_types": {"longdouble": "helpers.plugins.toy_accelerator.device:EXTENDED"},
    "tilewright.accesses": {"toy": "helpers.plugins.toy_accelerator.device:ACCESS"},
    "tilewright.builders": {"toy": "helpers.plugins.toy_accelerator.builder:BUILDER"},
    "tilewright.implementations": {"systolic": "helpers.plugins.toy_accelerator.spec:SPEC"},
}
MOST_LINES = 300
WORKLOADS = (
    single("dense", (4, 64), (64, 32), constants=[1]),
    single("relu", (1, 16, 8, 8)),
    single("conv2d", (1, 8, 6, 6), (16, 8, 3, 3), constants=[1], strides=(1, 1),
           padding=(1, 1, 1, 1), dilation=(1, 1), groups=1),
)  # fmt: skip


def own_forms(workload: Workload) -> tuple[Form, ...]:
    """Data and result as the toy has them."""
    kinds = [PLAIN if a.role == "constant" else own_form(a.type) for a in workload.arguments]
    return (*kinds, own_form(workload.result))


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with offering(tmp_path_factory.mktemp("site"), POINTS, "toy-accelerator"):
        forget_spaces()
        yield
    forget_spaces()


def test_the_package_is_small_and_nothing_of_it_is_known_to_the_source() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in PACKAGE.glob("*.py"))
    assert lines <= MOST_LINES
    for path in Path(tilewright.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert KIND not in text and EXTENDED.name not in text, path


class TestSystolic(ImplementationConformance):
    spec = SPEC
    workloads = (*WORKLOADS, *WORKLOADS)
    placements = (PLACEMENT,)
    on = PLACEMENT

    @property
    def forms(self) -> Sequence[tuple[Form, ...]]:
        return (*map(plain, WORKLOADS), *map(own_forms, WORKLOADS))


class TestToyBuilder(BuilderConformance):
    builder = BUILDER
    placement = PLACEMENT
    workloads = WORKLOADS


class TestToyAccess(AccessConformance):
    access = ACCESS
    target = "toy"
    workloads = WORKLOADS


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The data that a command prints as JSON."""
    capsys.readouterr()
    assert main([*words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["data"]


def test_every_verb_works_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "a.db"))
    on, out = ("zoo:mlp", "--batch", "4", "--target", "toy"), tmp_path / "out"
    rows = told(capsys, "targets")["targets"]
    assert [row["usable"] for row in rows if row["name"] == "toy"] == [True]
    found = told(capsys, "optimize", *on, "--budget", "60", "--out", str(out))
    assert found["measurements"] > 0 and found["max_rel_error"] < 1e-5
    assert found["speedup_vs_baseline"] > 1.0, "its own forms are faster"
    plan = read_plan(json.loads((out / "manifest.json").read_text())["plan"])
    forms = {tensor.form for tensor in plan.tensors.values()}
    assert own_form(TensorType((4, 512))) in forms, "tiles in its own element type"
    assert "conversion" in {call.kind for call in plan.calls}, "the input arrives in its own type"
    assert {call.candidate.implementation for call in plan.calls} == {SPEC.name}
    again = told(capsys, "optimize", *on, "--budget", "60", "--out", str(out))
    assert (again["measurements"], again["latency_s"]) == (0, pytest.approx(found["latency_s"]))
    profile = told(capsys, "profile", *on, "--settings", "shipped")
    assert profile["network_latency_s"] == pytest.approx(found["latency_s"])
    forecast = told(capsys, "predict", *on)
    assert {row["implementation"] for row in forecast["operators"]} == {SPEC.name}
    exported = tmp_path / "all.jsonl"
    assert told(capsys, "db", "export", str(exported))["records"] > found["measurements"]
    texts = {
        layout
        for line in exported.read_text().splitlines()
        for layout in json.loads(line).get("candidate", {}).get("layouts", ())
    }
    assert any(not in_channel_blocks(parse_form(text)) for text in texts), texts


def test_what_it_runs_is_not_taken_for_this_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "a.db"))
    out = tmp_path / "out"
    told(capsys, "optimize", "zoo:mlp", "--target", "toy", "--budget", "8", "--out", str(out))
    assert told(capsys, "profile", str(out), "--target", "toy")["network_latency_s"] > 0
    capsys.readouterr()
    assert main(["profile", str(out)]) in (3, 4)
    assert "was compiled for toy" in capsys.readouterr().err
    with open_store(tmp_path / "a.db") as store:
        assert {row.device_class for row in store.stored_measurements()} == {
            PLACEMENT.device.class_key
        }


def test_what_is_for_cpus_is_not_for_it_and_the_reverse() -> None:
    for workload in WORKLOADS:
        on = PLACEMENT.target, PLACEMENT.resources
        assert [spec.name for spec in applicable(workload, *on)] == [SPEC.name]
        here = local_placement(1)
        names = {spec.name for spec in applicable(workload, here.target, here.resources)}
        assert names and SPEC.name not in names


def test_its_type_is_known_as_long_as_the_package_is_there() -> None:
    assert element_type(EXTENDED.name).numpy == np.dtype(np.longdouble)
    with pytest.raises(InternalError, match="unknown element type 'shortfloat'"):
        element_type("shortfloat")
