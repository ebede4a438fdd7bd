"""Who races, who must be right, what ships: with made-up times and results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.fakes.levels import PEAKS
from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.prepared_network import prepared, two_convolutions
from helpers.records.written_artifacts import manifest_content, write_content
from tilewright.core.budget import Budget, Limit
from tilewright.core.errors import ModelError, NegativeVerdict
from tilewright.core.events import Event, Note
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Placement
from tilewright.core.results import OptimizeResult
from tilewright.deploy import racing
from tilewright.deploy.hashes import file_sha256
from tilewright.deploy.manifest import LIBRARY, MANIFEST, WEIGHTS
from tilewright.deploy.publishing import publish, staging
from tilewright.deploy.racing import Race
from tilewright.deploy.shipment import answer_about, record, shipped_figures
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.workload import Workload
from tilewright.hardware.features import units_of
from tilewright.kernels.plans import lay_out
from tilewright.kernels.spaces import spaces
from tilewright.measure.network_timing import Rounds
from tilewright.measure.peers.base import EngineRefused
from tilewright.models.loaded import LoadedModel, ModelOptions
from tilewright.search.graph_search import RECONSIDERED
from tilewright.search.layout_costs import InNetworkFactors, timed_kernels
from tilewright.search.levels import OptimizeRequest
from tilewright.search.winners import DEFAULT, TUNED, in_default_settings
from tilewright.store import open_store
from tilewright.store.database import SqliteStore
from tilewright.store.known_candidates import defaults

WINOGRAD = "conv2d_winograd"
NETWORK = prepared(two_convolutions())
CHOSEN = "chosen"
NO_FORMS: Mapping[str, Form] = {}


@dataclass
class World:
    """What networks take and give, by plan: `seconds` where it is not a millisecond, `wrong`
    for results that are not ONNX Runtime's. `compiled` are those that were compiled; `slower` by
    how much kernels take longer in them than alone. Wrong results come from the input whose first
    element is `shown_by`, or from all."""

    seconds: dict[str, float] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    shown_by: float | None = None
    compiled: list[str] = field(default_factory=list)
    slower: dict[str, float] = field(default_factory=dict)
    plans: dict[str, NetworkPlan] = field(default_factory=dict)

    def worker(self, _placement: object) -> Any:
        return FakeWorker(self)


class FakeWorker:
    def __init__(self, world: World) -> None:
        self.world = world

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *_exception: object) -> None: ...

    def launch(self) -> None: ...

    def abort(self) -> None: ...

    def compile(self, plan: NetworkPlan, _constants: object, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.world.plans[folder.name] = plan
        self.world.compiled.append(folder.name)
        for name in (LIBRARY, WEIGHTS):
            (folder / name).write_text(folder.name)

    def load(self, *_arguments: object) -> None: ...

    def run(self, name: str, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        wrong = name in self.world.wrong and self.world.shown_by in (None, float(given[0].flat[0]))
        return [outputs(2.0 if wrong else 1.0)]

    def time(self, name: str, _inputs: object, *, repeats: int, warmup: int) -> list[float]:
        return [self.world.seconds.get(name, 1e-3)] * repeats

    def time_calls(self, name: str, _inputs: object, *, repeats: int) -> list[tuple[str, float]]:
        """A kernel takes a microsecond alone; calls of the machine itself are seen, too."""
        plan = self.world.plans[name]
        symbols = [plan.symbol(call) for call in plan.calls]
        seconds = 1e-6 * self.world.slower.get(name, 1.0)
        return [("vm.builtin.check", 1.0), *((symbol, seconds) for symbol in symbols)]


class FakePeer:
    """ONNX Runtime in every fifth round takes half as long again, where it is `jumpy`."""

    jumpy = False

    def __init__(self) -> None:
        self.turns = 0

    def start(self, *_arguments: object) -> None: ...

    def stop(self) -> None: ...

    def run(self, _inputs: object) -> Mapping[str, np.ndarray]:
        return {NETWORK.model.outputs[0]: outputs(1.0)}

    def time(self, _inputs: object, repeats: int, _warmup: int) -> Sequence[float]:
        self.turns += 1
        return [3e-3 if self.jumpy and self.turns % 5 == 0 else 2e-3] * repeats


def outputs(value: float) -> np.ndarray:
    shape = NETWORK.graph.types[NETWORK.graph.outputs[0]].shape
    return np.full(shape, value, np.float32)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(racing.targeting, "open_networks", made.worker)
    monkeypatch.setattr(racing, "make_peer", lambda _name: FakePeer())
    monkeypatch.setattr(racing.bisecting, "name_culprit", lambda *_: "the task to blame is x")
    monkeypatch.setattr(LoadedModel, "onnx_path", Path("made-up.onnx"))
    return made


@pytest.fixture
def store(tmp_path: Path) -> Generator[SqliteStore]:
    with open_store(tmp_path / "a.db") as opened:
        opened.add_device(PLACEMENT.device)
        yield opened


@dataclass
class Shipped:
    """What came of it."""

    race: Race
    place: Path
    result: OptimizeResult

    @property
    def name(self) -> str:
        return self.race.winner.name


def nothing(_race: Race) -> None: ...


@dataclass
class Yard:
    """Ships into `folder`, and writes the manifest as `optimize` does afterwards."""

    store: SqliteStore
    folder: Path
    events: list[Event] = field(default_factory=list)
    placement: Placement = PLACEMENT
    judged: Sequence[Mapping[str, np.ndarray]] = ()

    def ship(
        self,
        *plans: PlanResult,
        max_error: float = 1e-4,
        challenger: Callable[[Race], PlanResult | None] = nothing,
        spare_s: float = 0.0,
    ) -> Shipped:
        with staging(self.folder) as made:
            race = Race(
                network=NETWORK,
                placement=self.placement,
                judged=self.judged,
                events=self.events.append,
                request=OptimizeRequest(
                    model="made-up.onnx",
                    options=ModelOptions(),
                    budget=Limit(),
                    folder=self.folder,
                    max_error=max_error,
                    seed=0,
                ),
                staging=made,
                figures=shipped_figures(self.store, NETWORK, PLACEMENT),
                budget=Budget(Limit()),
                rounds=Rounds(budget=Budget(Limit(seconds=spare_s))),
            )
            race.run(plans)
            other = challenger(race)
            if other is not None:
                race.challenge(other)
            place, result = race.folder, answer_about(race, PEAKS)
            record(race, result, self.store)
            shipped = Shipped(race=race, place=place, result=result)
            files = [place / name for name in (LIBRARY, WEIGHTS)]
            content = manifest_content(
                fingerprint=race.fingerprint,
                sizes_bytes={file.name: file.stat().st_size for file in files},
                sha256={file.name: file_sha256(file) for file in files},
            )
            write_content(place, content)
            publish(place, self.folder)
        return shipped

    @property
    def notes(self) -> str:
        return "\n".join(e.message for e in self.events if isinstance(e, Note))

    def holds(self) -> str:
        return (self.folder / LIBRARY).read_text()


def plan_named(name: str, forms: Mapping[str, Form] = NO_FORMS, *, choice: int = 0) -> PlanResult:
    """Settings by number: those of the tuned one differ from the default ones."""

    def choose(workload: Workload, ports: tuple[Form, ...]) -> Candidate:
        space = spaces(workload, ports, PLACEMENT)[0]
        return space.part.candidate(int(space.numbers[choice % len(space.numbers)]))

    plan = lay_out(NETWORK.fused, {**NETWORK.forms, **forms}, lane_of(PLACEMENT), choose)
    return PlanResult(name=name, plan=plan)


def timed(found: PlanResult, seconds: float = 1e-6) -> PlanResult:
    """With a time for every kernel."""
    alone: Any = SimpleNamespace(latency_s=seconds, spread=0.0)
    return found.with_tasks(dict.fromkeys(found.plan.tasks, CallResult(alone=alone)))


def elsewhere() -> dict[str, Form]:
    tensor = next(name for name, form in NETWORK.forms.items() if form != PLAIN)
    return {tensor: PLAIN}


def chosen(choice: int = 3) -> PlanResult:
    return plan_named(CHOSEN, elsewhere(), choice=choice)


@pytest.mark.parametrize("name", [CHOSEN, "bfloat16"])
def test_the_fastest_ships_and_what_lost_does_not_race_again(world, store, tmp_path, name) -> None:
    yard, fast = Yard(store, tmp_path / "out"), plan_named(name, elsewhere(), choice=3)
    world.seconds = {name: 5e-4}
    first = yard.ship(plan_named(TUNED), fast)
    assert first.name == name and yard.holds() == name
    assert sorted(world.compiled) == sorted([name, DEFAULT, TUNED])
    world.compiled.clear()
    again = yard.ship(plan_named(TUNED), fast)
    assert again.name == name and world.compiled == []
    assert again.race.raced_s[TUNED] == 1e-3


def test_of_the_winners_of_two_races_the_one_that_is_faster_in_turn_ships(
    world, store, tmp_path
) -> None:
    races = [Yard(store, tmp_path / each).ship(plan_named(TUNED)).race for each in ("one", "two")]
    world.seconds = {"0": 2e-3, "1": 1e-3}  # as they are loaded for that
    assert racing.fastest_of(races) is races[1]
    world.seconds = {"0": 1e-3, "1": 2e-3}
    assert racing.fastest_of(races) is races[0]
    assert racing.fastest_of(races[1:]) is races[1]


def test_the_default_settings_race_again_where_all_others_lost(world, store, tmp_path) -> None:
    world.seconds = {DEFAULT: 5e-4}
    assert Yard(store, tmp_path / "one").ship(plan_named(TUNED)).name == DEFAULT
    yard = Yard(store, tmp_path / "two")
    assert yard.ship(plan_named(TUNED)).name == DEFAULT
    assert yard.holds() == DEFAULT


def test_wrong_results_in_other_layouts_are_left_out(world, store, tmp_path) -> None:
    world.seconds, world.wrong = {CHOSEN: 5e-4, "bfloat16": 4e-4}, {CHOSEN, "bfloat16"}
    yard, half = Yard(store, tmp_path / "out"), plan_named("bfloat16", choice=3)
    assert yard.ship(plan_named(TUNED), chosen(), half).name in (TUNED, DEFAULT)
    assert "'chosen' gives wrong" in yard.notes and "'bfloat16' is beyond" in yard.notes


@pytest.mark.parametrize("wrong", [{TUNED}, {DEFAULT}, {TUNED, DEFAULT, CHOSEN}])
def test_wrong_results_in_default_layouts_are_an_error(world, store, tmp_path, wrong) -> None:
    world.wrong = wrong
    with pytest.raises(NegativeVerdict, match="off by 1 .*task to blame is x"):
        Yard(store, tmp_path / "out").ship(plan_named(TUNED), chosen())
    assert not (tmp_path / "out" / LIBRARY).exists()


def test_a_fault_is_looked_for_on_the_input_that_shows_it(
    world, store, tmp_path, monkeypatch
) -> None:
    (name,) = NETWORK.graph.inputs
    shape = NETWORK.graph.types[name].shape
    judged = [{name: np.full(shape, value, np.float32)} for value in (1.0, 2.0, 3.0)]
    blamed: list[Any] = []
    monkeypatch.setattr(racing.bisecting, "name_culprit", lambda *g: blamed.append(g[3]) or "x")
    world.wrong, world.shown_by = {DEFAULT, TUNED}, 2.0
    with pytest.raises(NegativeVerdict):
        Yard(store, tmp_path / "out", judged=judged).ship(plan_named(TUNED))
    assert [each[name].flat[0] for each in blamed] == [2.0]


@pytest.mark.parametrize(
    ("precision", "features", "mixed"),
    [("bfloat16", ("avx512bf16",), True), ("auto", ("avx512bf16",), False), ("float16", (), False)],
)
def test_rounding_beyond_the_error_says_what_would_be_within(
    world, store, tmp_path, monkeypatch, precision, features, mixed
) -> None:
    target = replace(PLACEMENT.target, features=features, units=units_of(features, 64))
    coarse = replace(
        PLACEMENT, precision=precision, device=replace(PLACEMENT.device, target=target)
    )
    monkeypatch.setitem(racing.bisecting.ROUNDING, precision, 2.0)
    world.wrong = {TUNED, DEFAULT}
    with pytest.raises(NegativeVerdict, match=f"rounding in {precision} can cause") as told:
        Yard(store, tmp_path / "out", placement=coarse).ship(plan_named(TUNED))
    hint = told.value.hint or ""
    assert ("--precision auto --max-error 0.0001" in hint) is mixed
    assert "raise --max-error" in hint.lower()


def test_a_wrong_newcomer_does_not_spoil_a_race_without_the_tuned_one(
    world, store, tmp_path
) -> None:
    yard = Yard(store, tmp_path / "out")
    world.seconds = {DEFAULT: 5e-4}
    assert yard.ship(plan_named(TUNED)).name == DEFAULT
    world.wrong = {CHOSEN}
    assert yard.ship(plan_named(TUNED), chosen()).name == DEFAULT


def test_a_folder_without_its_manifest_is_not_taken_for_complete(world, store, tmp_path) -> None:
    yard = Yard(store, tmp_path / "out")
    yard.ship(plan_named(TUNED))
    world.compiled.clear()
    (yard.folder / MANIFEST).unlink()
    yard.ship(plan_named(TUNED))
    assert world.compiled


def test_folders_of_killed_processes_go(world, store, tmp_path) -> None:
    left = tmp_path / "out" / ".staging-abcd_123.tmp" / "tuned"
    left.mkdir(parents=True)
    Yard(store, tmp_path / "out").ship(plan_named(TUNED))
    assert [p.name for p in (tmp_path / "out").iterdir() if p.name.startswith(".")] == []


def test_default_settings_keep_to_the_allowed_error() -> None:
    tuned = plan_named(TUNED)
    for max_error, allowed in ((1e-4, True), (8e-6, False)):
        made = in_default_settings(tuned, PLACEMENT, max_error).plan.candidates
        assert made == defaults(NETWORK.tasks, PLACEMENT, max_error)
        assert allowed or WINOGRAD not in {c.implementation for c in made.values()}


def test_a_promise_needs_every_time() -> None:
    tuned = plan_named(TUNED)
    assert tuned.predicted_s is None
    assert timed(tuned, 2.0).predicted_s == 2.0 * len(tuned.plan.calls)


def test_places_in_the_network_correct_what_the_others_promise(world, store, tmp_path) -> None:
    world.seconds, world.slower = {CHOSEN: 5e-4}, {TUNED: 1.5, CHOSEN: 2.0}
    yard = Yard(store, tmp_path / "out")
    shipped = yard.ship(timed(plan_named(TUNED)), timed(chosen()))
    calls = sum(task.count for task in NETWORK.tasks.values())
    by_name = {raced.name: raced for raced in shipped.race.finished}
    assert InNetworkFactors(timed_kernels(by_name[TUNED])).factor(
        "any", (), "any"
    ) == pytest.approx(1.5)
    assert not [*timed_kernels(by_name[DEFAULT])], "its kernels were never timed alone"
    assert shipped.race.corrected_s[CHOSEN] == pytest.approx(1.5e-6 * calls), (
        "as the tuned one had it"
    )
    assert shipped.race.corrected_s[TUNED] == pytest.approx(2e-6 * calls), (
        "as the chosen one had it"
    )
    assert shipped.race.corrected_s[DEFAULT] is None
    rows = {row.key: row for row in shipped.result.tasks}
    assert all(row.in_place_s == pytest.approx(2e-6) for row in rows.values())


def test_shares_add_up_where_no_task_was_measured_alone(world, store, tmp_path) -> None:
    world.seconds = {TUNED: 1e-5}
    result = Yard(store, tmp_path / "out").ship(plan_named(TUNED)).result
    calls = sum(task.count for task in NETWORK.tasks.values())
    assert {row.latency_s for row in result.tasks} == {None}
    assert sum(row.share or 0.0 for row in result.tasks) == pytest.approx(calls * 1e-6 / 1e-5)
    assert result.rest_share == pytest.approx(1.0 - calls * 1e-6 / 1e-5)
    assert result.rest_s == pytest.approx(1e-5 - calls * 1e-6)


@pytest.mark.parametrize(("spare_s", "high"), [(0.0, 3.0), (1e9, 2.0)])
def test_rounds_that_vary_are_repeated_or_widen_the_claim(
    world, store, tmp_path, monkeypatch, spare_s, high
) -> None:
    monkeypatch.setattr(FakePeer, "jumpy", True)
    yard = Yard(store, tmp_path / "out")
    result = yard.ship(plan_named(TUNED), spare_s=spare_s).result
    assert result.reference_variation == pytest.approx(0.5)
    assert result.speedup_vs_reference == pytest.approx(2.0)
    assert result.speedup_vs_reference_high == pytest.approx(high)


def test_the_speedup_over_the_default_settings_comes_from_a_race_with_them(
    world, store, tmp_path
) -> None:
    world.seconds = {CHOSEN: 5e-4}
    yard = Yard(store, tmp_path / "out")
    first = yard.ship(plan_named(TUNED), chosen()).result
    assert first.speedup_vs_baseline == first.speedup_vs_baseline_low == pytest.approx(2.0)
    assert first.speedup_vs_reference_high == pytest.approx(4.0)
    world.seconds = {CHOSEN: 9e-4}
    again = yard.ship(plan_named(TUNED), chosen()).result
    assert again.baseline_latency_s == first.baseline_latency_s
    assert again.speedup_vs_baseline == first.speedup_vs_baseline, "they did not race this time"
    assert again.speedup_vs_baseline_high == first.speedup_vs_baseline_high


def test_default_settings_that_ship_are_as_fast_as_themselves(world, store, tmp_path) -> None:
    yard = Yard(store, tmp_path / "out")
    usual = replace(in_default_settings(plan_named(TUNED), PLACEMENT, 1e-4), name=TUNED)
    for seconds in (1e-3, 5e-4):
        world.seconds = {TUNED: seconds, DEFAULT: seconds}
        result = yard.ship(usual).result
        assert result.baseline_latency_s == result.latency_s == seconds
        assert result.speedup_vs_baseline == result.speedup_vs_baseline_high == 1.0


def test_the_baseline_is_known_where_the_tuned_plan_is_the_default_one(
    world, store, tmp_path
) -> None:
    world.seconds = {CHOSEN: 5e-4}
    usual = replace(in_default_settings(plan_named(TUNED), PLACEMENT, 1e-4), name=TUNED)
    result = Yard(store, tmp_path / "out").ship(usual, chosen()).result
    assert result.baseline_latency_s == pytest.approx(1e-3)
    assert result.speedup_vs_baseline == pytest.approx(2.0)


@pytest.mark.parametrize("seconds, winner", [(2e-4, RECONSIDERED), (8e-4, CHOSEN)])
def test_what_is_reconsidered_races_the_winner(world, store, tmp_path, seconds, winner) -> None:
    world.seconds = {CHOSEN: 5e-4, RECONSIDERED: seconds}
    yard = Yard(store, tmp_path / "out")
    again = plan_named(RECONSIDERED, elsewhere(), choice=5)
    shipped = yard.ship(plan_named(TUNED), chosen(), challenger=lambda _: again)
    assert shipped.name == winner and yard.holds() == winner
    assert sorted(world.compiled) == [CHOSEN, DEFAULT, RECONSIDERED, TUNED]
    assert shipped.race.raced_s == {
        TUNED: 1e-3,
        DEFAULT: 1e-3,
        CHOSEN: 5e-4,
        RECONSIDERED: seconds,
    }
    world.compiled.clear()
    once_more = yard.ship(plan_named(TUNED), chosen(), again)
    assert once_more.name == winner and world.compiled == []


def test_a_wrong_challenger_leaves_the_winner(world, store, tmp_path) -> None:
    world.seconds, world.wrong = {CHOSEN: 5e-4, RECONSIDERED: 1e-4}, {RECONSIDERED}
    yard = Yard(store, tmp_path / "out")
    for again in (
        plan_named(RECONSIDERED, elsewhere(), choice=5),
        plan_named(RECONSIDERED, choice=5),
    ):
        shipped = yard.ship(plan_named(TUNED), chosen(), challenger=lambda _, again=again: again)
        assert shipped.name == CHOSEN and yard.holds() == CHOSEN
    assert "reconsidered" in yard.notes


def test_a_challenger_that_raced_already_does_not_race_again(world, store, tmp_path) -> None:
    world.seconds = {CHOSEN: 5e-4}
    yard = Yard(store, tmp_path / "out")
    same = replace(chosen(), name=RECONSIDERED)
    shipped = yard.ship(plan_named(TUNED), chosen(), challenger=lambda _: same)
    assert shipped.name == CHOSEN and RECONSIDERED not in world.compiled
    assert shipped.race.raced_s[RECONSIDERED] == shipped.race.raced_s[CHOSEN]


def test_a_network_that_the_reference_refuses_is_at_fault(
    world, store, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_arguments: object) -> None:
        raise EngineRefused("onnxruntime failed: Fail: shapes")

    monkeypatch.setattr(FakePeer, "start", refuses)
    with pytest.raises(ModelError, match="cannot be checked: onnxruntime failed: Fail"):
        Yard(store, tmp_path / "out").ship(plan_named(TUNED))
