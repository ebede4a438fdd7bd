"""A whole `optimize` on a simulated device: what it decides, tells and keeps of its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from helpers.commands.command_line import small_model
from helpers.fakes.engines import NumpyReference
from tilewright.core.errors import NegativeVerdict, OutputError, TargetError
from tilewright.core.events import Event, Note
from tilewright.core.records import Run
from tilewright.core.results import GraphTuneResult, OptimizeResult
from tilewright.core.targets import Target
from tilewright.deploy import optimizing, publishing, racing, shipment
from tilewright.deploy.opening import open_artifact
from tilewright.deploy.reserve import FEW, FULL, PLAIN
from tilewright.measure import checking
from tilewright.measure.base import TimeSpent
from tilewright.plan.preparation import prepare
from tilewright.search.levels import GraphLevel
from tilewright.search.network_search import NetworkSearch


@dataclass
class Bench:
    """A session in a folder of its own with a network of two tasks."""

    folder: Path
    session: tw.Session
    events: list[Event] = field(default_factory=list)

    @property
    def model(self) -> str:
        return str(self.folder / "net.onnx")

    def tune(self, budget: str | int, **wishes: Any) -> OptimizeResult:
        out = self.folder / "out"
        return self.session.tune(self.model, budget=budget, **{"out": out, **wishes}).result

    def optimize(self, budget: str | int) -> OptimizeResult:
        return self.session.optimize(self.model, budget=budget, out=self.folder / "out").result

    @property
    def notes(self) -> str:
        return "\n".join(event.message for event in self.events if isinstance(event, Note))

    @property
    def runs(self) -> list[Run]:
        network = prepare(self.model, tw.ModelOptions(), self.session.placement)
        return self.session.store.runs(network.key, self.session.placement.key)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    small_model(tmp_path / "net.onnx", filters=(16, 16), extent=8)
    events: list[Event] = []
    with tw.open(db=tmp_path / "a.db", target="simulated", events=events.append) as session:
        made = Bench(tmp_path, session, events)
        network = prepare(made.model, tw.ModelOptions(), session.placement)
        monkeypatch.setattr(racing, "make_peer", lambda _name: NumpyReference(network))
        monkeypatch.setattr(shipment.html, "render", lambda _result: "a report")
        yield made


def test_what_a_run_says_and_keeps(bench: Bench) -> None:
    found = bench.tune(12)
    assert (found.level, found.tuner) == ("subgraph", "default")
    assert found.measurements + found.failures == 12
    assert found.latency_s > 0 and found.elapsed_s > 0 and len(found.tasks) == 2
    assert found.curve and len(found.searches) == 2 and found.environment
    assert {"import", "recall", "search", "verify", "compile", "compare"} <= set(
        found.seconds_by_phase
    )
    (run,) = bench.runs
    assert (run.command, run.state, run.model) == ("tune", "done", bench.model)
    assert (run.measurements, run.failures) == (found.measurements, found.failures)
    assert 0 < run.spent_s <= found.elapsed_s
    files = {path.name for path in (bench.folder / "out").iterdir()}
    assert files == {"model.so", "weights.params", "manifest.json", "report.html"}
    assert not bench.notes.count("budget")
    assert (found.top1_agreement, found.warnings) == (1.0, ())
    assert found.top1_rows > 0 and found.centred_sqnr_db is not None


def test_the_manifest_has_what_kernels_need_of_the_processor(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def needed(names: Iterable[str], target: Target) -> tuple[str, ...]:
        assert target == bench.session.placement.target
        return tuple(sorted(set(names)))

    monkeypatch.setattr(publishing, "needed_features", needed)
    bench.tune(0)
    opened = open_artifact(bench.folder / "out")
    kernels = opened.manifest.plan["kernels"]
    assert set(opened.manifest.machine.features) == {each["implementation"] for each in kernels}


def test_outputs_that_cannot_tell_are_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking.telling, "untold", lambda *_: ("Nothing can be told.",))
    assert bench.tune(0).warnings[0] == "Nothing can be told."
    assert "Nothing can be told." in bench.notes


def test_a_larger_budget_measures_the_rest(bench: Bench) -> None:
    first, second = bench.tune(8), bench.tune(13)
    assert first.measurements + first.failures == 8
    assert second.measurements + second.failures == 5
    assert [run.state for run in bench.runs] == ["done", "done"]


def test_the_graph_is_searched_where_measurements_are_counted(bench: Bench) -> None:
    found = bench.optimize(40)
    assert isinstance(found, GraphTuneResult) and found.level == "graph"
    names = [row.name for row in found.assignments]
    assert {"chosen", "uniform", "history_best"} <= set(names) and found.shipped in names
    assert found.choices and (bench.folder / "out" / "layouts.onnx").is_file()
    (run,) = bench.runs
    assert run.command == "optimize"
    took = {row.name: row.measured_s for row in found.assignments}
    assert took[found.shipped] == pytest.approx(found.latency_s)


def test_bare_operators_are_known_to_the_store_at_their_level(bench: Bench) -> None:
    bench.tune(4)
    fused = len(list(bench.session.store.workloads()))
    found = bench.tune(9, level="op")
    assert found.level == "op" and bench.runs[-1].state == "done"
    assert len(list(bench.session.store.workloads())) > fused


@pytest.mark.parametrize(
    ("level", "tuner", "state", "settled"),
    [
        ("subgraph", "default", "converged", True),
        ("subgraph", "default", "converged graph", True),
        ("subgraph", "default", "done", False),
        ("subgraph", "random", "converged", False),
        ("op", "default", "converged", False),
        ("graph", "default", "converged", False),
        ("graph", "default", "converged graph", True),
    ],
)
def test_what_converged_before_is_settled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, level: str, tuner: str, state: str, settled: bool
) -> None:
    asked: list[bool] = []

    def plans(*_arguments: object, settled_before: bool) -> Any:
        asked.append(settled_before)
        raise KeyboardInterrupt

    monkeypatch.setattr(NetworkSearch, "plans", plans)
    with pytest.raises(KeyboardInterrupt):
        bench.tune(1)
    (run,) = bench.runs
    assert run.state == "interrupted"
    bench.session.store.update_run(type(run)(**{**fields_of(run), "state": state}))
    with pytest.raises(KeyboardInterrupt):
        bench.tune(1, level=level, tuner=tuner)
    assert asked == [False, settled]


def fields_of(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__dataclass_fields__}


@pytest.mark.parametrize(
    ("converged", "level", "state"),
    [
        (True, "subgraph", "converged"),
        (True, "op", "done"),
        (True, "graph", "converged graph"),
        (False, "subgraph", "done"),
    ],
)
def test_the_state_of_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, converged: bool, level: str, state: str
) -> None:
    whole = NetworkSearch.plans

    def plans(*arguments: Any, **named: Any) -> Any:
        return whole(*arguments, **named)[0], converged

    monkeypatch.setattr(NetworkSearch, "plans", plans)
    bench.tune(3, level=level)
    assert [run.state for run in bench.runs] == [state]


def test_a_winner_whose_layouts_were_not_searched_is_kept_as_that(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All on codes is searched in default layouts where the budget is short; a later run with more
    is to search its layouts."""
    whole = NetworkSearch.plans

    def plans(search: NetworkSearch, **named: Any) -> Any:
        search.with_graph = False
        return whole(search, **named)[0], True

    monkeypatch.setattr(NetworkSearch, "plans", plans)
    found = bench.tune(3, level="graph")
    assert [run.state for run in bench.runs] == ["converged"] and found.level != "graph"


