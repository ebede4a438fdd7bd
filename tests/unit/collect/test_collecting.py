"""What `collect` measures follows from the request, once, and survives being stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.opened_measurer import Opened
from helpers.fakes.placements import altered
from tilewright.collect import collector as collecting
from tilewright.collect.collector import Collector, collector_of
from tilewright.collect.design import CollectRequest, Design, collect_request
from tilewright.core.budget import Limit, parse_budget
from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Note, discard
from tilewright.core.records import Candidate, EnergyUse, Measurement, Outcome
from tilewright.graph.workload import Workload
from tilewright.hardware.holding import Held
from tilewright.hardware.meters import Meter, MeterLost
from tilewright.hardware.remote import remote_place
from tilewright.measure.circumstances import Circumstances
from tilewright.measure.targeting import open_measurer_under
from tilewright.models import ModelOptions
from tilewright.store import open_store
from tilewright.store.database import SqliteStore


def seconds(workload: Workload, candidate: Candidate) -> float | None:
    """Every seventh or so fails to build."""
    return None if hash((workload.text, candidate.settings)) % 7 == 0 else 1e-4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "c.db") as opened:
        yield opened


def request(
    *families: str, samples: int = 12, budget: str = "1000", models: tuple[str, ...] = ()
) -> CollectRequest:
    return collect_request(
        families,
        models,
        samples=samples,
        design=Design(),
        budget=parse_budget(budget),
        options=ModelOptions(),
    )


def collector(store: SqliteStore, measurer: Opened) -> Collector:
    return Collector(
        places=(Circumstances(usual=PLACEMENT),),
        store=store,
        events=discard,
        measurers=lambda _place, _seed: measurer,
    )  # pyright: ignore[reportArgumentType]


def test_a_repeated_command_measures_nothing_anew(store: SqliteStore) -> None:
    first = collector(store, Opened(seconds)).run(request("dense"))
    assert first.complete and first.known == 0
    assert first.samples + first.failures == 12
    assert first.beside >= 1, "the probe of the machine's speed"
    again = Opened(seconds)
    second = collector(store, again).run(request("dense"))
    assert (second.samples, second.failures, second.known) == (0, 0, 12)
    assert not again.asked


@pytest.mark.parametrize("family", ["conv2d", "dense", "softmax", "transpose"])
def test_as_many_are_measured_as_were_asked_for(store: SqliteStore, family: str) -> None:
    found = collector(store, Opened(lambda _w, _c: 1e-4)).run(request(family, samples=6))
    assert (found.samples, found.failures, found.complete) == (6, 0, True)
    stored = store.stored_measurements()
    assert len(stored) == found.samples + found.beside
    (run,) = store.runs(request(family, samples=6).key, PLACEMENT.key)
    assert run.measurements == len(stored), "a budget counts the copies and the probe, too"


def test_more_samples_begin_with_those_that_are_known(store: SqliteStore) -> None:
    collector(store, Opened(seconds)).run(request("softmax", samples=8))
    more = collector(store, Opened(seconds)).run(request("softmax", samples=20))
    assert more.known == 8


def test_families_take_turns(store: SqliteStore) -> None:
    measurer = Opened(seconds)
    collector(store, measurer).run(request("relu", "softmax", "dense", samples=8))
    kinds = [key.split("-")[0] for key, _ in measurer.asked]
    assert {"elementwise", "softmax", "dense"} <= set(kinds)
    assert kinds.index("dense") < len(kinds) - 1 - kinds[::-1].index("elementwise")


def test_defaults_come_first_and_no_kernel_twice(store: SqliteStore) -> None:
    measurer = Opened(lambda _w, _c: 1e-4)
    collector(store, measurer).run(request("conv2d", samples=16))
    assert len(set(measurer.asked)) == len(measurer.asked)
    assert len({c.forms for _, c in measurer.asked}) > 1, "other layouts are tried, too"


def test_the_budget_ends_it_and_a_larger_one_goes_on(store: SqliteStore) -> None:
    part = collector(store, Opened(seconds)).run(request("relu", samples=40, budget="10"))
    assert not part.complete
    assert 10 <= part.samples + part.failures + part.beside <= 14
    rest = collector(store, Opened(seconds)).run(request("relu", samples=40, budget="1000"))
    assert rest.complete and rest.known == part.samples + part.failures


def test_nothing_is_measured_without_a_budget(store: SqliteStore) -> None:
    measurer = Opened(seconds)
    found = collector(store, measurer).run(request("relu", budget="0"))
    assert (found.samples, found.complete) == (0, False)
    assert not measurer.asked


def test_control_c_keeps_what_was_measured(store: SqliteStore) -> None:
    measurer = Opened(seconds)

    def interrupt(_event: Event) -> None:
        if len(measurer.asked) >= 6:
            signal.raise_signal(signal.SIGINT)

    stopped = replace(collector(store, measurer), events=interrupt)
    with pytest.raises(KeyboardInterrupt):
        stopped.run(request("relu", samples=400))
    kept = len(store.stored_measurements())
    assert 0 < kept < 20
    runs = store.runs(request("relu", samples=400).key, PLACEMENT.key)
    assert [run.state for run in runs] == ["interrupted"]
    assert runs[0].measurements == kept


def test_a_networks_own_tasks(store: SqliteStore) -> None:
    measurer = Opened(lambda _w, _c: 1e-4)
    found = collector(store, measurer).run(request(models=("zoo:mlp",)))
    assert found.complete and found.samples > 3
    assert any(key.startswith("dense") for key, _ in measurer.asked)


def with_energy(outcome: Outcome) -> Outcome:
    used = EnergyUse(method="fake", energy_j=1e-3, power_w=10.0)
    return replace(outcome, energy=used) if isinstance(outcome, Measurement) else outcome


class Metered(Opened):
    """A measurer that tells energy, too."""

    def measure(self, *arguments: Any, finished: Any = None, **more: Any) -> list[Outcome]:
        outcomes = super().measure(*arguments, finished=lambda _: None, **more)
        metered = [with_energy(outcome) for outcome in outcomes]
        for outcome in metered:
            finished(outcome)
        return metered


class Sensor:
    """A meter that is there, or is not."""

    method, update_s = "fake", 0.01

    def __init__(self, lost: str = "") -> None:
        self.lost = lost

    def unavailable(self) -> MeterLost | None:
        return MeterLost(self.lost) if self.lost else None


def test_a_kernel_without_energy_is_not_known_where_energy_is_asked_for(
    store: SqliteStore,
) -> None:
    timed = collector(store, Opened(lambda _w, _c: 1e-4)).run(request("relu"))
    metered = replace(collector(store, Metered(lambda _w, _c: 1e-4)), meter=cast("Meter", Sensor()))
    first = metered.run(request("relu"))
    assert (first.samples, first.known) == (timed.samples, 0)
    rows = [m for m in store.stored_measurements() if m.energy is not None]
    assert len(rows) == first.samples + first.beside
    again = replace(collector(store, Metered(lambda _w, _c: 1e-4)), meter=cast("Meter", Sensor()))
    assert again.run(request("relu")).samples == 0


def test_without_a_sensor_times_are_enough_and_the_reason_is_told(store: SqliteStore) -> None:
    collector(store, Opened(lambda _w, _c: 1e-4)).run(request("relu"))
    heard: list[Event] = []
    unmetered = replace(
        collector(store, Opened(lambda _w, _c: 1e-4)),
        meter=cast("Meter", Sensor("No RAPL here.")),
        events=heard.append,
    )
    assert unmetered.run(request("relu")).samples == 0
    assert any("No RAPL here." in e.message for e in heard if isinstance(e, Note))


def test_no_meter_of_this_machine_tells_of_another() -> None:
    elsewhere = altered(PLACEMENT, instance="rpc:box/127.0.0.1:9190")
    assert remote_place(elsewhere.device) == ("box", "127.0.0.1", 9190)
    with pytest.raises(UsageError, match="--power"):
        open_measurer_under(Circumstances(usual=elsewhere), 0, cast("Meter", Sensor()))


def test_a_meter_would_read_neighbours_as_well(store: SqliteStore) -> None:
    crowded = (Circumstances(usual=PLACEMENT, neighbours=1),)
    with pytest.raises(UsageError, match="including the copies"):
        collector_of(crowded, store, discard, "none")


@pytest.mark.parametrize(
    ("place", "measured"),
    [
        (Circumstances(usual=PLACEMENT), []),
        (Circumstances(usual=PLACEMENT, neighbours=1), [PLACEMENT]),
        (
            Circumstances(usual=PLACEMENT, neighbours=1, held=(Held(control="clock", value=2e9),)),
            [],
        ),
    ],
    ids=("alone", "beside a copy", "beside a copy, at a clock of its own"),
)
def test_how_much_kernels_slow_each_other_down_is_measured_under_usual_controls(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, place: Circumstances, measured: list[Any]
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(collecting, "keep_contention", lambda _store, where: kept.append(where))
    here = replace(collector(store, Opened(seconds)), places=(place,), holds=holds_nothing)
    here.run(request("relu", samples=1))
    assert kept == measured


def holds_nothing(*_asked: object) -> Any:
    return nullcontext()


def test_families_that_are_not_known_and_numbers_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="no family of operators 'conv3d'"):
        request("conv3d")
    with pytest.raises(UsageError, match="samples"):
        request("relu", samples=0)
    assert "conv2d" in request("all").families
    assert CollectRequest(budget=Limit(), options=ModelOptions()).key != request("relu").key
