"""Predictors of a GPU's kernels: what is known of a schedule before it runs, what that is worth,
and the way from `collect` to `predict`.

No card is here. One is made up: the model of waves with other constants than the datasheet's, and
noise. What predictors reach on it says that the facts get where they are needed, and nothing of a
real card.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from helpers.fakes.measuring import measured
from helpers.plugins.offer import offering
from helpers.plugins.simulated_gpu import POINTS, TARGET, h100
from helpers.records.predictor_rows import SMALL
from tilewright.collect.design import Design
from tilewright.core.events import discard
from tilewright.core.records import Candidate, EnergyUse, Placement
from tilewright.core.targets import Target
from tilewright.cost import blocks
from tilewright.cost.demand import Demand
from tilewright.cost.floors import datasheet_peaks
from tilewright.graph.workload import Workload
from tilewright.insight.evaluating import evaluate_kernels
from tilewright.kernels.estimates import facts
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import spaces
from tilewright.models import ModelOptions
from tilewright.models.configurations import configurations_of, drawn
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.collected import family_of
from tilewright.predict.evaluation import POORER, EvaluateRequest, EvaluateRow
from tilewright.predict.kernel_features import Kernel, kernel_table
from tilewright.predict.modelling import predictors_of
from tilewright.store import open_store

OTHER = "op:dense[k=700,n=333,m=3]"
SHAPE_OF_A_LAUNCH = (
    *("blocks_per_multiprocessor", "most_blocks", "waves", "tail", "occupancy", "threads", "warps"),
    *("registers", "shared_bytes", "launches", "instructions", "shared_traffic_bytes"),
    *("cache_traffic_bytes", "memory_traffic_bytes", "estimate_s"),
)
OF_FAMILIES = {
    "conv2d": ["predicates", "conflicts", "coalesced", "waste", "steps"],
    "dense": ["predicates", "conflicts", "coalesced", "waste", "steps"],
    "softmax": ["rows_per_block", "sectors_per_request", "row_length"],
    "max_pool2d": ["loads_per_result", "lines_per_load"],
    "relu": ["elements_per_thread", "sectors_per_request"],
}


@pytest.fixture(autouse=True)
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr("tilewright.predict.family_models.DEFAULT_TREES", SMALL)
    monkeypatch.setattr("tilewright.predict.powers.POWER_TREES", SMALL)
    monkeypatch.setattr("tilewright.predict.modelling.shipped_data", tuple)
    with offering(tmp_path / "offered", POINTS):
        yield


def kernels_of(family: str, count: int, each: int, placement: Placement) -> list[Kernel]:
    """Our kernels of so many configurations, in some settings of each implementation."""
    random, text = np.random.default_rng(0), configurations_of(family).text
    tasks = [
        next(iter(prepare_outline(text(numbers), ModelOptions(), placement).tasks.values()))
        for _, numbers in zip(range(count), drawn(family, 0), strict=False)
    ]
    return [
        (task.workload, space.part.candidate(int(number)))
        for task in tasks
        for space in spaces(task.workload, task.forms, placement)
        if space.spec.name != "cuda_default"
        for number in random.choice(space.numbers, min(each, len(space.numbers)), replace=False)
    ]


def demanded(workload: Workload, candidate: Candidate, target: Target) -> Demand:
    spec, settings = implementation(candidate.implementation), [dict(candidate.settings)]
    return spec.demand(workload, target, h100().resources, candidate.forms, settings)


def slow_card(target: Target) -> Target:
    """Less clock and slower memory than the datasheet says, each level by another factor."""
    parts = zip(target.memory, (0.7, 0.5, 0.75), strict=True)
    memory = tuple(replace(level, bytes_per_s=part * level.bytes_per_s) for level, part in parts)
    return replace(target, clock_hz=0.8 * target.clock_hz, memory=memory)


def times_s(kernels: Sequence[Kernel], target: Target) -> list[float]:
    """What the card takes, 3 % of noise."""
    card, noise = slow_card(target), np.random.default_rng(1).normal(0, 0.03, len(kernels))
    demands = (demanded(*kernel, target) for kernel in kernels)
    each = (sum(blocks.seconds(one, card) for one in demand.blocks) for demand in demands)
    return [float(np.max(time_s) * np.exp(n)) for time_s, n in zip(each, noise, strict=True)]


@pytest.mark.parametrize("family", OF_FAMILIES)
def test_a_row_has_the_shape_of_the_launch_and_what_the_schedule_tells(family: str) -> None:
    placement = h100()
    kernels, peaks = kernels_of(family, 6, 2, placement), datasheet_peaks(placement.target)
    assert peaks is not None
    table = kernel_table(kernels, placement, peaks)
    columns = dict(zip(table.names, table.values.T, strict=True))
    for name in SHAPE_OF_A_LAUNCH:
        assert np.isfinite(columns[f"schedule.{name}"]).all(), name
    for name in OF_FAMILIES[family]:
        assert np.isfinite(columns[f"schedule.{name}"]).any(), name
    assert not np.isinf(table.values).any()
    for row, (workload, candidate) in enumerate(kernels):
        launched = demanded(workload, candidate, placement.target).blocks
        moved = sum(float(np.max(one.memory_bytes)) for one in launched)
        assert columns["schedule.memory_traffic_bytes"][row] == pytest.approx(moved)
        assert columns["schedule.registers"][row] == np.max(launched[0].registers)
        started = sum(bool(np.max(one.count) > 0) for one in launched)
        assert columns["schedule.launches"][row] == started
        told = facts(
            implementation(candidate.implementation),
            workload,
            placement.target,
            placement.resources,
            candidate.forms,
            [dict(candidate.settings)],
        )
        assert columns["schedule.waves"][row] == told["waves"][0]


def judged_by_configuration(
    family: str, kernels: Sequence[Kernel], path: Path, powers_w: Sequence[float] = ()
) -> dict[tuple[str, str], EvaluateRow]:
    """What `evaluate` says of predictors of these kernels, by target and group, with the powers
    that a meter told of the first ones."""
    placement = h100()
    peaks = datasheet_peaks(placement.target)
    assert peaks is not None
    here = {"device_class": placement.device.class_key, "resources": placement.resources}
    with open_store(path) as store:
        store.add_device(placement.device)
        store.add_workloads({workload.key: workload for workload, _ in kernels}.values())
        for number, time_s in enumerate(times_s(kernels, placement.target)):
            energy = None
            if number < len(powers_w):
                power_w = powers_w[number]
                energy = EnergyUse(method="made up", energy_j=power_w * time_s, power_w=power_w)
            store.add([measured(*kernels[number], time_s, energy=energy, **here)])
        for name, value in asdict(peaks).items():
            store.add_peak(placement.key, name, value)
        asked = EvaluateRequest(family=family, split="configuration", folds=3)
        found = evaluate_kernels(predictors_of(placement, store, discard), asked).result
    families = sorted({family_of(workload) for workload, _ in kernels})
    for card in found.cards:
        assert card.target == "latency_s" or f": {', '.join(families)}. " in card.limits[0]
    return {(row.target, row.group): row for row in found.rows}


@pytest.mark.parametrize("family", ["conv2d", "dense", "softmax"])
def test_facts_of_the_schedule_explain_what_sizes_and_knobs_do_not(
    family: str, tmp_path: Path
) -> None:
    kernels = kernels_of(family, 32, 2, h100())
    rows = judged_by_configuration(family, kernels, tmp_path / "t.db")
    assert {target for target, _ in rows} == {"latency_s"}
    everything = rows["latency_s", "all"]
    assert everything.mape < 0.15
    for group in POORER:
        assert rows["latency_s", group].n == everything.n == len(kernels)
        assert 2 * everything.mape < rows["latency_s", group].mape


def test_energy_and_power_are_judged_with_and_without_facts(tmp_path: Path) -> None:
    """The card draws more the more of its threads are held."""
    placement = h100()
    kernels = kernels_of("softmax", 32, 2, placement)
    peaks = datasheet_peaks(placement.target)
    assert peaks is not None
    table = kernel_table(kernels, placement, peaks)
    occupancy = table.values[:, table.names.index("schedule.occupancy")]
    powers_w = (100 + 300 * occupancy).tolist()
    rows = judged_by_configuration("softmax", kernels, tmp_path / "t.db", powers_w)
    assert {target for target, _ in rows} == {"latency_s", "energy_j", "power_w"}
    for target, most in (("energy_j", 0.2), ("power_w", 0.1)):
        everything = rows[target, "all"]
        assert everything.family == "softmax" and (target, "cuda_rows") in rows
        assert everything.n == len(kernels) and everything.mape < most
        assert 1.5 * everything.mape < rows[target, POORER[0]].mape
        assert everything.mape < rows[target, POORER[1]].mape


def test_families_with_few_energies_teach_one_model_of_power(tmp_path: Path) -> None:
    """32 kernels of each are too few for a model of times; all of them, which draw more the
    more threads a block has, are enough for one of power."""
    placement = h100()
    kernels = [k for family in ("softmax", "relu") for k in kernels_of(family, 16, 2, placement)]
    peaks = datasheet_peaks(placement.target)
    assert peaks is not None and len(kernels) < 70
    table = kernel_table(kernels, placement, peaks)
    threads = table.values[:, table.names.index("schedule.threads")]
    powers_w = (100 + 50 * np.log2(threads / 16)).tolist()
    rows = judged_by_configuration("all", kernels, tmp_path / "t.db", powers_w)
    groups = {"all", "softmax", "elementwise", *POORER}
    assert set(rows) == {("power_w", group) for group in groups}
    assert {row.family for row in rows.values()} == {"all families"}
    assert rows["power_w", "all"].n == len(kernels)
    assert rows["power_w", "all"].mape < 0.1 < rows["power_w", POORER[0]].mape


def test_too_few_energies_take_nothing_from_the_times(tmp_path: Path) -> None:
    kernels = kernels_of("softmax", 32, 2, h100())
    rows = judged_by_configuration("softmax", kernels, tmp_path / "t.db", [100.0] * 42)
    assert {target for target, _ in rows} == {"latency_s"}


def test_from_collecting_on_a_gpu_to_a_prediction(tmp_path: Path) -> None:
    with tilewright.Session(target=TARGET, db=tmp_path / "t.db") as session:
        design = Design(settings=2, share=0.4)
        found = session.collect("dense", ["zoo:mlp"], samples=44, design=design)
        (told,) = found.shares
        assert found.complete and told.tasks < told.tasks_of_network == 3
        named = session.measurements()["model"]
        assert set(named) == {"", "zoo:mlp"}
        (fitted,) = session.fit("dense").families
        assert (fitted.error, fitted.rows) == ("", 44 + sum(named == "zoo:mlp"))
        network = session.predict("zoo:mlp")
        assert {each.source for each in network.operators} == {"exact", "model"}
        (other,) = session.predict(OTHER).operators
        placement = session.placement
        (task,) = prepare_outline(OTHER, ModelOptions(), placement).tasks.values()
    best = spaces(task.workload, task.forms, placement)
    assert other.source == "model" and other.low_s <= other.latency_s <= other.high_s
    estimate_s = min(float(space.estimates_s.min()) for space in best)
    assert other.latency_s == pytest.approx(estimate_s, rel=0.2), "kernels tell their estimates"


def test_rows_of_optimize_and_profile_name_their_network(tmp_path: Path) -> None:
    with tilewright.Session(target="simulated", db=tmp_path / "t.db") as session:
        session.optimize("zoo:mlp", budget=6, out=tmp_path / "out")
        assert set(session.measurements()["model"]) == {"zoo:mlp"}
        session.profile("op:softmax[shape=4x10]")
        assert set(session.measurements()["model"]) == {"zoo:mlp", "op:softmax[shape=4x10]"}
