"""What the session makes of arguments before it calls the rooms below, which are replaced here."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from helpers.fakes.measuring import PLACEMENT
from tilewright.collect.design import Design
from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Note
from tilewright.core.records import PlacementKey
from tilewright.kernels.spaces import MAX_ERROR, MAX_ERRORS
from tilewright.search.levels import GraphLevel
from tilewright.session import forecasts, networks, records, studies

OPERATOR = "op:relu[shape=4]"
RELU = "op:relu[shape=1x16x8x8]"


class Asked:
    """Stands for whatever a session calls; keeps what it was called with and answers `answer`."""

    def __init__(self, answer: Any = "the answer") -> None:
        self.answer = answer
        self.arguments: list[Any] = []
        self.named: dict[str, Any] = {}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.arguments, self.named = list(arguments), named
        return self.answer


class Worker:
    """What `Profiler`, `Comparer` and the like make: it keeps what `run` and others get."""

    def __init__(self) -> None:
        self.run = Asked()
        self.explain = Asked()
        self.network = Asked()
        self.operators = Asked()
        self.predictors = SimpleNamespace(placement=PLACEMENT)


@pytest.fixture
def session(tmp_path: Path) -> tw.Session:
    return tw.open(db=tmp_path / "a.db", target="simulated", threads=2, seed=5)


@pytest.fixture
def optimize(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(networks.optimizing, "optimize", asked)
    return asked


def test_optimize_searches_the_graph_by_default_wishes(
    session: tw.Session, optimize: Asked
) -> None:
    made = session.optimize(RELU)
    request, placement, store, _ = optimize.arguments
    assert made.result == "the answer" and made.folder == request.folder
    assert (request.command, request.tuner, request.level) == ("optimize", "default", GraphLevel())
    assert (request.budget.seconds, request.budget.measurements) == (600.0, inf)
    assert (request.max_error, request.seed, request.options.seed) == (MAX_ERROR, 5, 5)
    assert request.folder.parent == Path("tilewright-out")
    assert placement is session.placement and store is session.store


@pytest.mark.parametrize(
    ("max_error", "precision"),
    [
        (None, "bfloat16"),
        (4e-3, "bfloat16"),
        ("3.8e-3", "float32"),
        ("50dB", "bfloat16"),
        ("56.5dB", "bfloat16"),
        ("57dB", "float32"),
    ],
)
def test_an_error_below_one_rounding_leaves_single_precision(
    monkeypatch: pytest.MonkeyPatch, max_error: Any, precision: str
) -> None:
    """In every verb alike; 50 dB were taken for an error of 3.2e-3 of the largest value."""
    said: list[Event] = []
    session = tw.open(db="memory:", target="simulated", events=said.append)
    worker, predicted = Worker(), Asked()
    made, optimize = Asked(worker), Asked()
    monkeypatch.setattr(networks.optimizing, "optimize", optimize)
    monkeypatch.setattr(networks.profiling, "Profiler", made)
    monkeypatch.setattr(networks.comparing, "Comparer", made)
    monkeypatch.setattr(forecasts, "forecaster_on_cores", Asked(worker))
    monkeypatch.setattr(forecasts, "allowing", lambda placement, _options: placement)
    monkeypatch.setattr(forecasts, "prepare", predicted)
    options = tw.ModelOptions(precision="bfloat16")
    for ask, told in (
        (session.optimize, lambda: optimize.arguments[0].options),
        (session.profile, lambda: worker.run.arguments[1]),
        (session.compare, lambda: worker.run.arguments[1]),
        (session.predict, lambda: predicted.arguments[1]),
    ):
        said.clear()
        ask(RELU, options=options, max_error=max_error)
        assert told().precision == precision
        notes = [event.message for event in said if isinstance(event, Note)]
        told_so = f"{max_error} is asked for: the network stays in float32."
        assert any(note.endswith(told_so) for note in notes) == (precision == "float32")


@pytest.mark.parametrize("precision", ["auto", "int8"])
def test_a_choice_of_types_is_made_within_any_error(
    session: tw.Session, optimize: Asked, precision: Any
) -> None:
    session.optimize(RELU, options=tw.ModelOptions(precision=precision), max_error="90dB")
    request = optimize.arguments[0]
    assert (request.options.precision, request.least_sqnr_db) == (precision, 90.0)


def test_tune_takes_every_wish(session: tw.Session, optimize: Asked, tmp_path: Path) -> None:
    made = session.tune(
        RELU, level="op", tuner="random", budget=7, out=tmp_path / "o", max_error=0.25
    )
    request = optimize.arguments[0]
    assert (request.command, request.tuner) == ("tune", "random")
    assert request.level == "op"
    assert (request.budget.seconds, request.budget.measurements) == (inf, 7)
    assert (request.max_error, request.folder) == (0.25, tmp_path / "o")
    assert made.folder == tmp_path / "o"
    with pytest.raises(UsageError, match="outt"):
        session.tune(RELU, outt=tmp_path)  # type: ignore[call-arg]


def test_profile(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    made, named = Asked(worker), Asked("a meter")
    monkeypatch.setattr(networks.profiling, "Profiler", made)
    monkeypatch.setattr(networks, "meter_of", named)
    assert session.profile(RELU) == "the answer"
    assert (made.named["meter"], made.named["memory"], made.named["verify"]) == (None, False, True)
    assert made.named["seed"] == 5 and made.named["max_error"] == MAX_ERROR
    assert worker.run.arguments[0] == RELU and worker.run.arguments[2] == "best"
    assert not named.arguments
    session.verify = False
    session.profile(RELU, meter="rapl", memory=True, settings="default", max_error=0.5)
    assert (
        named.arguments == ["rapl", session.placement.target] and made.named["meter"] == "a meter"
    )
    assert (made.named["memory"], made.named["verify"]) == (True, False)
    assert made.named["max_error"] == 0.5 and worker.run.arguments[2] == "default"


def test_compare(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    made = Asked(worker)
    monkeypatch.setattr(networks.comparing, "Comparer", made)
    session.compare(RELU)
    assert made.named["peers"] == ("onnxruntime", "openvino", "torch")
    assert (made.named["rounds"], made.named["settings"]) == (5, "best")
    assert worker.run.arguments[0] == [RELU] and worker.run.arguments[1].seed == 5
    session.compare([RELU, OPERATOR], peers="onnxruntime", rounds=1, settings="shipped")
    assert made.named["peers"] == ("onnxruntime",)
    assert (made.named["rounds"], made.named["settings"]) == (1, "shipped")
    assert worker.run.arguments[0] == [RELU, OPERATOR]


def test_show_run_and_solve(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown, ran, solved = Asked(), Asked(), Asked()
    monkeypatch.setattr(networks.showing, "show", shown)
    monkeypatch.setattr(networks.artifacts, "run_on", ran)
    monkeypatch.setattr(networks, "solve_file", solved)
    assert session.show(OPERATOR, "tir") == session.run(tmp_path, {}) == "the answer"
    assert shown.arguments[:2] == [OPERATOR, "tir"] and shown.named == {"verify": True}
    assert ran.arguments == [tmp_path, {}, session.placement]
    assert ran.named == {"verify": True, "events": session.events}
    session.solve("p.json")
    assert solved.arguments == [Path("p.json"), "auto"]


def test_collect(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, circumstances = Worker(), Asked("circumstances")
    collector_of = Asked(worker)
    monkeypatch.setattr(forecasts.collector, "collector_of", collector_of)
    monkeypatch.setattr(forecasts, "circumstances_of", circumstances)
    session.collect("conv2d", samples=1)
    request = worker.run.arguments[0]
    assert (request.samples, request.design, request.seed) == (1, Design(), 5)
    assert request.budget.seconds == 600.0
    targets, design = circumstances.arguments
    assert [each.resources.threads for each in targets] == [2] and design is request.design
    assert collector_of.arguments[0] == "circumstances"
    assert collector_of.arguments[1] is session.store and collector_of.arguments[3] is None
    session.meter = "rapl"
    several = Design(threads=(1, 3))
    session.collect(models=[OPERATOR], design=several, budget=9)
    request = worker.run.arguments[0]
    assert (request.models, request.design, request.samples) == ((OPERATOR,), several, 200)
    assert request.budget.measurements == 9 and collector_of.arguments[3] == "rapl"
    assert [each.resources.threads for each in circumstances.arguments[0]] == [1, 3]


def test_predict(session: tw.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = Worker()
    forecaster_on_cores = Asked(worker)
    monkeypatch.setattr(forecasts, "forecaster_on_cores", forecaster_on_cores)
    session.predict(RELU)
    prepared, settings, metrics = worker.network.arguments
    assert prepared.model.graph.inputs and settings == "default"
    assert forecaster_on_cores.arguments[4] == MAX_ERROR and metrics[:2] == ("latency", "power")
    table = tmp_path / "t.csv"
    table.write_text(f"operator\n{OPERATOR}\n")
    session.predict_table(table, max_error=0.5, settings="best")
    assert [text for text, _ in worker.operators.arguments[0]] == [OPERATOR]
    assert worker.operators.arguments[1] == "best" and forecaster_on_cores.arguments[4] == 0.5


@pytest.mark.parametrize("confirm", [False, True])
def test_explain_writes_only_what_it_measures(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch, confirm: bool
) -> None:
    worker, opened = Worker(), Asked("predictors")
    monkeypatch.setattr(forecasts.explaining, "Explainer", Asked(worker))
    monkeypatch.setattr(forecasts.modelling, "predictors_of", opened)
    monkeypatch.setattr(tw.Session, "store", "to write")
    monkeypatch.setattr(tw.Session, "records", "to read")
    session.explain(OPERATOR, versus=RELU, confirm=confirm)
    assert opened.arguments[1] == ("to write" if confirm else "to read")
    assert worker.explain.arguments == [OPERATOR, RELU]
    assert worker.explain.named == {"confirm": confirm}


def test_explain_for_a_gpu_opens_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker()
    made = Asked(worker)
    monkeypatch.setattr(forecasts, "cuda_explainer", made)
    session = tw.open(db=tmp_path / "a.db", target="cuda -model=H100")
    session.explain(OPERATOR)
    assert made.arguments[:2] == ["cuda -model=H100", None]
    assert worker.explain.arguments == [OPERATOR, None] and not (tmp_path / "a.db").exists()


def test_evaluate_and_threads(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    judged, studied = Asked(type("Evaluation", (), {"result": "judged"})), Asked()
    monkeypatch.setattr(forecasts.evaluating, "judge", judged)
    monkeypatch.setattr(forecasts.studies, "study_threads", studied)
    assert session.evaluate("t.csv", folds=3) == "judged"
    request = judged.arguments[0]
    assert (request.table, request.folds, request.shots) == (Path("t.csv"), 3, 0)
    assert (request.family, request.split, request.specs) == ("all", "configuration", None)
    assert (request.seed, judged.arguments[3]) == (5, 2)
    assert session.best_threads(RELU) == "the answer"
    argument, placement_with, most, *_ = studied.arguments
    assert (argument, most) == (RELU, 2)
    assert placement_with is not None


def test_studies_and_collecting_heed_a_precision(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The placement that kernels are chosen and measured for has it; so has the allowed error."""
    coarse: Any = "bfloat16"
    options = tw.ModelOptions(precision=coarse)
    for room in (forecasts, studies):
        monkeypatch.setattr(
            room, "allowing", lambda place, said: replace(place, precision=said.precision)
        )
    threads, placed, study = Asked(), Asked("circumstances"), Asked(Worker())
    swept, explained = Asked(), Asked(Worker())
    monkeypatch.setattr(forecasts.studies, "study_threads", threads)
    monkeypatch.setattr(forecasts, "circumstances_of", placed)
    monkeypatch.setattr(forecasts.collector, "collector_of", Asked(Worker()))
    monkeypatch.setattr(forecasts.explaining, "Explainer", explained)
    monkeypatch.setattr(studies.studies, "SubgraphStudy", study)
    monkeypatch.setattr(studies.sweeping, "swept", swept)
    session.best_threads(RELU, options=options)
    _, placement_with, _, timer, _ = threads.arguments
    assert placement_with(1).precision == coarse
    assert timer.keywords["max_error"] == MAX_ERRORS[coarse]
    session.collect(models=RELU, options=options)
    assert {each.precision for each in placed.arguments[0]} == {coarse}
    session.study_subgraph(RELU, options=options)
    assert study.named["placement"].precision == coarse
    session.study_padding(OPERATOR, options=options)
    session.explain(OPERATOR, options=options)
    for asked in (swept, explained):
        assert asked.named["predictors"].placement.precision == coarse


