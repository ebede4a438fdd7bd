"""Times on numbers of cores that nobody measured follow from those that somebody did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from helpers.records.predictor_rows import known_store, rows_of_convolutions
from tilewright.core.errors import TargetError
from tilewright.core.events import Event, Note
from tilewright.core.records import Placement
from tilewright.core.targets import threads_alone
from tilewright.hardware.device import local_placement
from tilewright.measure.targeting import foreseen_placements
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.predict.core_counts import (
    CarriedForecaster,
    CoreForecaster,
    core_forecaster,
    forecaster_on_cores,
)
from tilewright.predict.core_curves import CoreCurves, CurveTable
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import predictors_of
from tilewright.predict.timed_on_cores import (
    FILE,
    TREES,
    TimedOnCores,
    curve_model,
    learnt,
    read_timed,
    write_timed,
)
from tilewright.store.base import Store

HEARD: list[Event] = []


@cache
def timed() -> list[TimedOnCores]:
    return read_timed(FILE)


@cache
def model() -> FamilyModel:
    rows = [one for one in timed() if one.cores in (2, 4, 16)][::3]
    return learnt(rows, PLACEMENT.target, replace(TREES, rounds=60, rate=0.15, members=2))


def curves(kernels: list[Kernel], cores: int = 16) -> CoreCurves:
    target = replace(PLACEMENT.target, cores=cores)
    return CoreCurves(table=CurveTable(kernels=kernels, target=target), model=model())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    HEARD.clear()
    with known_store(tmp_path / "t.db") as found:
        yield found


@pytest.fixture
def known(store: Store, monkeypatch: pytest.MonkeyPatch) -> CoreForecaster:
    def learnt_before(_: object) -> FamilyModel:
        return model()

    monkeypatch.setattr("tilewright.predict.core_counts.curve_model", learnt_before)
    return core_forecaster(PLACEMENT, store, HEARD.append)


def kernels() -> list[Kernel]:
    return [(row.workload, row.candidate) for row in rows_of_convolutions()[:4]]


def test_what_was_measured_on_as_many_cores_is_the_answer(known: CoreForecaster) -> None:
    usual = PLACEMENT.resources.threads
    (found,) = known.kernels(kernels()[:1], [usual])[usual]
    assert found.source == "exact"
    assert found.latency_s == pytest.approx(rows_of_convolutions()[0].latency_s)


def test_all_numbers_of_cores_have_one_model_of_curves(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[object] = []

    def counted(_: object, target: object) -> FamilyModel:
        fits.append(target)
        return model()

    monkeypatch.setattr("tilewright.predict.timed_on_cores.learnt", counted)
    alike = (altered(PLACEMENT, threads=8), altered(PLACEMENT, class_key="other", cores=8))
    for place in (PLACEMENT, *alike, altered(PLACEMENT, vector_bytes=16)):
        predictors = replace(predictors_of(place, store, HEARD.append), cache=tmp_path / "c")
        found = curve_model(predictors)
        assert found.device_class == found.origin == str(place.key)
    assert len(fits) == 2, "the last one's estimates are others"


def test_other_numbers_are_carried_over_with_wider_intervals(known: CoreForecaster) -> None:
    usual = PLACEMENT.resources.threads
    found = known.kernels(kernels(), [usual, 16, 64])
    exact, further, beyond = found.values()
    for one, several, many in zip(exact, further, beyond, strict=True):
        assert several.source == "interpolated"
        assert several.high_s / several.low_s > one.high_s / one.low_s
        assert many.outside and many.high_s / many.low_s > several.high_s / several.low_s


def test_between_two_measured_numbers_the_answer_goes_through_both(known: CoreForecaster) -> None:
    kernel, usual = kernels()[0], PLACEMENT.resources.threads
    at_16 = rows_of_convolutions()[0].latency_s / 3
    store = known.forecaster.predictors.store
    (here,) = store.stored_measurements(placement=PLACEMENT.key, workload_key=kernel[0].key)[:1]
    samples = tuple(at_16 for _ in here.samples_s)
    there = replace(here, candidate=kernel[1], resources=threads_alone(16), samples_s=samples)
    store.add([there])
    found = known.kernels([kernel], [usual, 16])
    between = known.kernels([kernel], [6, 16])
    assert found[16][0].source == "exact"
    assert found[16][0].latency_s == pytest.approx(at_16)
    assert found[usual][0].latency_s > between[6][0].latency_s > at_16


def test_a_time_carried_over_and_back_is_the_time_again() -> None:
    known = curves(kernels())
    times_s = np.array([1e-3, 5e-4, 2e-4, 1e-4])
    there_s = known.carried_s(times_s, 1, (4,))[4]
    np.testing.assert_allclose(known.carried_s(there_s, 4, (1,))[1], times_s, rtol=0.25)
    np.testing.assert_allclose(known.carried_s(times_s, 4, (4,))[4], times_s)


def test_more_cores_take_longer_by_what_starting_them_takes_at_most() -> None:
    known, counts = curves(kernels()), (1, 2, 3, 4, 6, 8, 12, 16, 24, 64)
    for size_s in (1e-6, 1e-4, 1e-2):
        found = known.carried_s(np.full(4, size_s), 1, counts)
        steps = np.diff(np.array([found[cores] for cores in counts]), axis=0)
        assert steps.max() <= 5e-6


def test_curves_of_operators_that_were_not_learnt_are_near_the_measured_ones() -> None:
    """Half the error of the one ratio that all kernels have in the median."""
    rows = [one for one in timed() if one.machine == 16 and one.cores == 16][1::3]
    known = curves([(one.row.workload, one.row.candidate) for one in rows])
    alone_s = np.array([one.alone_s for one in rows])
    true = np.log(np.array([one.row.latency_s for one in rows]) / alone_s)
    said = np.log(known.carried_s(alone_s, 1, (16,))[16] / alone_s)
    plain = np.median(true)
    assert np.median(np.abs(said - true)) < 0.6 * np.median(np.abs(plain - true))


def test_a_file_of_timed_kernels_reads_as_written(tmp_path: Path) -> None:
    write_timed(tmp_path / "some.parquet", timed()[:5])
    assert read_timed(tmp_path / "some.parquet") == timed()[:5]


def test_modes_have_the_forms_of_the_plan_and_more_cores_are_faster(known: CoreForecaster) -> None:
    network = prepare("op:conv2d[c=64,h=56,w=56,out=64,k=3,pad=1]", ModelOptions(), PLACEMENT)
    found = known.modes(network, (1, 2, 8))
    assert list(found) == [1, 2, 8]
    (key,) = {key for modes in found.values() for key in modes}
    times_s = [modes[key].estimate.latency_s for modes in found.values()]
    assert times_s == sorted(times_s, reverse=True) and times_s[0] > 1.3 * times_s[-1]
    assert len({modes[key].candidate.forms for modes in found.values()}) == 1


def test_a_number_that_was_measured_is_answered_directly(known: CoreForecaster) -> None:
    store = known.forecaster.predictors.store
    direct = forecaster_on_cores(PLACEMENT, PLACEMENT, store, HEARD.append)
    other = forecaster_on_cores(PLACEMENT, known.placement(16), store, HEARD.append)
    assert not isinstance(direct, CarriedForecaster)
    found = other.network(prepare("zoo:mlp", ModelOptions(), other.predictors.placement), "default")
    assert found.threads == 16
    notes = [event.message for event in HEARD if isinstance(event, Note)]
    assert any("on 16 cores" in note and "carried over" in note for note in notes)


def test_a_cpu_that_is_here_is_foreseen_with_more_threads_than_it_has() -> None:
    def opened(threads: int) -> tuple[Placement, Placement]:
        return foreseen_placements("llvm", None, threads, lambda: local_placement(threads))

    usual, asked = opened(4096)
    assert usual.key == local_placement().key
    assert (asked.device, asked.resources) == (usual.device, threads_alone(4096))
    assert opened(1) == (local_placement(), local_placement(1))
    with pytest.raises(TargetError, match="cannot use 0 threads"):
        opened(0)
