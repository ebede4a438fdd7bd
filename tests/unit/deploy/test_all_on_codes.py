"""With a type for each tensor, the network with all on codes races where the error allows it."""

from __future__ import annotations

from dataclasses import replace
from math import log10
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.placements import altered
from helpers.networks.quantizable import images, saved, written
from tilewright.core.budget import parse_budget
from tilewright.core.events import discard
from tilewright.core.records import NetworkCheck, Placement
from tilewright.deploy.quantizing import Entry, OnCodes, entered
from tilewright.hardware.features import units_of
from tilewright.measure.checking import compare_runs
from tilewright.models import ModelOptions, loading
from tilewright.models.quantizing import Quantizer
from tilewright.plan.code_choice import CodeChoice
from tilewright.plan.mixture import AIM_AGAIN
from tilewright.search.levels import OptimizeRequest
from tilewright.store import open_store
from tilewright.testing.implementations import made_up_placement


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("alone")
    written(made, x=images(8))
    saved(made)
    return made


@pytest.fixture(scope="module")
def whole_db(folder: Path) -> float:
    """The ratio with all on codes."""
    options = ModelOptions(precision="int8", calibration=folder / "inputs.npz")
    quantizer = Quantizer(loading.load(str(folder / "images.onnx")), options)
    file = quantizer.quantized()
    codes, single = map(quantizer.judged, (file.path, quantizer.model.onnx_path))
    return compare_runs(codes, single, quantizer.model.outputs).sqnr_db or 0.0


def placement() -> Placement:
    """A processor with dot products of halves and codes, which need not be this one."""
    features = ("avx512bf16", "avx512vnni")
    on = altered(made_up_placement(64), features=features, units=units_of(features, 64))
    return replace(on, precision="auto")


def racing(folder: Path, decibels: float, **named: Any) -> list[Entry]:
    options = ModelOptions(precision="auto", calibration=folder / "inputs.npz", **named)
    request = OptimizeRequest(
        model=str(folder / "images.onnx"), options=options, budget=parse_budget(0), folder=folder,
        max_error=1.0, least_sqnr_db=decibels, seed=0,
    )  # fmt: skip
    return entered(request, placement(), open_store("memory:"), discard)


def products(entry: Entry) -> set[str]:
    """Those that are on codes."""
    graph = entry.network.graph
    every = [n for n in graph.nodes if n.operator in ("conv2d", "dense")]
    return {n.name for n in every if graph.types[n.output].dtype == "int32"}


def test_it_races_where_it_just_meets_the_error(folder: Path, whole_db: float) -> None:
    found = racing(folder, whole_db - 0.05)
    assert found[0].mixing is not None and not products(found[0])
    *chosen, last = found[1:]
    assert last.mixing is None and products(last) == {"h", "depthwise", "u", "e"}
    assert all(each.mixing is not None and products(each) < products(last) for each in chosen)


def test_it_does_not_race_beyond_the_error_nor_twice(
    folder: Path, whole_db: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(each.mixing is not None for each in racing(folder, whole_db + 0.05))

    def nothing(*_: Any) -> list[str]:
        return []

    monkeypatch.setattr(CodeChoice, "kept", nothing)
    single, chosen = racing(folder, whole_db - 4.0)
    assert single.mixing is not None and chosen.mixing is not None


def test_sets_of_operators_are_compared_by_what_the_race_comes_to_allow(
    folder: Path, whole_db: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes that are seen to make half of what is allowed leave halves 0.45, not 0.8 of half."""
    budgets: list[float] = []
    beside, decibels = CodeChoice.fastest_beside, whole_db - 4.0

    def spying(choice: CodeChoice, kept: Any, budget: float) -> float:
        budgets.append(budget)
        return beside(choice, kept, budget)

    def half(*_: Any) -> NetworkCheck:
        told_db = decibels - 10.0 * log10(0.5)
        return NetworkCheck(max_abs_error=0.0, max_rel_error=0.0, sqnr_db=told_db)

    monkeypatch.setattr(CodeChoice, "fastest_beside", spying)
    monkeypatch.setattr(OnCodes, "_checked", half)
    racing(folder, decibels)
    assert budgets and budgets == [pytest.approx(AIM_AGAIN - 0.5)] * len(budgets)


def test_what_is_kept_is_kept_there_too(folder: Path, whole_db: float) -> None:
    last = racing(folder, whole_db - 0.05, keep="float32:e")[-1]
    assert "e" not in products(last)
