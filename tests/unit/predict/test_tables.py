"""Predictors judged on tables, with a family and a regressor so simple that answers are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from helpers.records.predictor_tables import SHEETS, write_sheets
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import discard
from tilewright.predict.base import Column, Columns, Datasheet, Family, Features, Floats, Target
from tilewright.predict.evaluation import EvaluateRequest, Evaluation
from tilewright.predict.families import FAMILIES
from tilewright.predict.tables import evaluate_table, measured, read_table, targets_in

ROWS = 30
SLOWER = {"a": 0, "b": 1, "c": 2, "d": 6}
"""How much slower each device is than `a`, as a power of two."""


@dataclass(frozen=True, slots=True)
class Said:
    """Says one margin of all rows."""

    said: float

    def margin(self, values: Floats) -> Floats:
        return np.full(len(values), self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Learns the mean of the margins, whatever the features."""

    members: int = 2
    threads: int = 1

    def fit(self, values: Floats, margin: Floats, seed: int, weight: Floats | None = None) -> Said:
        return Said(float(np.average(margin, weights=weight)))


class Told:
    """Says the first feature of each row."""

    def margin(self, values: Floats) -> Floats:
        return values[:, 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Learns nothing: the first feature is the answer."""

    members: int = 2
    threads: int = 1

    def fit(self, values: Floats, margin: Floats, seed: int, weight: Floats | None = None) -> Told:
        return Told()


def sized(columns: Columns, _sheet: Datasheet) -> Features:
    """One feature, `n`; a microsecond is the natural size of each of `n` elements."""
    n = columns["n"]
    return Features(names=("n",), values=n[:, None], scale=1e-6 * n)


def family(regressor: Any = None, **named: Any) -> Family:
    fields: dict[str, Any] = {
        "name": "toy",
        "operands": (Column(name="n", meaning="elements"),),
        "targets": (Target(column=Column(name="time_ms", meaning="time", unit="ms"), si=1e-3),),
        "features": sized,
        "regressor": regressor or Mean(),
        "roofed": False,
    }
    return Family(**fields | named)


def table(slower: dict[str, int], rows: int = ROWS) -> polars.DataFrame:
    """Devices in turn, row by row, each slower by its power of two."""
    return polars.DataFrame(
        [
            {"device": device, "n": n, "time_ms": 1e-3 * n * 2.0**power}
            for n in range(1, rows + 1)
            for device, power in slower.items()
        ]
    )


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Judges the predictor of a family on a table."""

    def judged(kind: Family, rows: polars.DataFrame, **asked: Any) -> Evaluation:
        monkeypatch.setitem(FAMILIES, "toy", kind)
        rows.write_parquet(tmp_path / "t.parquet")
        request = EvaluateRequest(family="toy", **asked)
        return evaluate_table(tmp_path / "t.parquet", request, discard, threads=1)

    return judged


def powers(found: Evaluation, group: str) -> tuple[float, float]:
    """What is predicted of a device, and the half width of its interval: powers of two beyond the
    times of device `a`, equal for all of its rows."""
    (judged,) = found.held_out
    mine = judged.part(judged.groups == group)
    times_s = mine.measured / 2.0 ** SLOWER[group]
    (predicted,) = set(np.log2(mine.predicted / times_s).round(6))
    (reach,) = set((mine.reach / np.log(2)).round(6))
    return predicted, reach


def test_a_device_left_out_is_the_mean_of_the_others(evaluate: Any) -> None:
    """Without a roofline the others count alike. The interval is the widest that one of them would
    have needed, had it been predicted from the rest: for `a` that is `d`, six powers of two slower
    and predicted as 1.5 from `b` and `c`."""
    found = evaluate(family(), table(SLOWER), split="device")
    assert powers(found, "a") == pytest.approx((3, 4.5))
    assert powers(found, "b") == pytest.approx((8 / 3, 5), abs=1e-5)
    assert powers(found, "c") == pytest.approx((7 / 3, 5.5), abs=1e-5)
    assert powers(found, "d") == pytest.approx((1, 1.5))
    rows = {row.group: row for row in found.result.rows}
    assert {name: row.n for name, row in rows.items()} == {
        **dict.fromkeys("abcd", ROWS),
        "all": 4 * ROWS,
    }
    covered = {name: row.coverage_90 for name, row in rows.items()}
    assert covered == {"a": 1, "b": 1, "c": 1, "d": 0, "all": 0.75}
    assert rows["a"].mape == pytest.approx(7), "eight times as long as it takes"


def test_one_other_device_does_not_tell_how_far_off_it_may_be(evaluate: Any) -> None:
    found = evaluate(family(), table({"a": 0, "c": 2}), split="device")
    (judged,) = found.held_out
    assert np.isinf(judged.reach).all()
    assert powers(found, "a")[0] == 2 and powers(found, "c")[0] == 0


def test_samples_tell_how_much_slower_a_device_is(evaluate: Any) -> None:
    found = evaluate(family(), table(SLOWER), split="device", shots=6)
    rows = {row.group: row for row in found.result.rows}
    assert all(ROWS - 6 <= rows[name].n < ROWS for name in SLOWER), "samples do not count"
    assert all(row.mape < 1e-3 for row in rows.values())
    assert found.result.picks == (), "nothing is searched"


def test_a_family_that_searches_looks_at_its_best_guesses(evaluate: Any) -> None:
    """The tenth row of each device fails; no time of it is learnt from or judged."""
    rows = table(SLOWER).with_columns(
        time_ms=polars.when(polars.col("n") == 10).then(None).otherwise(polars.col("time_ms"))
    )
    found = evaluate(family(verified=3), rows, split="device", shots=6)
    assert [(p.group, p.verified, p.regret) for p in found.result.picks] == [
        (name, 3, 0.0) for name in SLOWER
    ]
    assert all(5 <= pick.shots <= 6 for pick in found.result.picks)
    unsampled = evaluate(family(verified=3), rows, split="device")
    assert {row.group: row.n for row in unsampled.result.rows} == {
        **dict.fromkeys(SLOWER, ROWS - 1),
        "all": 4 * (ROWS - 1),
    }
    assert unsampled.result.picks == ()
    assert powers(unsampled, "a") == pytest.approx((3, 4.5))


def answered(columns: Columns, _sheet: Datasheet) -> Features:
    """The margin itself, worked out of a column that holds it."""
    n = columns["n"]
    return Features(
        names=("margin",), values=np.log(1e-6 * n / columns["s"])[:, None], scale=1e-6 * n
    )


def test_features_stay_with_their_rows_whatever_the_order_of_devices(evaluate: Any) -> None:
    """A predictor that copies the answer is right for every row, if each gets its own features."""
    told = family(
        Copies(),
        features=answered,
        operands=(Column(name="n", meaning="elements"), Column(name="s", meaning="its seconds")),
    )
    rows = table({"b": 1, "d": 6, "a": 0}).with_columns(s=polars.col("time_ms") / 1e3)
    found = evaluate(told, rows, folds=3)
    (judged,) = found.held_out
    np.testing.assert_allclose(judged.predicted, judged.measured, rtol=1e-6)
    assert [row.group for row in found.result.rows] == ["a", "b", "d", "all"]
    (card,) = found.result.cards
    assert [(c.name, c.low, c.high) for c in card.covers] == [
        ("n", 1, ROWS),
        ("s", 1e-6, pytest.approx(ROWS * 64e-6)),
    ]
    assert (card.rows, card.configurations) == (3 * ROWS, 3 * ROWS)


def test_the_number_of_the_device_is_a_feature_within_devices(evaluate: Any) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Last(Mean):
        """Keeps what it is shown."""

        def fit(self, values: Floats, margin: Floats, seed: int, weight: Any = None) -> Said:
            shown.append(values)
            return Said(0.0)

    shown: list[Floats] = []
    found = evaluate(family(Last()), table({"c": 2, "a": 0}), folds=2)
    assert [row.group for row in found.result.rows] == ["a", "c", "all"]
    assert all(values.shape[1] == 2 and set(values[:, 1]) == {0.0, 1.0} for values in shown)
    for values in shown:
        numbers, counts = np.unique(values[:, 0], return_counts=True)
        assert set(counts) == {2}, "both devices' rows of a configuration go together"
        assert len(numbers) < ROWS / 2, "half are judged, and each member is blind to some"


def test_what_is_of_one_size_is_learnt_as_it_is(evaluate: Any) -> None:
    """Power is not in proportion to the work: all rows have the mean."""
    power = Target(column=Column(name="power_w", meaning="power", unit="W"), scaled=False)
    rows = table({"a": 0}).with_columns(power_w=polars.lit(250.0))
    found = evaluate(family(targets=(*family().targets, power)), rows, folds=2)
    time, watts = found.held_out
    assert (time.unit, watts.unit) == ("s", "W")
    np.testing.assert_allclose(watts.predicted, 250.0)
    np.testing.assert_allclose(time.predicted, time.measured)


def test_fewer_configurations_than_folds_or_members(evaluate: Any) -> None:
    rows = polars.concat([table({"a": 0}, rows=4)] * 6)
    assert evaluate(family(), rows, folds=4).result.rows[0].n == 24
    for kind, folds in ((family(), 5), (family(Mean(members=5)), 2)):
        with pytest.raises(ModelError, match="4 different configurations, fewer than folds"):
            evaluate(kind, rows, folds=folds)


def test_a_table_without_devices_is_of_one(evaluate: Any) -> None:
    found = evaluate(family(), table({"a": 0}).drop("device"), folds=2)
    assert [row.group for row in found.result.rows] == ["all"]


def test_a_datasheet_says_what_a_device_could_do(evaluate: Any, tmp_path: Path) -> None:
    """Devices that reach one share of their peaks are alike, whatever the peaks: where datasheets
    give these, a device that is left out is predicted exactly, and where all count alike it is
    not."""

    def by_peak(columns: Columns, sheet: Datasheet) -> Features:
        n = columns["n"]
        return Features(names=("n",), values=n[:, None], scale=n / sheet.flop_per_s)

    peaks = {sheet["device"]: sheet["peak_fp32_gflop_s"] for sheet in SHEETS}
    rows = table(dict.fromkeys(peaks, 0)).with_columns(
        time_ms=2e-6 * polars.col("n") / polars.col("device").replace_strict(peaks)
    )
    kind = family(features=by_peak)
    known = evaluate(kind, rows, split="device", specs=write_sheets(tmp_path / "s.json"))
    assert all(row.mape < 1e-9 for row in known.result.rows)
    unknown = evaluate(kind, rows, split="device")
    assert all(row.mape > 0.1 for row in unknown.result.rows)
    other = rows.with_columns(device=polars.col("device").replace("gpu1", "another"))
    with pytest.raises(UsageError) as told:
        evaluate(replace(kind, roofed=True), other, split="device", specs=tmp_path / "s.json")
    assert told.value.message == "No datasheet of another."


def test_devices_with_too_few_rows_to_be_left_out(evaluate: Any) -> None:
    with pytest.raises(UsageError, match="two devices at least; this table has 1"):
        evaluate(family(), table({"a": 0}), split="device")
    with pytest.raises(ModelError, match="a has 30 usable rows; this needs 31"):
        evaluate(family(), table(SLOWER), split="device", shots=11)


SIGNED = (
    Column(name="n", meaning="elements"),
    Column(name="pad", meaning="padding", signed=True),
    Column(name="mode", meaning="how", text=True),
)


def test_rows_that_can_be_used(tmp_path: Path) -> None:
    """A count is above zero, a signed column may be zero, a text is not empty, and a time that is
    no number is a failure only where settings are searched."""
    rows = polars.DataFrame(
        {
            "device": ["x", "x", "y", None, "x", "x", "x", "x"],
            "n": [1.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            "pad": [0, 1, 1, 1, -1, 1, 1, 1],
            "mode": ["a", "a", "a", "a", "a", None, "a", "a"],
            "time_ms": [10.0, 1.0, 30.0, 1.0, 1.0, 1.0, None, -1.0],
        }
    )
    rows.write_csv(tmp_path / "t.csv")
    read = read_table(tmp_path / "t.csv")
    searched = family(operands=SIGNED, verified=2)
    for kind in (searched, replace(searched, verified=0)):
        (target,) = targets_in(read, kind)
        found = measured(read, kind, target)
        failed = kind.verified > 0
        assert len(found) == 2 + failed
        assert found.columns["n"].tolist() == [1.0, 3.0, 7.0][: 2 + failed]
        assert found.devices == ("x", "y") and found.device.tolist()[:2] == [0, 1]
        np.testing.assert_allclose(found.target, [0.01, 0.03, np.nan][: 2 + failed])
        assert found.dropped == {
            "no device, or an operand that is missing or not above zero": 4,
            "no time_ms above zero": 1 if failed else 2,
        }


def test_columns_that_a_table_lacks_are_named_with_their_units() -> None:
    kind = family(operands=SIGNED)
    table = polars.DataFrame({"nn": [1], "pad": [0]})
    with pytest.raises(UsageError, match=r"lacks n, mode, time_ms \(ms\), which toy needs") as told:
        targets_in(table, kind)
    assert "nn" in (told.value.hint or "")
    with pytest.raises(UsageError, match=r"lacks time_ms \(ms\), which") as told:
        targets_in(polars.DataFrame({"n": [1], "pad": [0], "mode": ["a"]}), kind)
    with pytest.raises(UsageError, match="lacks n, pad, mode, time_ms") as told:
        targets_in(polars.DataFrame(), kind)
    assert told.value.hint is None


def test_switches_may_be_booleans_and_words_are_those_of_a_choice() -> None:
    choices = ("fast", "slow")
    kind = family(
        operands=(
            Column(name="on", meaning="1 where it is", signed=True),
            Column(name="mode", meaning="how", text=True, choices=choices),
        )
    )
    fine = {"on": [True, False, True], "mode": ["fast", None, "slow"], "time_ms": [1.0, 2.0, 3.0]}
    found = measured(polars.DataFrame(fine), kind, kind.targets[0])
    assert found.columns["on"].tolist() == [1, 1] and found.columns["mode"].tolist() == [*choices]
    with pytest.raises(ModelError, match="mode holds 'odd'; known are fast, slow"):
        measured(polars.DataFrame(fine | {"mode": ["slow", "odd", None]}), kind, kind.targets[0])
    with pytest.raises(ModelError, match="column on holds String, not numbers"):
        measured(polars.DataFrame(fine | {"on": ["1", "0", "1"]}), kind, kind.targets[0])