def test_records_go_in_and_out(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, given = Asked(), Asked(3)
    monkeypatch.setattr(records, "import_file", taken)
    monkeypatch.setattr(records, "export_file", given)
    session.import_file("log.json")
    request, store, placement = taken.arguments
    assert (request.path, request.kind, request.task) == (Path("log.json"), None, None)
    assert request.placement is None and store is session.store
    assert placement() is session.placement
    session.import_file("log.json", "autotvm", task="t", target="llvm")
    request = taken.arguments[0]
    assert (request.kind, request.task) == ("autotvm", "t")
    assert request.placement.resources.threads == 2
    assert session.export_file("out.csv", "csv") == 3
    assert given.arguments[:2] == [Path("out.csv"), "csv"]
    assert given.arguments[3]() is session.placement


def test_measurements_are_asked_for(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    class Records:
        stored_measurements = Asked(())

    monkeypatch.setattr(tw.Session, "records", Records)
    assert session.measurements().height == 0
    nothing = dict.fromkeys(("workload_key", "placement", "implementation", "run_id"))
    assert Records.stored_measurements.named == nothing
    key = session.placement.key
    assert isinstance(key, PlacementKey)
    said = {"workload_key": "w", "placement": key, "implementation": "i", "run_id": 0}
    session.measurements(**said)
    assert Records.stored_measurements.named == said


def test_studies(session: tw.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    studied, written, worker = Asked(), Asked(), Worker()
    study = Asked(worker)
    monkeypatch.setattr(studies.studies, "study_tuners", studied)
    monkeypatch.setattr(studies.studies, "write_page", written)
    monkeypatch.setattr(studies.studies, "SubgraphStudy", study)
    session.study_tuners()
    assert studied.arguments == [(), None] and not written.arguments
    assert (studied.named["seeds"], studied.named["processes"]) == (5, 2)
    session.study_tuners(sweep="s.json", tuners="random", out=tmp_path)
    assert studied.arguments == [("random",), Path("s.json")]
    assert written.arguments == [tmp_path, "the answer"]
    session.study_subgraph(OPERATOR)
    model, options, budget = worker.run.arguments
    assert (model, options.seed, budget.seconds) == (OPERATOR, 5, 240.0)
    assert (study.named["tuner"], study.named["seed"]) == ("default", 5)
    session.study_subgraph(OPERATOR, budget=3)
    assert worker.run.arguments[2].measurements == 3


def test_a_study_takes_the_cores_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studied, swept = Asked(), Asked()
    monkeypatch.setattr(studies.studies, "study_tuners", studied)
    monkeypatch.setattr(studies.sweeping, "swept", swept)
    session = tw.open(db=tmp_path / "a.db", target="simulated")
    session.study_tuners()
    assert studied.named["processes"] == len(session.placement.binding.cpus) > 0
    session.study_padding(OPERATOR, values=(1, 2))
    assert swept.arguments == [OPERATOR, "pad", (1, 2)]
