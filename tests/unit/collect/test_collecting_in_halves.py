"""What `collect --precision bfloat16` measures: kernels on halves, as networks have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from helpers.fakes.opened_measurer import Opened
from helpers.fakes.placements import altered
from tilewright.collect.collector import Collector
from tilewright.collect.design import Design, collect_request
from tilewright.collect.family_plan import carried
from tilewright.collect.planned import candidates_of
from tilewright.core.budget import parse_budget
from tilewright.core.errors import UsageError
from tilewright.core.events import discard
from tilewright.core.forms import channel_block
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.hardware.features import units_of
from tilewright.kernels.registry import implementation
from tilewright.measure.circumstances import PROBE, Circumstances
from tilewright.models import ModelOptions
from tilewright.models.loading import load_outline
from tilewright.plan.preparation import prepare, prepare_outline
from tilewright.predict.collected import family_of
from tilewright.predict.modelling import predictors_of
from tilewright.store import open_store
from tilewright.store.database import SqliteStore
from tilewright.testing.implementations import made_up_placement

HALVES = ModelOptions(precision="bfloat16")
_FEATURES = ("avx512bf16",)
_WIDE = made_up_placement(64)
_ON = altered(
    _WIDE, tvm=json.dumps({"kind": "llvm"}), features=_FEATURES, units=units_of(_FEATURES, 64)
)
SINGLES, ON = (replace(_ON, precision=name) for name in ("float32", "bfloat16"))
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 16, 12, 12] x) => (float[1, 32, 12, 12] y)
<float[32, 16, 3, 3] a = {0}, float[32, 32, 3, 3] b = {0}> {
  h = Conv <pads = [1, 1, 1, 1]> (x, a)
  g = Relu(h)
  y = Conv <pads = [1, 1, 1, 1]> (g, b)
}"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "c.db") as opened:
        yield opened


@pytest.fixture
def network(tmp_path: Path) -> str:
    model = onnx.parser.parse_model(TEXT.replace(" = {0}", ""))
    for name, shape in (("a", (32, 16, 3, 3)), ("b", (32, 32, 3, 3))):
        tensor = next((t for t in model.graph.initializer if t.name == name), None)
        tensor = model.graph.initializer.add() if tensor is None else tensor
        ones = [1.0] * (shape[0] * shape[1] * 9)
        tensor.CopyFrom(onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, shape, ones))
    onnx.save(model, tmp_path / "images.onnx")
    return str(tmp_path / "images.onnx")


def collected(store: SqliteStore, place: Any, *families: str, models: Any = ()) -> Opened:
    measurer = Opened(lambda _w, _c: 1e-4)
    request = collect_request(
        families, models, samples=8, design=Design(), budget=parse_budget("1000"),
        options=ModelOptions(precision=place.precision),
    )  # fmt: skip
    Collector(
        places=(Circumstances(usual=place),),
        store=store,
        events=discard,
        measurers=lambda _place, _seed: measurer,  # pyright: ignore[reportArgumentType]
    ).run(request)
    return measurer


def stored_types(candidate: Candidate) -> tuple[str | None, ...]:
    return tuple(form.dtype for form in candidate.forms)


def test_kernels_of_a_network_are_those_that_it_has_in_halves(
    store: SqliteStore, network: str
) -> None:
    asked = collected(store, ON, models=(network,)).asked
    tasks = prepare(network, HALVES, ON).tasks
    for task in tasks.values():
        kinds = {stored_types(c) for key, c in asked if key == task.workload.key}
        assert tuple(form.dtype for form in task.forms) in kinds
    assert "bfloat16" in {kind for _, c in asked for kind in stored_types(c)}
    assert "conv2d_bfloat16" in {c.implementation for _, c in asked}


def test_blocks_are_as_wide_as_in_networks_of_float16(store: SqliteStore, network: str) -> None:
    wide = altered(
        _WIDE, tvm=json.dumps({"kind": "llvm"}), features=("avx512fp16",),
        units=units_of(("avx512fp16",), 64),
    )  # fmt: skip
    place = replace(wide, precision="float16")
    tasks = prepare(network, ModelOptions(precision="float16"), place).tasks.values()
    assert {channel_block(form) for task in tasks for form in task.forms} == {0, 32}
    predictors = predictors_of(place, store, discard)
    for task in tasks:
        assert candidates_of(task, place, predictors, 0, (0, ""))[0].forms == task.forms
    text = "op:conv2d[c=64,h=14,w=14,out=128,k=1]"
    (alone,) = prepare_outline(text, ModelOptions(precision="float16"), place).tasks.values()
    assert not any(map(channel_block, alone.forms))
    first = candidates_of(alone, place, predictors, 0, (0, ""))[0]
    assert [channel_block(form) for form in first.forms] == [32, 0, 32]


def test_an_operator_alone_reads_and_writes_halves(store: SqliteStore) -> None:
    asked = collected(store, ON, "dense").asked
    own = [c for key, c in asked if key.startswith("dense")]
    assert len(own) == 8 and "dense_bfloat16" in {c.implementation for c in own}
    assert ("bfloat16", None, "bfloat16") in {stored_types(c)[:2] + stored_types(c)[-1:]
                                              for c in own}  # fmt: skip
    again = collected(store, ON, "dense")
    assert not again.asked, "a repeated command measures nothing anew"


def test_rows_of_halves_and_of_singles_do_not_mix(store: SqliteStore) -> None:
    """They share the operator's key; the candidate says in which form and by what it ran."""
    halves = {c for key, c in collected(store, ON, "dense").asked if key.startswith("dense")}
    singles = {c for key, c in collected(store, SINGLES, "dense").asked if key.startswith("dense")}
    assert halves.isdisjoint(singles)
    assert all(set(stored_types(c)) == {None} for c in singles)
    assert not any("bfloat16" in c.implementation for c in singles)


