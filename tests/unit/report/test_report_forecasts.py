"""What `collect`, `predict` and `explain` show, cell by cell."""

from __future__ import annotations

from dataclasses import replace

from helpers.fakes.forecasts import COLLECTED, EXPLAINED, PREDICTED, SWEPT, THREADS
from tilewright.core.predictions import CollectedShare, FactDifference, NetworkForecast
from tilewright.report import forecasts
from tilewright.report.tables import Table


def facts(table: Table) -> dict[str, str]:
    """The rows of a table of facts, as people read them."""
    return {name: shown for name, shown in table.shown()}


def labels(table: Table) -> list[str]:
    return [column.label for column in table.columns]


def test_what_was_collected() -> None:
    assert facts(forecasts.collected(COLLECTED)) == {
        "measured": "20",
        "copies and probes beside": "0",
        "known before": "3",
        "failed": "1",
        "complete": "yes",
        "time": "12.5 s",
    }
    ended = forecasts.collected(replace(COLLECTED, complete=False))
    assert facts(ended)["complete"] == "no, the budget ended"


def test_what_was_taken_of_networks() -> None:
    one = CollectedShare(
        model="zoo:mlp",
        device_class="a-1t",
        tasks=2,
        tasks_of_network=3,
        share=0.984,
        measured=1,
    )
    shown = facts(forecasts.collected(replace(COLLECTED, shares=(one,))))
    assert shown["zoo:mlp"] == "2 of 3 tasks, 98.4 % of its time"
    both = replace(COLLECTED, shares=(one, replace(one, device_class="a-2t", tasks=1)))
    shown = facts(forecasts.collected(both))
    assert shown["zoo:mlp on a-2t"] == "1 of 3 tasks, 98.4 % of its time"


def test_the_kernels_that_take_most_come_first() -> None:
    """All calls of one together count."""
    (once,) = PREDICTED.operators
    result = replace(
        PREDICTED,
        operators=(
            replace(once, name="slow", latency_s=0.004, count=1),
            replace(once, name="often", latency_s=0.001, count=5),
            replace(once, name="rare", latency_s=0.003, count=1),
        ),
    )
    table = forecasts.operators_table(result)
    assert [line[0] for line in table.shown()] == ["often", "slow", "rare"]
    assert table.shown()[0] == [
        *("often", "conv2d", "5", "1 ms", "900 µs", "1.2 ms", "model", "conv2d_direct")
    ]


def test_columns_of_further_metrics_are_there_where_one_kernel_has_any() -> None:
    (once,) = PREDICTED.operators
    bare = ["task", "family", "count", "latency", "from", "to", "source", "implementation"]
    assert labels(forecasts.operators_table(PREDICTED)) == bare
    metered = replace(once, energy_j=0.25, power_w=12.5)
    table = forecasts.operators_table(replace(PREDICTED, operators=(once, metered)))
    assert labels(table) == [*bare[:6], "energy", "power", *bare[6:]]
    assert [line[6:8] for line in table.shown()] == [["–", "–"], ["250 mJ", "12.5 W"]]


def summary(*metrics: str, energy_reason: str = "", **network: float | None) -> dict[str, str]:
    known = dict.fromkeys(("latency_s", "latency_low_s", "latency_high_s", "power_w", "energy_j"))
    forecast = NetworkForecast(**{**known, "peak_memory_bytes": None, **network})
    result = replace(PREDICTED, network=forecast, metrics=metrics, energy_reason=energy_reason)
    return facts(forecasts.forecast_summary(result))


