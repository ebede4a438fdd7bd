"""Threads, caches, types and neighbours: what is asked for, and that nothing crosses over."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes.levels import convolution
from helpers.fakes.levels import task as blocked_task
from helpers.fakes.machine_files import SERVER, tree
from helpers.fakes.measuring import PLACEMENT, failed, measured
from helpers.fakes.opened_measurer import Opened
from helpers.fakes.placements import altered
from helpers.fakes.settings_of_a_card import CardSettings
from helpers.records.predictor_rows import fitted, known_store, rows_of_convolutions
from tilewright.collect.collector import Collector, known_candidates
from tilewright.collect.design import Design, circumstances_of, collect_request
from tilewright.collect.planned import best_known
from tilewright.compiler.cuda import nvidia
from tilewright.core.budget import parse_budget
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.events import discard
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Outcome, Protocol
from tilewright.core.targets import MemoryLevel
from tilewright.graph.workload import Workload
from tilewright.hardware.holding import Held, holding
from tilewright.hardware.remote import remote_instance
from tilewright.kernels.estimates import estimate_s
from tilewright.kernels.spaces import default_candidate, search_space
from tilewright.measure.accesses import cuda
from tilewright.measure.circumstances import Circumstances, is_beside, is_usual, kernel_protocol
from tilewright.models import ModelOptions
from tilewright.predict.collected import family_of
from tilewright.predict.modelling import predictors_of
from tilewright.search.tuning import best_elsewhere
from tilewright.store import open_store
from tilewright.store.database import SqliteStore
from tilewright.store.known_candidates import known_outcomes, ranked
from tilewright.store.rows import row_of
from tilewright.testing.implementations import single
from tilewright.testing.simulated_driver import H100

FOUR = altered(PLACEMENT, access="here", threads=1, cpus=(0, 1, 2, 3))
COLD = Circumstances(usual=PLACEMENT, cache="cold")
CROWDED = Circumstances(usual=PLACEMENT, neighbours=2)
TASK = blocked_task(convolution())


class InPlace(Opened):
    """A measurer whose outcomes are of a place."""

    def __init__(self, place: Circumstances) -> None:
        super().__init__(lambda _workload, _candidate: 1e-4)
        self.place = place

    def measure(
        self, workload: Workload, candidates: Sequence[Candidate], *rest: Any, **more: Any
    ) -> list[Outcome]:
        finished = more.pop("finished")
        found = super().measure(workload, candidates, *rest, **more)
        here = [replace(o, device_class=self.place.placement.device.class_key) for o in found]
        for outcome in here:
            finished(outcome)
        return here


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "c.db") as opened:
        yield opened


def candidates(count: int) -> list[Candidate]:
    space = search_space(TASK.workload, TASK.forms, PLACEMENT)
    assert space.listed is not None
    return [space.candidate(int(number)) for number in space.listed[:count]]


def test_every_combination_is_a_class_of_its_own() -> None:
    design = Design(caches=("usual", "warm", "cold"), neighbours=(0, 1, 3))
    places = circumstances_of([FOUR], design)
    classes = [place.placement.key for place in places]
    assert len(set(classes)) == 9
    assert [key for key in classes if is_usual(key.device_class)] == [FOUR.key]
    assert len({place.protocol for place in places}) == 9, "each row says how it was timed"
    assert {place.protocol.neighbours for place in places} == {0, 1, 3}
    assert all(place.placement.tvm_target == FOUR.tvm_target for place in places)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("caches_mib", "rotation_mib"),
    [((1, 16), 32), ((1, 64), 128), ((1, 300), 128), ((2,), 4), ((2, 0), 4), ((80,), 128)],
)
def test_weights_rotate_through_twice_the_last_cache(
    caches_mib: tuple[int, ...], rotation_mib: int
) -> None:
    """Sizes of the second and third level; a processor may have no third one. More than 128 MiB
    never rotate."""
    levels = ((32 << 10), *(size * MIB for size in caches_mib))
    memory = tuple(MemoryLevel(name=f"L{n}", bytes=size) for n, size in enumerate(levels, 1))
    found = kernel_protocol(altered(PLACEMENT, memory=memory))
    assert found == Protocol(rotation_bytes=rotation_mib * MIB)


def test_caches_and_neighbours_change_how_a_kernel_is_timed() -> None:
    usual = kernel_protocol(PLACEMENT)
    assert Circumstances(usual=PLACEMENT).protocol == usual and usual.neighbours == 0
    warm = Circumstances(usual=PLACEMENT, cache="warm").protocol
    assert warm == replace(usual, rotation_bytes=0, activations="warm")
    assert COLD.protocol == replace(usual, activations="cold", sample_s=0.0, repeats=7)
    assert CROWDED.protocol == replace(usual, neighbours=2)
    assert [p.special for p in (Circumstances(usual=PLACEMENT), COLD, CROWDED)] == [
        *(False, True, True)
    ]
    both = replace(COLD, neighbours=1).placement
    assert both.device.class_key == f"{PLACEMENT.device.class_key}+cache=cold+beside=1"
    assert replace(both, device=PLACEMENT.device) == PLACEMENT, "nothing else differs"
    usual_class = PLACEMENT.device.class_key
    partner = Circumstances(usual=PLACEMENT, partner="12ab34x1").placement.device.class_key
    assert is_beside(partner, usual_class) and not is_beside(usual_class, usual_class)
    copies = CROWDED.placement.device.class_key
    assert not is_beside(copies, usual_class), "copies of the kernel are no partner"


@pytest.mark.parametrize("place", [COLD, CROWDED, Circumstances(usual=PLACEMENT, cache="warm")])
def test_nothing_crosses_over_to_networks(tmp_path: Path, place: Circumstances) -> None:
    """Faster times, failures and wrong results of special circumstances change no answer."""
    rows = rows_of_convolutions()
    fast, broken, fine = candidates(3)
    special = place.placement.device.class_key
    with known_store(tmp_path / "k.db") as store:
        before = predictors_of(PLACEMENT, store, discard)
        told = before.rows, before.training_set("conv2d").data_hash
        store.add_device(place.placement.device)
        store.add_workload(TASK.workload)
        store.add(
            measured(r.workload, r.candidate, r.latency_s / 9, device_class=special) for r in rows
        )
        store.add([measured(TASK.workload, fast, 1e-9, device_class=special)])
        store.add([failed(TASK.workload, broken, "wrong result", device_class=special)])
        after = predictors_of(PLACEMENT, store, discard)
        assert (after.rows, after.training_set("conv2d").data_hash) == told
        asked = after.measured(family_of(TASK.workload)).estimate(TASK.workload, fast)
        assert asked is None or asked.source != "exact"
        row = rows[0]
        known = after.measured(family_of(row.workload)).estimate(row.workload, row.candidate)
        assert known is not None and (known.latency_s, known.source) == (row.latency_s, "exact")
        assert known_outcomes(TASK, store, PLACEMENT) == []
        assert known_candidates(store, TASK.workload, PLACEMENT) == frozenset()
        assert best_elsewhere(TASK, store, PLACEMENT) == ()
        store.add([measured(TASK.workload, broken, 1e-6), measured(TASK.workload, fine, 2e-6)])
        assert [m.candidate for m in ranked(known_outcomes(TASK, store, PLACEMENT))] == [
            broken,
            fine,
        ]
        mine = predictors_of(place.placement, store, discard)
        assert {r.latency_s for r in mine.own_rows} != {r.latency_s for r in after.own_rows}


def test_each_place_gets_its_part_of_the_budget(store: SqliteStore) -> None:
    asked = collect_request(
        ["relu"],
        [],
        samples=40,
        design=Design(caches=("usual", "warm")),
        budget=parse_budget("24"),
        options=ModelOptions(),
    )
    places = circumstances_of([altered(PLACEMENT, access="here")], asked.design)

    def collected() -> tuple[list[InPlace], Any]:
        opened: list[InPlace] = []

        def open_one(place: Circumstances, _seed: int) -> InPlace:
            opened.append(InPlace(place))
            return opened[-1]

        collector = Collector(
            places=places,
            store=store,
            events=discard,
            measurers=open_one,  # pyright: ignore[reportArgumentType]
        )
        return opened, collector.run(asked)

    first, found = collected()
    assert not found.complete
    assert [len(measurer.asked) >= 10 for measurer in first] == [True, True]
    kept = store.stored_measurements()
    assert {m.placement_key for m in kept} == {place.placement.key for place in places}
    for row in kept:
        place = next(place for place in places if place.placement.key == row.placement_key)
        assert row.protocol == place.protocol
    again, none = collected()
    assert again == [] and none.samples == 0, "the budget counts what was spent in all places"


def test_controls_are_held_while_a_place_is_measured(store: SqliteStore, tmp_path: Path) -> None:
    """Their values are part of the class and of each row; what cannot be held is refused before."""
    design = Design(clocks=("usual", "2GHz"))
    here = altered(PLACEMENT, access="here", cpus=(0, 1))
    asked = collect_request(
        ["relu"], [], samples=4, design=design, budget=parse_budget("24"), options=ModelOptions()
    )
    usual, slow = places = circumstances_of([here], design, tree(tmp_path, SERVER))
    assert usual.placement == here and not usual.special and slow.special
    assert slow.placement.key.device_class == f"{here.key.device_class}+clock=2GHz"
    assert not is_usual(slow.placement.key.device_class)
    log: list[str] = []

    @contextmanager
    def holds(held: Iterable[Held], cpus: Sequence[int]) -> Iterator[None]:
        told = [one.text for one in held]
        log.append(f"begin {told} on {list(cpus)}")
        yield
        log.append(f"end {told}")

    def open_one(place: Circumstances, _seed: int) -> InPlace:
        log.append(f"measure {place.protocol.held!r}")
        return InPlace(place)

    def collect() -> None:
        Collector(
            places=places,
            store=store,
            events=discard,
            measurers=open_one,  # pyright: ignore[reportArgumentType]
            holds=holds,
        ).run(asked)

    collect()
    told = [
        *("begin [] on [0, 1]", "measure ''", "end []"),
        *("begin ['clock=2GHz'] on [0, 1]", "measure 'clock=2GHz'", "end ['clock=2GHz']"),
    ]
    assert log == told
    collect()
    assert log == told, "all is known, so nothing is held"
    rows = {m.device_class: m.protocol.held for m in store.stored_measurements()}
    assert {name.rpartition("+clock=")[2]: held for name, held in rows.items()} == {
        here.key.device_class: "",
        "2GHz": "clock=2GHz",
    }
    with pytest.raises(TargetError, match="clock cannot be set"):
        circumstances_of([here], design, tmp_path / "nothing")
    gpu = altered(here, kind="cuda")
    with pytest.raises(UsageError, match="--clock is for kernels on this machine's CPU and GPUs"):
        circumstances_of([gpu], design, tmp_path)


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CardSettings:
    monkeypatch.setattr(nvidia, "find_cards", lambda: (H100,))
    return CardSettings(H100, tmp_path / "card.json", monkeypatch)


@pytest.mark.usefixtures("card")
def test_controls_of_a_gpu_are_held_too(tmp_path: Path) -> None:
    """Rows of fewer multiprocessors are of a class, a target and resources of their own."""
    root, gpu = tree(tmp_path / "root", SERVER), cuda.placement_on(H100)
    design = Design(
        clocks=("usual", "1.5GHz"), power_caps=("350W",), multiprocessors=("usual", "64")
    )
    places = circumstances_of([gpu], design, root)
    classes = [place.placement.key.device_class for place in places]
    assert [name.removeprefix(gpu.key.device_class) for name in classes] == [
        "+power-cap=350W",
        "+power-cap=350W+multiprocessors=64",
        "+clock=1.5GHz+power-cap=350W",
        "+clock=1.5GHz+power-cap=350W+multiprocessors=64",
    ]
    assert not any(map(is_usual, classes))
    assert [str(place.placement.resources) for place in places] == ["132t", "64t"] * 2
    assert [place.placement.target.cores for place in places] == [132, 64] * 2
    assert {place.usual for place in places} == {gpu}
    assert {one.gpu for place in places for one in place.held} == {H100}
    assert places[3].protocol.held == "clock=1.5GHz,power-cap=350W,multiprocessors=64"
    assert is_usual(circumstances_of([gpu], Design(), root)[0].placement.key.device_class)


def test_a_gpu_is_held_while_a_place_is_measured(
    store: SqliteStore, tmp_path: Path, card: CardSettings
) -> None:
    root, gpu = tree(tmp_path / "root", SERVER), cuda.placement_on(H100)
    design = Design(power_caps=("usual", "350W"), multiprocessors=("usual", "64"))
    asked = collect_request(
        ["relu"], [], samples=2, design=design, budget=parse_budget("40"), options=ModelOptions()
    )
    limits: list[int] = []

    def open_one(place: Circumstances, _seed: int) -> InPlace:
        limits.append(card["limit"])
        return InPlace(place)

    Collector(
        places=circumstances_of([gpu], design, root),
        store=store,
        events=discard,
        measurers=open_one,  # pyright: ignore[reportArgumentType]
        holds=partial(holding, root=root),
    ).run(asked)
    assert limits == [700_000, 700_000, 350_000, 350_000]
    assert (card["limit"], card["locked"]) == (700_000, None)
    assert {m.protocol.held for m in store.stored_measurements()} == {
        "",
        "multiprocessors=64",
        "power-cap=350W",
        "power-cap=350W,multiprocessors=64",
    }


@pytest.mark.usefixtures("card")
def test_estimates_are_of_the_multiprocessors_that_are_held(tmp_path: Path) -> None:
    root, gpu = tree(tmp_path / "root", SERVER), cuda.placement_on(H100)
    whole, part = (
        place.placement
        for place in circumstances_of([gpu], Design(multiprocessors=("usual", "32")), root)
    )
    workload = single("dense", (4096, 1024), (1024, 4096), constants=(1,))
    candidate = default_candidate(workload, (PLAIN,) * 3, whole)[0]
    seconds = [estimate_s(workload, candidate, p.target, p.resources) for p in (whole, part)]
    assert seconds[1] > 2 * seconds[0]


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"smt": "off"}, UsageError, "--smt is for kernels on this machine's CPU, not for H100"),
        ({"cache_ways": "4"}, UsageError, "--cache-ways is for .* CPU, not for H100"),
        ({"multiprocessors": "60"}, UsageError, "--multiprocessors 60 cannot be had"),
        ({"power_caps": "900W"}, UsageError, "900 W is out of its range, 200 to 700 W"),
    ],
)
def test_values_that_a_gpu_has_not(
    tmp_path: Path, values: dict[str, str], error: type[Exception], said: str
) -> None:
    gpu, root = cuda.placement_on(H100), tree(tmp_path / "root", SERVER)
    design = Design(**{name: (text,) for name, text in values.items()})  # pyright: ignore[reportArgumentType]
    with pytest.raises(error, match=said):
        circumstances_of([gpu], design, root)


def test_a_cpu_has_no_multiprocessors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--multiprocessors is for kernels on .* GPUs, not for"):
        circumstances_of([FOUR], Design(multiprocessors=("64",)), tree(tmp_path, SERVER))


def test_without_smt_kernels_run_on_cpus_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.hardware.probe.process_affinity", lambda: frozenset(range(4)))
    root, off = tree(tmp_path, SERVER), Design(smt=("off",))

    def cpus(threads: int, *allotted: int, neighbours: int = 0) -> tuple[int, ...]:
        here = altered(PLACEMENT, access="here", threads=threads, cpus=allotted)
        design = replace(off, neighbours=(neighbours,))
        (place,) = circumstances_of([here], design, root)
        return place.placement.binding.cpus

    assert cpus(2, 0, 1, 2, 3) == (0, 1)
    assert cpus(1, 2, 1) == (1,), "the first one is off"
    with pytest.raises(TargetError, match="a kernel of 3 threads needs 3 .* process has 2") as few:
        cpus(3, 0, 1, 2, 3)
    assert few.value.hint == "Use --threads 2, or leave out --smt off."
    with pytest.raises(TargetError, match="need 4 logical CPUs; .* allotted 2 without SMT"):
        cpus(2, 0, 1, 2, 3, neighbours=1)
    remote = altered(FOUR, instance=remote_instance("board", "localhost", 9190), access="rpc")
    for elsewhere, said in ((remote, "a remote device"), (altered(FOUR, kind="cuda"), "--smt is")):
        with pytest.raises(UsageError, match=said):
            circumstances_of([altered(elsewhere, threads=4)], off, root)


def test_best_known_settings(tmp_path: Path, store: SqliteStore) -> None:
    """A model's choice; else what was fastest here, then elsewhere, never under other
    circumstances."""
    fast, slow, odd = candidates(3)
    best = partial(best_known, predictors_of(PLACEMENT, store, discard))
    assert best(TASK.workload, TASK.forms) is None
    store.add([measured(TASK.workload, odd, 1e-9, device_class=COLD.placement.device.class_key)])
    assert best(TASK.workload, TASK.forms) is None
    store.add([measured(TASK.workload, slow, 1e-6, device_class="elsewhere")])
    assert best(TASK.workload, TASK.forms) == slow
    store.add([measured(TASK.workload, fast, 1e-5)])
    assert best(TASK.workload, TASK.forms) == fast, "this class counts before others"
    with known_store(tmp_path / "k.db") as known:
        predictors = predictors_of(PLACEMENT, known, discard)
        predictors._loaded["conv2d"] = fitted()  # what its file would give
        chosen = best_known(predictors, TASK.workload, TASK.forms)
        assert chosen is not None and chosen.forms == TASK.forms
        kernels = [(TASK.workload, c) for c in (chosen, *candidates(200))]
        times_s = fitted().predict(predictors.features(kernels, fitted())).predicted
        assert np.mean(times_s < times_s[0]) < 0.05, "a few of all settings"


def test_values_that_no_factor_has() -> None:
    def request(families: tuple[str, ...] = ("relu",), **values: Any) -> tuple[str, ...]:
        found = collect_request(
            families,
            (),
            samples=5,
            design=Design(**values),
            budget=parse_budget("5"),
            options=ModelOptions(),
        )
        return found.families

    assert request(("conv2d",), dtypes=("float32", "int8")) == ("conv2d", "conv2d_int8")
    assert request(("conv2d_int8", "conv2d"), dtypes=("int8",)) == ("conv2d_int8",)
    assert request(("all",), dtypes=("int8",)) == ("conv2d_int8",)
    assert "conv2d_int8" not in request(("all",))
    for values, message in (
        ({"caches": ("luke",)}, "--cache 'luke'"),
        ({"dtypes": ("bfloat16",)}, "--dtype 'bfloat16'"),
        ({"dtypes": ("int8",)}, "no kernels of relu in int8"),
        ({"threads": (0,)}, "threads must be a whole number from 1"),
        ({"neighbours": (-1,)}, "neighbours must be a whole number from 0"),
        ({"clocks": ("2",)}, "--clock '2' is no value"),
        ({"clocks": ()}, "at least one value"),
    ):
        with pytest.raises(UsageError, match=message):
            request(**values)
    with pytest.raises(TargetError, match="3 copies beside a kernel of 2 threads need 8") as caught:
        circumstances_of([altered(FOUR, threads=2)], Design(neighbours=(1, 3)))
    assert "fewer" in (caught.value.hint or "")
    remote = altered(FOUR, instance=remote_instance("board", "localhost", 9190), access="rpc")
    assert circumstances_of([remote], Design())
    with pytest.raises(UsageError, match="remote"):
        circumstances_of([remote], Design(caches=("cold",)))


def test_rows_of_before_there_were_neighbours(store: SqliteStore, tmp_path: Path) -> None:
    """They keep their hash, so that imports still know them; tables without the column are read."""
    alone = measured(TASK.workload, candidates(1)[0], 1e-4)
    crowded = replace(
        alone, protocol=CROWDED.protocol, device_class=CROWDED.placement.device.class_key
    )
    assert "neighbours" not in row_of(alone)["protocol"]
    assert '"neighbours":2' in row_of(crowded)["protocol"]
    store.add_workload(TASK.workload)
    store.add([alone, crowded])
    table = tmp_path / "rows.csv"
    store.export(table)
    lines = list(csv.DictReader(table.open()))
    assert sorted(row["neighbours"] for row in lines) == ["0", "2"]
    older = tmp_path / "older.csv"
    with older.open("w", newline="") as file:
        names = [name for name in lines[0] if name != "neighbours"]
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(row for row in lines if row["neighbours"] == "0")
    found = store.import_file(older)
    assert (found.imported, len(found.skipped)) == (0, 0), "known already"
    with open_store(tmp_path / "other.db") as other:
        other.import_file(table)
        assert {m.protocol.neighbours for m in other.stored_measurements()} == {0, 2}