def test_predictors_learn_from_rows_in_halves(store: SqliteStore) -> None:
    collected(store, ON, "dense")
    for place in (ON, SINGLES):
        predictors = predictors_of(place, store, discard)
        rows = [row for row in predictors.own_rows if family_of(row.workload) == "dense"]
        assert any(row.candidate.implementation == "dense_bfloat16" for row in rows)
        known = predictors.measured("dense")
        assert all(
            (found := known.estimate(row.workload, row.candidate)) and found.source == "exact"
            for row in rows
        )


def test_the_machines_speed_is_probed_in_single_precision(store: SqliteStore) -> None:
    (probe,) = {c for key, c in collected(store, ON, "relu").asked if key.startswith("conv2d")}
    assert set(stored_types(probe)) == {None} and "bfloat16" not in probe.implementation
    assert PROBE.startswith("op:conv2d")


def test_settings_are_carried_to_neighbours_in_halves(store: SqliteStore) -> None:
    asked = collected(store, ON, "dense").asked
    key, candidate = next((k, c) for k, c in asked if c.implementation == "dense_bfloat16")
    workload = store.workload(key)
    assert isinstance(workload, Workload)
    assert carried(candidate, workload, ON) == candidate
    assert implementation(candidate.implementation).name == "dense_bfloat16"


def test_precisions_that_operators_alone_do_not_have(network: str) -> None:
    def asked(precision: Any, *families: str, models: Any = ()) -> Any:
        return collect_request(
            families, models, samples=8, design=Design(), budget=parse_budget("10"),
            options=ModelOptions(precision=precision),
        )  # fmt: skip

    for families, models, precision in (
        ((), (network,), "auto"),
        (("dense",), (), "int8"),
        (("dense",), (network,), "int8"),
    ):
        with pytest.raises(UsageError, match=f"measured in {precision}"):
            asked(precision, *families, models=models)
    keys = {asked(name, models=(network,)).key for name in ("float32", "bfloat16", "int8")}
    assert len(keys) == 3, "each has a journal and a budget of its own"
    with pytest.raises(UsageError, match="one precision, not in int8"):
        load_outline("op:relu[shape=4]", ModelOptions(precision="int8"))