def test_the_summary_of_a_network_tells_what_was_asked_for() -> None:
    assert summary() == {}
    assert summary(latency_s=0.03, latency_low_s=0.028, latency_high_s=0.033) == {
        "latency": "30 ms",
        "90 % interval": "28 ms to 33 ms",
    }
    assert summary(peak_memory_bytes=3 << 20) == {"peak memory": "3 MiB"}
    assert summary("power", "energy", power_w=12.5, energy_j=0.25) == {
        "power": "12.5 W",
        "energy": "250 mJ",
    }
    ends = {"power_low_w": 10.0, "power_high_w": 15.0, "energy_low_j": 0.2, "energy_high_j": 0.3}
    assert summary("power", "energy", power_w=12.5, energy_j=0.25, **ends) == {
        "power": "12.5 W",
        "90 % interval of power": "10.0 W to 15.0 W",
        "energy": "250 mJ",
        "90 % interval of energy": "200 mJ to 300 mJ",
    }
    assert summary("power", "energy", energy_reason="no meter") == {
        "power": "unknown: no meter",
        "energy": "unknown: no meter",
    }
    nothing = forecasts.forecast_summary(replace(PREDICTED, network=None))
    assert (nothing.title, nothing.records) == ("resnet50", ())


def test_factors_are_told_with_the_times_of_their_values() -> None:
    first, exchanged, turning, apart = forecasts.explained_tables(EXPLAINED)
    assert first.shown() == [
        ["implementation", "20.0 %", "–", "rows=1.0"],
        ["tile_width", "70.0 %", "-0.900", "1=3.0"],
    ]
    assert exchanged.shown() == [["tile_width", "42.0 %", "1=2.5"]], "what was varied alone"
    assert apart.title == "1.50× the other's time, because of"
    assert len(forecasts.explained_tables(replace(EXPLAINED, ratio=None))) == 3
    assert labels(turning)[-1] == "time per FLOP"


def test_effects_have_two_digits_behind_the_point() -> None:
    (factor, _) = EXPLAINED.factors
    found = replace(EXPLAINED, factors=(replace(factor, effects={"4": 1.2345}),))
    assert forecasts.explained_tables(found)[0].shown()[0][3] == "4=1.23"


def test_turning_points_tell_whether_they_were_confirmed_where_they_were_measured() -> None:
    (point,) = EXPLAINED.turning_points
    sure = replace(point, confirmed=True, measured_ratio=1.25)
    many = replace(EXPLAINED, turning_points=(*[point] * 12, sure))
    table = forecasts.explained_tables(many)[2]
    assert labels(table)[-2:] == ["measured", "confirmed"]
    assert len(table.records) == 12, "the first dozen is shown"
    (told,) = forecasts.explained_tables(replace(many, turning_points=(sure,)))[2].shown()
    assert told[-2:] == ["1.25×", "yes"]


def test_the_best_number_of_threads_is_marked() -> None:
    table = forecasts.threads_table(THREADS)
    assert table.title == "zoo:mlp"
    assert table.shown() == [["2", "2 ms", ""], ["1", "1 ms", "best"]]


def test_a_sweep_tells_how_near_to_the_roof_each_value_is() -> None:
    first, second = forecasts.sweep_table(SWEPT).shown()
    assert first[:5] == ["0", "1 ms", "1.1 ms", "50.0 %", "conv2d_direct"]
    assert second[:5] == ["1", "–", "1.2 ms", "–", "conv2d_direct"], "it was not measured"


def test_a_cuda_kernel_is_explained_by_its_facts() -> None:
    """Whole numbers whole, others with three digits; the time is the roofline's."""
    facts_of_main = {"rule": "Matmul", "grid_blocks": 1234, "tail": 0.123456, "waves": 2.0}
    found = replace(
        EXPLAINED,
        facts=facts_of_main,
        functions=(facts_of_main,),
        differences=(FactDifference(fact="rule", first="Matmul", second=None, share=None),),
    )
    first, turning, apart = forecasts.explained_tables(found)
    assert (first.title, turning.title) == (EXPLAINED.name, "Turning points")
    assert first.shown() == [
        ["rule", "Matmul"],
        ["grid_blocks", "1\u202f234"],
        ["tail", "0.123"],
        ["waves", "2.00"],
        ["roofline", "1 ms"],
    ]
    assert apart.title == "The two differ in" and len(apart.shown()) == 1
    unknown = replace(found, latency_s=None, differences=())
    tables = forecasts.explained_tables(unknown)
    assert len(tables) == 2 and "roofline" not in facts(tables[0])