@pytest.mark.parametrize("wrong", [False, True])
def test_all_on_codes_is_faster_only_than_what_raced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bool
) -> None:
    def entered(_work: object, entry: Any, *_more: object) -> Any:
        if wrong and entry.mixing:
            raise NegativeVerdict("It is wrong. Nothing was shipped.")
        return SimpleNamespace(race=entry, mixing=entry.mixing)

    monkeypatch.setattr(optimizing._Work, "_entered", entered)
    monkeypatch.setattr(optimizing, "fastest_of", lambda races: races[-1])
    events: list[Event] = []
    work: Any = object.__new__(optimizing._Work)
    work.entries = [SimpleNamespace(mixing="a mixture"), SimpleNamespace(mixing=None)]
    work.budget = SimpleNamespace(keeping=lambda _part: nullcontext())
    work.events = events.append
    assert work._fastest(None, None, tmp_path).mixing is None
    told = any("All on codes ran faster" in str(event) for event in events)
    assert told is not wrong


def stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch, **wishes: Any) -> NetworkSearch:
    """The search of an `optimize` that is interrupted as it begins."""
    searches: list[NetworkSearch] = []

    def plans(search: NetworkSearch, *_arguments: object, **_named: object) -> Any:
        searches.append(search)
        raise KeyboardInterrupt

    monkeypatch.setattr(NetworkSearch, "plans", plans)
    with pytest.raises(KeyboardInterrupt):
        (bench.tune if "level" in wishes else bench.optimize)(**wishes)
    return searches[0]


