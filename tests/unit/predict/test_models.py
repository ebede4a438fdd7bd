"""Trees under an overhead, Gaussian processes, devices from datasheets, samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.records.predictor_tables import SHEETS, write_sheets
from tilewright.core.errors import ModelError
from tilewright.predict.base import Features, known_capability, read_datasheets
from tilewright.predict.processes import Inputs, Prior, regression
from tilewright.predict.regressors import Trees
from tilewright.predict.transfer import device_weights, likely_overhead, regret, work_of

OVERHEAD_S = 30e-6


def facts(rows: int = 400) -> tuple[Features, np.ndarray]:
    """Rows whose utilisation steps from 0.2 to 0.8, and their times."""
    random = np.random.default_rng(3)
    values = random.uniform(0, 1, (rows, 3))
    scale = np.exp(random.uniform(-14, -6, rows))
    time_s = OVERHEAD_S + scale / np.where(values[:, 0] > 0.5, 0.8, 0.2)
    return Features(names=("a", "b", "c"), values=values, scale=scale), time_s


def test_trees_find_the_utilisation_beneath_the_overhead() -> None:
    known, time_s = facts()
    trees = Trees(rounds=150, rate=0.1, depth=3, least_weight=1, column_share=1)
    work_s, share = work_of(time_s, OVERHEAD_S)
    margin = np.log(known.scale / work_s)
    fitted = trees.fit(known.values, margin, 0, share**2)
    asked = np.array([[0.1, 0.5, 0.5], [0.9, 0.5, 0.5]])
    assert np.exp(fitted.margin(asked)) == pytest.approx([0.2, 0.8], rel=0.05)
    predicted = OVERHEAD_S + known.scale * np.exp(-fitted.margin(known.values))
    assert np.mean(np.abs(predicted / time_s - 1)) < 0.02
    again = trees.fit(known.values, margin, 0, share**2)
    assert np.array_equal(again.margin(known.values), fitted.margin(known.values))


def test_threads_reach_the_trees_where_there_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    import xgboost

    used: list[int] = []
    train = xgboost.train

    def watched(parameters: dict[str, Any], *rest: Any, **named: Any) -> Any:
        used.append(parameters["nthread"])
        return train({**parameters, "nthread": 1}, *rest, **named)

    monkeypatch.setattr(xgboost, "train", watched)
    for rows in (400, 5000, 8000):
        known, time_s = facts(rows)
        margin = np.log(known.scale / time_s)
        Trees(rounds=1, threads=3).fit(known.values, margin, 0)
    assert used == [1, 2, 3]


def test_values_of_any_size_are_fitted() -> None:
    random = np.random.default_rng(2)
    inputs = Inputs(near=random.standard_normal((15, 2)), linear=np.zeros((15, 1)))
    for size in (1e-12, 1e12):
        values = size * random.standard_normal(15)
        found, left_out = regression(inputs, np.arange(15), values, np.ones(15), Prior())
        assert np.isfinite(found).all() and np.isfinite(left_out).all()


def test_known_rows_are_met_and_a_trend_is_carried_on() -> None:
    random = np.random.default_rng(1)
    linear = random.uniform(-1, 1, (40, 1))
    inputs = Inputs(near=random.standard_normal((40, 2)), linear=np.vstack([linear[:39], [[3.0]]]))
    values = 0.5 * inputs.linear[:, 0]
    found, left_out = regression(inputs, np.arange(39), values[:39], np.ones(39), Prior())
    assert np.abs(found[:39] - values[:39]).max() < 0.05
    assert found[39] == pytest.approx(1.5, abs=0.3), "far outside, where only the trend says"
    assert np.abs(left_out).max() < 0.2


def test_device_weights_add_up_and_favour_the_like(tmp_path: Path) -> None:
    sheets = list(read_datasheets(write_sheets(tmp_path / "s.json")).values())
    weights = device_weights(sheets[0], sheets[1:])
    assert weights.sum() == pytest.approx(1)
    text = json.dumps(
        [
            {**SHEETS[0], "device": name, "peak_fp32_gflop_s": peak}
            for name, peak in (("Tesla T4", 8000), ("Tesla V100", 4000), ("Tesla P4", 8000))
        ]
    )
    (tmp_path / "named.json").write_text(text)
    t4, v100, p4 = read_datasheets(tmp_path / "named.json").values()
    assert (t4.capability, v100.capability, p4.capability) == (7.5, 7.0, 6.1)
    same, ridge, generation = device_weights(t4, [t4, v100, p4])
    assert same > ridge and same > generation


def test_names_of_devices() -> None:
    assert known_capability("NVIDIA A100-PCIE-40GB") == 8.0
    assert known_capability("Tesla P40") == 6.1
    assert known_capability("AMD Instinct MI250X") == 0


def test_likely_overhead_lies_among_the_known() -> None:
    assert likely_overhead([1e-5, 1e-5, 3e-5]) == pytest.approx(1e-5)
    assert likely_overhead([0.0, 0.0]) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "no JSON"),
        ("{}", "no list"),
        ("[1]", "no object with a device"),
        ('[{"device": "a"}]', "memory_bandwidth_gb_s"),
        (json.dumps([{**SHEETS[0], "multiprocessors": 0}]), "multiprocessors above zero"),
        (json.dumps([SHEETS[0], SHEETS[0]]), "two datasheets"),
    ],
)
def test_bad_datasheets(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ModelError, match=says):
        read_datasheets(tmp_path / "s.json")


def test_missing_datasheets(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        read_datasheets(tmp_path / "none.json")


def test_regret_counts_samples_and_guesses_and_skips_failures() -> None:
    target = np.array([4.0, 2.0, np.nan, 1.0, 3.0])
    predicted = np.array([4.0, 2.0, 0.5, 3.0, 3.5])
    assert regret(predicted, target, np.array([0]), 1) == 3
    assert regret(predicted, target, np.array([0]), 2) == 1
    assert regret(predicted, target, np.array([0]), 3) == 0
    assert regret(predicted, target, np.array([3]), 0) == 0


@pytest.mark.parametrize("far_off", [40.0, 1 / 40])
def test_an_error_counts_however_large_it_is(far_off: float) -> None:
    slow = np.arange(900) % 3 == 0
    values = slow[:, None].astype(float)
    trees = Trees(rounds=100, rate=0.1, depth=2, least_weight=1.0)
    time_s = np.where(slow, far_off, 1.0)
    fitted = trees.fit(values, -np.log(time_s), 0)
    np.testing.assert_allclose(np.exp(-fitted.margin(values)), time_s, rtol=0.1)
