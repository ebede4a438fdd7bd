"""A network's figures from its kernels', and which kernels a model recommends: by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, hypot, inf, log, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.fakes.levels import convolution, relu
from helpers.fakes.measuring import PLACEMENT
from helpers.records.predictor_rows import PEAKS, fitted, known_store, rows_of_convolutions
from tilewright.core.events import Event, Note
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.cost.floors import floor_s
from tilewright.graph.workload import Workload
from tilewright.kernels.estimates import work_of
from tilewright.kernels.spaces import spaces
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.collected import Estimate
from tilewright.predict.forecasting import Forecaster, best_guesses
from tilewright.predict.modelling import Predictors
from tilewright.predict.powers import Power, PowerPredictors

TOGETHER = 0.3
A_HUNDRED = Power(power_w=100.0, low_w=80.0, high_w=130.0)
NETWORK = "zoo:squeezenet1_1"


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def predictors(tmp_path: Path, heard: list[Event]) -> Iterator[Predictors]:
    with known_store(tmp_path / "t.db") as store:
        yield Predictors(
            placement=PLACEMENT,
            store=store,
            folder=tmp_path / "models",
            cache=tmp_path / "cache",
            events=heard.append,
        )


@pytest.fixture(scope="module")
def network() -> PreparedNetwork:
    return prepare_outline(NETWORK, ModelOptions(), PLACEMENT)


def told(number: int) -> Estimate:
    """What is said of a kernel by its number: the later the longer."""
    time_s = (number + 1) * 1e-5
    return Estimate(latency_s=time_s, low_s=0.9 * time_s, high_s=1.5 * time_s, source="model")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates are made up, in the kernels' order, and draw 100 W each."""

    def kernels(_self: Forecaster, asked: Sequence[Any]) -> list[Estimate]:
        return [told(number) for number in range(len(asked))]

    def powers(_self: PowerPredictors, asked: Sequence[Any]) -> list[Power | None]:
        return [A_HUNDRED] * len(asked)

    monkeypatch.setattr(Forecaster, "kernels", kernels)
    monkeypatch.setattr(PowerPredictors, "powers", powers)


def test_a_network_takes_four_hundredths_more_than_its_calls(
    predictors: Predictors, network: PreparedNetwork, said: None
) -> None:
    """Errors of kernels go together to 0.3: between a sum and a sum of squares."""
    found = Forecaster(predictors=predictors).network(network, "default")
    counts = np.array([task.count for task in network.tasks.values()])
    assert counts.max() > 1
    times_s = 1e-5 * np.arange(1, len(counts) + 1)
    whole_s = float(counts @ times_s)
    below, above = 0.1 * counts * times_s, 0.5 * counts * times_s

    def width(each: Any) -> float:
        return sqrt(TOGETHER * each.sum() ** 2 + (1 - TOGETHER) * (each**2).sum())

    figures = found.network
    assert figures is not None
    assert figures.latency_s == pytest.approx(1.04 * whole_s)
    assert figures.latency_low_s == pytest.approx(1.04 * (whole_s - width(below)))
    assert figures.latency_high_s == pytest.approx(1.04 * (whole_s + width(above)))
    energy_j = float(counts @ (1e-3 * np.arange(1, len(counts) + 1)))
    assert figures.energy_j == pytest.approx(1.04 * energy_j)
    assert figures.power_w == pytest.approx(energy_j / whole_s), "100 W, as each kernel"
    share = counts * times_s / whole_s
    assert figures.power_low_w == pytest.approx(100 - width(20 * share))
    assert figures.power_high_w == pytest.approx(100 + width(30 * share))
    longer = 100 * counts * times_s * (exp(hypot(log(1.5), log(1.3))) - 1)
    shorter = 100 * counts * times_s * (1 - exp(-hypot(log(0.9), log(0.8))))
    assert figures.energy_low_j == pytest.approx(1.04 * (energy_j - width(shorter)))
    assert figures.energy_high_j == pytest.approx(1.04 * (energy_j + width(longer)))
    assert figures.peak_memory_bytes is not None and figures.peak_memory_bytes > 1e6


def test_each_kernel_is_told_with_its_name_and_calls(
    predictors: Predictors, network: PreparedNetwork, said: None
) -> None:
    found = Forecaster(predictors=predictors).network(network, "default")
    tasks = list(network.tasks.values())
    assert [(row.name, row.count) for row in found.operators] == [(t.name, t.count) for t in tasks]
    assert [row.latency_s for row in found.operators] == [
        told(n).latency_s for n in range(len(tasks))
    ]
    assert [row.energy_j for row in found.operators] == [
        100 * told(n).latency_s for n in range(len(tasks))
    ]
    first = found.operators[0]
    assert (first.low_s, first.high_s) == pytest.approx((0.9e-5, 1.5e-5))
    assert {row.source for row in found.operators} == {"model"}
    assert first.family == "conv2d" and found.threads == 2


