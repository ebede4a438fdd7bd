"""Samples of a new device: as many as wanted, and spread over what there is."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.records.predictor_kernels import PEAKS, SMALL, rows
from tilewright.predict.collected import training_set
from tilewright.predict.family_models import FamilyModel, TrainingSet, fit_kernels
from tilewright.predict.processes import coordinates, informative, most_telling


@cache
def known() -> tuple[TrainingSet, FamilyModel]:
    data = training_set(rows(8, 6), "conv2d", PLACEMENT, PEAKS)
    return data, fit_kernels(data, trees=SMALL)


@pytest.mark.parametrize("count", [1, 5, 48])
def test_different_rows_and_the_same_again(count: int) -> None:
    data, model = known()
    found = informative(model, data.features, count)
    assert len(found) == len(set(found.tolist())) == count
    assert found.tolist() == informative(model, data.features, count).tolist()


def test_more_than_there_are_gives_all() -> None:
    data, model = known()
    assert sorted(informative(model, data.features, 999).tolist()) == list(range(len(data)))


def test_chosen_rows_leave_less_unknown_than_drawn_ones() -> None:
    data, model = known()
    places = coordinates(model, data.features)

    def reach(chosen: np.ndarray) -> float:
        apart = ((places[:, None] - places[chosen][None]) ** 2).sum(-1)
        return float(apart.min(1).mean())

    random = np.random.default_rng(0)
    drawn = [reach(random.permutation(len(data))[:6]) for _ in range(50)]
    assert reach(informative(model, data.features, 6)) < np.median(drawn)


def test_the_most_telling_row_is_the_one_that_others_go_with() -> None:
    covariance = np.eye(4)
    covariance[1, :3] = covariance[:3, 1] = [0.6, 1.0, 0.6]
    noise, weights = np.full(4, 0.1), np.full(4, 0.25)
    assert most_telling(covariance, noise, weights, 2) == [1, 3]
    assert most_telling(covariance, noise, weights, 3, first=[3])[:2] == [3, 1]
    assert sorted(most_telling(covariance, noise, weights, 9)) == [0, 1, 2, 3]
