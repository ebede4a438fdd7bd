"""A model of kernels learns from schedules, knows its limits, and survives its file."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.records.predictor_kernels import (
    PEAKS,
    SMALL,
    candidates,
    convolution,
    made_up_s,
    relu,
    rows,
    score,
)
from tilewright.core.errors import ModelError
from tilewright.predict.collected import family_of, shipped_data, training_set
from tilewright.predict.evaluation import cross_validated
from tilewright.predict.family_models import (
    FamilyModel,
    TrainingSet,
    fit_kernels,
    from_json,
    to_json,
)
from tilewright.predict.kernel_features import Kernel, kernel_table, operator_columns


@pytest.fixture(scope="module")
def data() -> TrainingSet:
    return training_set(rows(), "conv2d", PLACEMENT, PEAKS)


@pytest.fixture(scope="module")
def model(data: TrainingSet) -> FamilyModel:
    return fit_kernels(data, trees=SMALL)


def test_facts_of_the_schedule_are_worth_more_than_those_of_the_operator(
    data: TrainingSet,
) -> None:
    every = cross_validated(data, partial(fit_kernels, trees=SMALL), 3, 0)
    assert sorted(every.measured) == sorted(data.target)
    names = [name for name in data.features.names if name.startswith("op.")]
    alone = cross_validated(data, partial(fit_kernels, trees=SMALL, columns=names), 3, 0)
    error = score(every.predicted, every.measured).mape
    assert error < 0.2
    assert error < 0.6 * score(alone.predicted, alone.measured).mape


def test_intervals_hold_what_they_say(data: TrainingSet) -> None:
    found = cross_validated(data, partial(fit_kernels, trees=SMALL), 3, 0)
    covered = score(found.predicted, found.measured, found.reach).coverage_90
    assert covered is not None and covered > 0.75


def test_an_operator_unlike_all_that_was_seen_is_marked_and_doubted(model: FamilyModel) -> None:
    usual, huge = convolution(16, 32, 14), convolution(512, 512, 64)
    kernels = [(w, candidates(w, 1)[0]) for w in (usual, huge)]
    said = model.predict(kernel_table(kernels, PLACEMENT, PEAKS))
    assert list(said.outside) == [False, True]
    assert said.reach[1] == pytest.approx(2 * said.reach[0])
    assert said.predicted[1] > said.predicted[0]


def test_what_was_learnt_elsewhere_is_doubted(model: FamilyModel) -> None:
    workload = convolution(16, 32, 14)
    table = kernel_table([(workload, candidates(workload, 1)[0])], PLACEMENT, PEAKS)
    own = model.predict(table)
    borrowed = replace(model, device_class="another").predict(table)
    assert borrowed.reach[0] > own.reach[0]


def test_a_few_samples_correct_the_model_of_another_class(
    data: TrainingSet, model: FamilyModel
) -> None:
    slower = np.where(np.arange(len(data)) % 2, 1.8, 2.2)
    there = replace(data, device_class="new", target=data.target * slower)
    order = np.random.default_rng(0).permutation(len(data))
    samples, rest = there.part(order[:24]), there.part(order[24:])
    corrected = fit_kernels(samples, base=model)
    found = {
        name: score(one.predict(rest.features).predicted, rest.target).mape
        for name, one in (("base", model), ("corrected", corrected))
    }
    assert found["base"] > 0.4 and found["corrected"] < 0.5 * found["base"]
    back = from_json(json.loads(json.dumps(to_json(corrected))))
    np.testing.assert_array_equal(
        back.predict(rest.features).predicted, corrected.predict(rest.features).predicted
    )
    with pytest.raises(ModelError, match="9 rows"):
        fit_kernels(there.part(order[:9]), base=model)


def test_a_model_survives_json(model: FamilyModel, data: TrainingSet) -> None:
    back = from_json(json.loads(json.dumps(to_json(model))))
    features = data.features
    assert np.allclose(back.predict(features).predicted, model.predict(features).predicted)
    assert (back.family, back.data_hash, back.rows) == (model.family, model.data_hash, model.rows)
    assert np.array_equal(back.lowest, model.lowest)


def test_five_rows_teach_nothing() -> None:
    few = training_set(rows()[:5], "conv2d", PLACEMENT, PEAKS)
    with pytest.raises(ModelError, match="5 rows") as caught:
        fit_kernels(few, trees=SMALL)
    assert "collect" in (caught.value.hint or "")


def test_one_configuration_teaches_nothing() -> None:
    workload = convolution(16, 32, 14)
    every = [row for row in rows(24, 60) if row.workload == workload]
    same = training_set(every, "conv2d", PLACEMENT, PEAKS)
    assert len(same) >= 40
    with pytest.raises(ModelError, match="of 1 configurations"):
        fit_kernels(same, trees=SMALL)


def test_constant_columns_and_duplicates_do_no_harm(data: TrainingSet) -> None:
    twice = training_set([*rows(), *rows()], "conv2d", PLACEMENT, PEAKS)
    assert len(twice) == 2 * len(data)
    constant = [name for name in data.features.names if name.endswith("kernel_height")]
    assert constant
    model = fit_kernels(twice, trees=SMALL)
    assert np.isfinite(model.predict(twice.features).predicted).all()


def test_equal_rows_have_equal_hashes_in_any_order(data: TrainingSet) -> None:
    turned = training_set(rows()[::-1], "conv2d", PLACEMENT, PEAKS)
    assert turned.data_hash == data.data_hash
    other = [replace(row, latency_s=2 * row.latency_s) for row in rows()]
    assert training_set(other, "conv2d", PLACEMENT, PEAKS).data_hash != data.data_hash


def test_a_table_has_the_facts_of_each_kernel_alone() -> None:
    """Computed together or one by one, facts are the same."""
    kernels = [(row.workload, row.candidate) for row in rows(6, 4)]
    together = kernel_table(kernels, PLACEMENT, PEAKS)
    for number, kernel in enumerate(kernels):
        alone = kernel_table([kernel], PLACEMENT, PEAKS).aligned(together.names)[0]
        assert np.array_equal(alone, together.values[number], equal_nan=True)


def test_facts_do_not_depend_on_what_else_is_asked_about() -> None:
    """Measured kernels of every family and implementation that came along, in one table."""
    shipped = shipped_data()[0]
    kept: dict[tuple[str, str], int] = {}
    kernels: list[Kernel] = []
    for row in shipped.rows[::7]:
        kind = (family_of(row.workload), row.candidate.implementation)
        kept[kind] = kept.get(kind, 0) + 1
        if kept[kind] <= 4:
            kernels.append((row.workload, row.candidate))
    assert len(kept) > 10
    together = kernel_table(kernels, shipped.placement, shipped.peaks)
    for number, kernel in enumerate(kernels):
        alone = kernel_table([kernel], shipped.placement, shipped.peaks)
        found = alone.aligned(together.names)[0]
        assert set(alone.names) <= set(together.names)
        assert np.allclose(found, together.values[number], rtol=1e-12, equal_nan=True)
        assert alone.scale[0] == together.scale[number]


def test_padding_and_what_follows_from_it_are_facts() -> None:
    without, padded = convolution(16, 16, 14, padding=0), convolution(16, 16, 14)
    found = operator_columns([without, padded], PLACEMENT)
    differing = {name for name, column in found.items() if column[0] != column[1]}
    assert {"padding", "border_share", "out_pixels", "flop", "halo"} <= differing


def test_families() -> None:
    assert family_of(convolution(16, 32, 14)) == "conv2d"
    assert family_of(relu(10)) == "elementwise"


def test_the_made_up_times_depend_on_the_knob() -> None:
    workload = convolution(16, 32, 14)
    assert len({made_up_s(workload, c) for c in candidates(workload, 8)}) > 1
