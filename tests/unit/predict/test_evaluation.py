"""How predictors are judged on what they have not seen, and what their cards warn of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import Event, Note, discard
from tilewright.core.predictions import Covered, EvaluateRow
from tilewright.predict.base import Features
from tilewright.predict.evaluation import (
    ALL,
    OPERATOR_ALONE,
    Assessment,
    EvaluateRequest,
    HeldOut,
    Learnt,
    card,
    cross_validated,
    evaluated,
    learnt_kernels,
    together,
    unseen_networks,
)
from tilewright.predict.family_models import Predictions, TrainingSet


def held(measured: list[float], predicted: list[float], reach: float = 0.1, group: str = "g"):
    return HeldOut(
        family="f",
        target="latency_s",
        unit="s",
        measured=np.array(measured),
        predicted=np.array(predicted),
        reach=np.full(len(measured), reach),
        groups=np.array([group] * len(measured), dtype=object),
    )


def data(rows: int = 12, **named: Any) -> TrainingSet:
    """Rows whose only feature is their number; three after the other are one configuration."""
    fields: dict[str, Any] = {
        "family": "f",
        "features": Features(
            names=("number",), values=np.arange(rows)[:, None] * 1.0, scale=np.ones(rows)
        ),
        "target": np.arange(1, rows + 1) * 1.0,
        "configurations": np.arange(rows) // 3,
        "groups": np.array(["x", "y"] * (rows // 2), dtype=object),
        "data_hash": "h",
    }
    return TrainingSet(**fields | named)


class Mean:
    """Says the mean of what it learnt from; `seen` keeps the numbers of those rows."""

    seen: list[list[int]]

    def __init__(self) -> None:
        self.seen = []

    def fit(self, known: TrainingSet) -> Any:
        self.seen.append(known.features.values[:, 0].astype(int).tolist())
        mean = float(known.target.mean())

        def predict(asked: Features) -> Predictions:
            count = len(asked)
            return Predictions(
                predicted=np.full(count, mean),
                reach=np.full(count, 0.5),
                outside=np.zeros(count, bool),
            )

        return SimpleNamespace(predict=predict)


def test_errors_of_a_group() -> None:
    """Predictions that are off by 0, 4, 9, 19 and 60 %; the intervals are of 10 % each way."""
    found = held([100.0] * 5, [100.0, 104.0, 91.0, 119.0, 160.0], reach=np.log(1.1)).row("g")
    assert (found.family, found.target, found.group, found.n) == ("f", "latency_s", "g", 5)
    assert found.mape == pytest.approx(0.184)
    assert (found.median_ape, found.p90_ape) == pytest.approx((0.09, 0.19 + 0.6 * 0.41))
    assert (found.within_5, found.within_10, found.within_20) == pytest.approx((0.4, 0.6, 0.8))
    assert found.coverage_90 == pytest.approx(0.6)
    assert found.spearman is None, "all measured alike"
    assert held([1.0, 2.0, 3.0], [5.0, 4.0, 9.0]).row("g").spearman == pytest.approx(0.5)


def test_parts_together_keep_their_order() -> None:
    whole = together([held([1.0, 2.0], [3.0, 4.0], 0.1, "a"), held([5.0], [6.0], 0.2, "b")])
    assert whole.measured.tolist() == [1, 2, 5] and whole.predicted.tolist() == [3, 4, 6]
    assert whole.reach.tolist() == [0.1, 0.1, 0.2] and whole.groups.tolist() == ["a", "a", "b"]
    parts = whole.by_group(["b", "a"])
    assert [part.measured.tolist() for part in parts.values()] == [[5], [1, 2]]


def test_no_configuration_is_predicted_by_what_saw_it() -> None:
    mean = Mean()
    found = cross_validated(data(), mean.fit, 4, 0)
    assert found.measured.tolist() == data().target.tolist(), "each row once, in their order"
    assert len(mean.seen) == 4
    for seen in mean.seen:
        left_out = sorted(set(range(12)) - set(seen))
        assert len(left_out) == 3 and left_out[0] % 3 == 0 and left_out[2] == left_out[0] + 2
        assert (found.predicted[left_out] == np.mean([n + 1 for n in seen])).all()
    assert (found.unit, found.target) == ("s", "latency_s")
    fewer = Mean()
    cross_validated(data(rows=6), fewer.fit, 5, 0)
    assert len(fewer.seen) == 2, "no part without configurations"


def test_what_a_network_has_nobody_learns_from() -> None:
    """Networks `a` and `b` share row 3; row 11, of no network, is the operator of row 0."""
    mean = Mean()
    members = {"b": np.array([3, 4, 5]), "a": np.array([0, 1, 3]), "c": np.array([7])}
    operators = np.array([*range(11), 0])
    request = EvaluateRequest(split="network", folds=3)
    found = unseen_networks(data(), members, operators, mean.fit, request)
    assert list(found) == ["a", "b", "c"]
    assert found["a"].measured.tolist() == [1, 2, 4] and found["b"].measured.tolist() == [4, 5, 6]
    seen_by = {
        "a": [2, 4, 5, 6, 7, 8, 9, 10],
        "b": [0, 1, 2, 6, 7, 8, 9, 10, 11],
        "c": [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11],
    }
    assert sorted(mean.seen) == sorted(seen_by.values())
    for name, seen in seen_by.items():
        assert (found[name].predicted == np.mean([n + 1 for n in seen])).all(), name
    two = Mean()
    unseen_networks(data(), {"a": members["a"]}, operators, two.fit, request)
    assert two.seen == [seen_by["a"]], "one network alone is left out"


def fine() -> Assessment:
    learnt = Learnt(data=data(), devices=("d",), covers=())
    return Assessment(
        learnt=[learnt], parts={"x": held([1.0], [1.0], group="x"), ALL: held([2.0] * 3, [1.0] * 3)}
    )


def too_few() -> Assessment:
    raise ModelError("2 rows are too few")


def test_of_all_families_those_that_cannot_be_judged_are_told() -> None:
    heard: list[Event] = []
    cases = [("one", too_few), ("other", fine)]
    found = evaluated(EvaluateRequest(), cases, heard.append, ["before"])
    assert found.result.notes == ("before", "one: 2 rows are too few")
    assert [event.message for event in heard if isinstance(event, Note)] == [*found.result.notes]
    assert [row.group for row in found.result.rows] == ["x", ALL] and len(found.result.cards) == 1
    assert found.held_out[0].measured.tolist() == [2, 2, 2], "all rows, where there are such"
    with pytest.raises(ModelError, match="2 rows"):
        evaluated(EvaluateRequest(), [("one", too_few)], discard)
    with pytest.raises(ModelError, match="2 rows"):
        evaluated(EvaluateRequest(family="one"), cases, discard)


@pytest.mark.parametrize("shots", [1, 4])
def test_samples_that_are_too_few_say_nothing(shots: int) -> None:
    with pytest.raises(UsageError, match="0 or at least 5"):
        EvaluateRequest(split="device", shots=shots).require_shots(5)
    for enough in (0, 5):
        EvaluateRequest(split="device", shots=enough).require_shots(5)


def row(group: str, n: int, mape: float = 0.1, coverage: float | None = 0.9) -> EvaluateRow:
    return replace(held([1.0], [1.0]).row(group), n=n, mape=mape, coverage_90=coverage)


def limits(*rows: EvaluateRow) -> tuple[str, ...]:
    return card([Learnt(data=data(), devices=("d",), covers=())], EvaluateRequest(), rows).limits


def test_what_a_card_warns_of() -> None:
    whole = row(ALL, 500)
    assert limits(whole, row("a", 50), row("b", 100, 0.15, 0.86)) == ()
    assert limits(whole, row("a", 49, 0.9, 0.1)) == (
        "a: 49 rows are too few for more than a rough idea of the errors.",
    )
    assert limits(whole, row("a", 100, 0.1, 0.8)) == (
        "a: only 80 % of the measured values lie inside their 90 % intervals, so these are too "
        "narrow.",
    )
    assert limits(whole, row("a", 99, 0.1, 0.8)) == (), "too few to judge intervals by"
    assert limits(whole, row("a", 60, 0.25)) == (
        "a: the mean error is 2.5 times that of all rows.",
    )
    assert limits(row(ALL, 20), row("a", 60)) == (), "all rows are what there is"
    assert limits(whole, row(OPERATOR_ALONE, 10, 9.0, 0.0)) == ()
    assert limits(row("a", 100, 0.1, None)) == ()


def test_the_card_of_several_classes_is_of_all_their_rows() -> None:
    first = Learnt(
        data=data(),
        devices=("one",),
        covers=[Covered(name="stride", low=2, high=3), Covered(name="batch", low=1, high=1)],
        measured=("2030-02-01", "2030-02-03"),
        limits=("shared", "own"),
    )
    second = Learnt(
        data=data(rows=6, data_hash="k"),
        devices=("two",),
        covers=[Covered(name="stride", low=1, high=2)],
        measured=("2030-01-05", "2030-02-02"),
        limits=("shared",),
    )
    both = card([first, second], EvaluateRequest(folds=3, seed=8), [row(ALL, 60)])
    assert both.devices == ("one", "two")
    assert (both.rows, both.configurations, both.folds, both.seed) == (18, 6, 3, 8)
    assert (both.measured_from, both.measured_until) == ("2030-01-05", "2030-02-03")
    assert both.covers == (
        Covered(name="stride", low=1, high=3),
        Covered(name="batch", low=1, high=1),
    )
    assert both.limits == ("shared", "own")
    alone = card([first], EvaluateRequest(), [])
    assert alone.data_hash == "h" and both.data_hash not in ("h", "k")
    undated = card([first, replace(second, measured=None)], EvaluateRequest(), [])
    assert (undated.measured_from, undated.measured_until) == (None, None)


def test_what_kernels_cover_is_told_in_their_own_sizes() -> None:
    """Features of sizes are logarithms, those of bytes of one more; a few are as they are."""
    named = {
        "op.flop": [10.0, 12.0],
        "op.data_bytes": np.log2([4097.0, 8193.0]),
        "op.stride": [1.0, 2.0],
        "op.out_height": np.log2([14.0, 56.0]),
        "op.innermost": [np.nan, 5.0],
        "op.batch": [np.nan, np.nan],
        "op.element_bytes": [4.0, 4.0],
    }
    features = Features(
        names=tuple(named), values=np.column_stack([*named.values()]), scale=np.ones(2)
    )
    rows = data(rows=2, features=features, target=np.ones(2), configurations=np.arange(2))
    found = learnt_kernels(replace(rows, device_class="cpu-2t"), ("a", "b"))
    assert {c.name: (c.low, c.high) for c in found.covers} == {
        "flop": (1024, 4096),
        "data_bytes": (4096, 8192),
        "stride": (1, 2),
        "out_height": (14, 56),
        "innermost": (32, 32),
    }
    assert found.devices == ("cpu-2t",) and found.measured == ("a", "b")
    assert "kernels of these implementations: x, y. On another class" in found.limits[0]
    assert found.limits[-1].startswith("All measured results have 4-byte elements;")
    values = features.values.copy()
    values[1, -1] = 1.0
    mixed = learnt_kernels(replace(rows, features=replace(features, values=values)), None)
    assert len(mixed.limits) == len(found.limits) - 1