@pytest.mark.parametrize(
    ("wishes", "with_graph", "rivals", "line_up"),
    [
        ({"budget": "5s"}, False, True, PLAIN),
        ({"budget": "100s"}, True, True, FULL),
        ({"budget": "2h"}, True, True, FULL),
        ({"budget": 7}, True, True, FULL),
        ({"budget": "5s", "level": GraphLevel()}, True, False, FEW),
        ({"budget": "2h", "level": "subgraph"}, False, True, PLAIN),
    ],
)
def test_who_races_depends_on_the_budget(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    wishes: dict[str, Any],
    with_graph: bool,
    rivals: bool,
    line_up: Any,
) -> None:
    search = stopped(bench, monkeypatch, **wishes)
    assert (search.with_graph, search.rivals) == (with_graph, rivals)
    too_short = not with_graph and "level" not in wishes
    assert ("too short for the graph tuner" in bench.notes) is too_short
    assert ("too short to race other assignments" in bench.notes) is (line_up is FEW)
    reserve = optimizing.Reserve(
        tasks=2,
        weight_bytes=search.network.weight_bytes,
        budget_s=search.context.budget.limit.seconds,
        cpus=len(search.context.placement.binding.cpus),
    )
    kept_s = reserve.all_s(line_up) + reserve.looks_s(line_up)
    budget = search.context.budget
    if budget.limit.seconds < 1e9:
        left_s = budget.remaining_s + budget.elapsed_s + kept_s
        assert left_s == pytest.approx(budget.limit.seconds, abs=0.5)
    assert [run.state for run in bench.runs] == ["interrupted"]


def test_the_end_is_estimated_by_the_kernels_that_were_built(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    works: list[Any] = []
    monkeypatch.setattr(
        optimizing._Work,
        "carry_out",
        lambda work, _made: works.append(work) or SimpleNamespace(result=work),
    )
    bench.tune(5)
    (work,) = works
    before = work.reserve
    work.spent = TimeSpent()
    work.spent.kernels, work.spent.kernels_s, work.spent.build_s = 15, 60.0, 12.0
    work._after_round()
    assert work.reserve == before, "too few tell nothing"
    work.spent.kernels = 16
    work._after_round()
    assert work.reserve == before.corrected(work.spent)
    assert bench.runs[0].state == "running"


def test_nothing_to_measure_starts_one_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.measure.simulation import SimulatedMeasurer

    started: list[int | None] = []
    monkeypatch.setattr(
        SimulatedMeasurer, "start", lambda _self, workers=None: started.append(workers)
    )
    bench.tune(0)
    bench.tune(3)
    assert started == [1, None]


def test_noise_here_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "noise_warnings", lambda *_: ["it was noisy"])
    assert "it was noisy" not in bench.tune(2).warnings, "a simulated device is elsewhere"
    monkeypatch.setattr(optimizing, "is_local", lambda _device: True)
    assert bench.tune(2).warnings[-1] == "it was noisy"
    assert "it was noisy" in bench.notes


def test_a_device_that_runs_no_networks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    access = type("Access", (), {"runs_networks": False, "name": "toy"})
    monkeypatch.setattr(optimizing, "access_to", lambda _device: access)
    with pytest.raises(TargetError, match="reached by 'toy'"):
        bench.tune(1)


def test_places_are_looked_at_before_anything_is_searched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizing, "entered", lambda *_, **__: pytest.fail("too late"))
    (bench.folder / "file").write_text("in the way")
    inside = bench.folder / "file" / "there"
    with pytest.raises(OutputError):
        bench.tune(1, out=inside)
    with pytest.raises(OutputError):
        bench.tune(1, level=GraphLevel(save_problem=inside))


def test_predicted_only_nothing_ships(bench: Bench) -> None:
    problem = bench.folder / "p.json"
    found = bench.tune(0, level=GraphLevel(save_problem=problem))
    assert isinstance(found, GraphTuneResult) and found.artifact == ""
    assert found.elapsed_s > 0 and problem.is_file() and bench.runs == []
    assert not (bench.folder / "out" / "model.so").exists()
    assert all(row.measured_s is None for row in found.assignments)


def test_one_of_several_networks_may_be_wrong(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, race = optimizing.entered, optimizing._Work._entered
    left = [NegativeVerdict("It is off. Nothing was shipped.")]

    def first_is_wrong(work: Any, *given: Any) -> Any:
        if left:
            raise left.pop()
        return race(work, *given)

    monkeypatch.setattr(optimizing, "entered", lambda *g, **named: 2 * entered(*g, **named))
    monkeypatch.setattr(optimizing._Work, "_entered", first_is_wrong)
    assert bench.tune(0).latency_s > 0
    assert "networks that race is left out: It is off." in bench.notes
    assert "Nothing was shipped" not in bench.notes