def test_one_energy_that_is_unknown_leaves_the_networks_unknown(
    predictors: Predictors,
    network: PreparedNetwork,
    said: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def some(_self: PowerPredictors, asked: Sequence[Any]) -> list[Power | None]:
        return [None, *[A_HUNDRED] * (len(asked) - 1)]

    monkeypatch.setattr(PowerPredictors, "powers", some)
    found = Forecaster(predictors=predictors).network(network, "default")
    assert found.network is not None
    assert (found.network.energy_j, found.network.power_w) == (None, None)
    assert [row.energy_j for row in found.operators][:2] == [None, 100 * told(1).latency_s]
    assert "conv2d" in found.energy_reason


def test_an_exact_answer_is_doubted_as_repeated_times_differ(predictors: Predictors) -> None:
    row = rows_of_convolutions()[3]
    (found,) = Forecaster(predictors=predictors).kernels([(row.workload, row.candidate)])
    assert found.low_s == pytest.approx(row.latency_s / exp(0.17))
    assert found.high_s == pytest.approx(row.latency_s * exp(0.17))


def test_answers_come_in_the_order_of_the_questions(predictors: Predictors) -> None:
    """Kernels of two families in turn, one of them measured; without a model each is told its own
    roofline, and that it may take twenty times as long."""
    row = rows_of_convolutions()[3]
    asked: list[tuple[Workload, Candidate]] = [
        (relu(), row.candidate),
        (convolution(channels=24, filters=40), row.candidate),
        (row.workload, row.candidate),
        (convolution(channels=48, filters=40), row.candidate),
        (relu(), rows_of_convolutions()[4].candidate),
    ]
    predictors._loaded.update({"conv2d": None, "elementwise": None})
    found = Forecaster(predictors=predictors).kernels(asked)
    assert [answer.source for answer in found] == [
        *("roofline", "roofline", "exact", "roofline", "roofline")
    ]
    for (workload, candidate), answer in zip(asked, found, strict=True):
        if answer.source == "roofline":
            work = work_of(workload, candidate.implementation, PLACEMENT.target)
            assert answer.latency_s == answer.low_s == floor_s(work, PEAKS)
            assert answer.high_s == 20 * answer.low_s


def test_what_a_model_says_is_the_answer_with_its_interval(predictors: Predictors) -> None:
    row = rows_of_convolutions()[0]
    huge = convolution(channels=4000, filters=40)
    asked = [(row.workload, row.candidate), (huge, row.candidate)]
    predictors._loaded["conv2d"] = fitted()
    found = Forecaster(predictors=predictors).modelled(asked)
    said = fitted().predict(predictors.features(asked, fitted()))
    assert [answer.latency_s for answer in found] == said.predicted.tolist()
    assert [answer.outside for answer in found] == [False, True]
    for answer, reach in zip(found, said.reach.tolist(), strict=True):
        assert answer.low_s == pytest.approx(answer.latency_s / exp(reach))
        assert answer.high_s == pytest.approx(answer.latency_s * exp(reach))


def lent(**known: Any) -> Any:
    """Predictors of which only what is told about them is known."""
    lender = SimpleNamespace(placement=SimpleNamespace(key="a-class-2t"))
    fields = {"lender": lender, "probes": 0, "own_rows": [], "slowdowns": lambda: []}
    return SimpleNamespace(**fields | known)


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({"lender": None}, []),
        ({}, ["those of the nearest one, a-class-2t, with intervals twice"]),
        ({"own_rows": [1], "probes": 7}, ["start from the device class a-class-2t", "7 kernels"]),
        ({"own_rows": [1]}, []),
        ({"lender": None, "slowdowns": lambda: [("conv2d", 1.234)]}, ["by conv2d 1.23"]),
    ],
)
def test_where_predictions_come_from_is_told(known: dict[str, Any], says: list[str]) -> None:
    notes: list[Any] = []
    Forecaster(predictors=lent(events=notes.append, **known)).tell([told(0)])
    assert len(notes) == bool(says)
    for words in says:
        assert words in notes[0].message


def test_guesses_below_and_beyond_what_was_measured_are_told() -> None:
    notes: list[Any] = []
    answers = [replace(told(0), source="roofline"), *[replace(told(1), outside=True)] * 2]
    Forecaster(predictors=lent(events=notes.append, lender=None)).tell(answers)
    assert [type(note) for note in notes] == [Note, Note]
    assert notes[0].message.startswith("1 tasks are of families that were never measured")
    assert notes[1].message.startswith("2 tasks are unlike everything that was measured")


def test_the_best_guesses_are_what_the_model_says_of_the_most_promising(
    predictors: Predictors,
) -> None:
    """Of each implementation the 256 settings with the least estimates are asked about, and the
    three that the model takes for the fastest are told."""
    workload = convolution(channels=16, filters=48)
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    guesses = best_guesses(predictors)
    predictors._loaded["conv2d"] = fitted()
    found = guesses(workload, forms)
    asked: list[tuple[Workload, Candidate]] = []
    for space in spaces(workload, forms, PLACEMENT, inf):
        ranked = sorted(range(len(space.numbers)), key=lambda n: (space.estimates_s[n], n))
        assert len(space.numbers) > 256
        chosen = [int(space.numbers[n]) for n in ranked[:256]]
        asked += [(workload, space.part.candidate(number)) for number in chosen]
    times_s = fitted().predict(predictors.features(asked, fitted())).predicted
    order = np.argsort(times_s, kind="stable")[:3]
    assert found == tuple(asked[int(n)][1] for n in order)
    assert guesses(workload, forms) is found, "asked once"


def test_a_model_of_another_class_guesses_nothing(predictors: Predictors) -> None:
    workload, forms = convolution(channels=16, filters=48), (PLAIN,) * 3
    predictors._loaded["conv2d"] = replace(fitted(), origin="another")
    assert best_guesses(predictors)(workload, forms) == ()
    predictors._loaded["conv2d"] = None
    assert best_guesses(predictors)(workload, forms) == ()


def test_without_fitting_no_model_is_made(predictors: Predictors, heard: list[Event]) -> None:
    workload, forms = convolution(channels=16, filters=48), (PLAIN,) * 3
    assert best_guesses(predictors, fitting=False)(workload, forms) == ()
    assert heard == []
