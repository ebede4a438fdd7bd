"""Python takes what people give: text for paths, one where several may stand, None for defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.collect.design import Design
from tilewright.core import arguments
from tilewright.core.errors import ModelError, UsageError
from tilewright.predict.evaluation import EvaluateRequest
from tilewright.search.levels import GraphLevel
from tilewright.session import networks

pytestmark = pytest.mark.regression


@pytest.fixture
def session(tmp_path: Path) -> tw.Session:
    return tw.open(db=str(tmp_path / "t.db"), threads=1)


def test_text_stands_for_paths_and_a_tilde_for_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with tw.open(db="~/mine.db") as opened:
        opened.measurements()
    assert (tmp_path / "mine.db").is_file()
    assert arguments.path_of("~/x", "out") == tmp_path / "x"
    assert arguments.path_of(Path("x"), "out") == Path("x")
    assert GraphLevel(save_problem="p.json").save_problem == Path("p.json")  # type: ignore[arg-type]
    assert EvaluateRequest(table="t.csv").table == Path("t.csv")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no compiled network"):
        tw.load("~/nothing")


def test_one_may_stand_where_several_may() -> None:
    design = Design(threads=2, caches="cold", neighbours=1, dtypes="int8")  # type: ignore[arg-type]
    assert (design.threads, design.caches) == ((2,), ("cold",))
    assert (design.neighbours, design.dtypes) == ((1,), ("int8",))
    assert arguments.texts_of("conv2d", "families") == ("conv2d",)
    assert arguments.texts_of(["a", "b"], "families") == ("a", "b")
    assert arguments.texts_of(None, "families") == ()
    assert arguments.counts_of(np.int64(3), "values") == (3,)


def test_none_is_the_default(monkeypatch: pytest.MonkeyPatch, session: tw.Session) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        networks.NetworkVerbs, "_optimized", lambda _, request: asked.append(request)
    )
    session.optimize("zoo:mlp", budget=None, out=None, options=None, max_error=None)
    session.tune("zoo:mlp", max_error=1e-3, budget="1h30m", out="~/o")
    default, tuned = asked
    assert (default.budget.seconds, default.max_error) == (600.0, 1e-4)
    assert default.folder == Path("tilewright-out/mlp")
    assert (tuned.max_error, tuned.budget.seconds) == (1e-3, 5400.0)
    assert tuned.folder == Path("~/o").expanduser()


WRONG: dict[str, Any] = {
    "a number as model": lambda s: s.optimize(5),
    "no model": lambda s: s.profile(None),
    "a number among models": lambda s: s.compare([7]),
    "no models": lambda s: s.compare(3.5),
    "none of several models": lambda s: s.compare([]),
    "peers": lambda s: s.compare("zoo:mlp", peers=[1]),
    "unknown peer": lambda s: s.compare("zoo:mlp", peers="nonsense"),
    "rounds": lambda s: s.compare("zoo:mlp", rounds=0),
    "budget": lambda s: s.optimize("zoo:mlp", budget=[1]),
    "budget of truth": lambda s: s.optimize("zoo:mlp", budget=True),
    "budget of a study": lambda s: s.study_subgraph("op:relu[shape=4]", budget=False),
    "budget text": lambda s: s.optimize("zoo:mlp", budget="soon"),
    "out": lambda s: s.optimize("zoo:mlp", out=3),
    "options": lambda s: s.optimize("zoo:mlp", options={"batch": 2}),
    "an argument that is none": lambda s: s.optimize("zoo:mlp", bugdet=2),
    "max_error": lambda s: s.tune("zoo:mlp", max_error="small"),
    "tuner": lambda s: s.tune("zoo:mlp", tuner=3),
    "level": lambda s: s.tune("zoo:mlp", level=3),
    "settings": lambda s: s.profile("zoo:mlp", settings=1),
    "memory": lambda s: s.profile("zoo:mlp", memory="yes"),
    "meter": lambda s: s.profile("zoo:mlp", meter=1),
    "inputs": lambda s: s.run("artifact", [1]),
    "artifact": lambda s: s.run(1, {}),
    "file": lambda s: s.solve(1),
    "what": lambda s: s.show("op:relu[shape=4]", 3),
    "table": lambda s: s.evaluate(5),
    "request": lambda s: s.judge({}),
    "folds": lambda s: s.evaluate(folds="five"),
    "samples": lambda s: s.collect("conv2d", samples="many"),
    "design": lambda s: s.collect("conv2d", design=3),
    "families": lambda s: s.fit(3),
    "metrics": lambda s: s.predict("zoo:mlp", metrics=3),
    "name": lambda s: s.explain(3),
    "sweep": lambda s: s.study_tuners(sweep=3),
    "values": lambda s: s.study_padding("op:relu[shape=4]", values="x"),
    "grid": lambda s: s.study_cores("op:relu[shape=4]", design=3),
    "kind": lambda s: s.import_file("f", 3),
    "path": lambda s: s.export_file(None),
    "placement": lambda s: s.measurements(placement="here"),
    "run": lambda s: s.measurements(run_id="one"),
    "db": lambda _: tw.open(db=3),  # type: ignore[arg-type]
    "threads": lambda _: tw.open(threads="two"),  # type: ignore[arg-type]
    "no threads": lambda _: tw.open(threads=0),
    "seed": lambda _: tw.open(seed=-1),
    "target": lambda _: tw.open(target=3),  # type: ignore[arg-type]
    "events": lambda _: tw.open(events=3),  # type: ignore[arg-type]
    "load": lambda _: tw.load(3),  # type: ignore[arg-type]
    "batch": lambda _: tw.ModelOptions(batch="two"),  # type: ignore[arg-type]
    "batch of nothing": lambda _: tw.ModelOptions(batch=0),
    "batch of truth": lambda _: tw.ModelOptions(batch=True),
    "shapes": lambda _: tw.ModelOptions(shapes=(1, 3)),  # type: ignore[arg-type]
    "shape": lambda _: tw.ModelOptions(shapes={"x": "1,3"}),  # type: ignore[arg-type]
    "sizes": lambda _: tw.ModelOptions(shapes={"x": (1, 2.5)}),  # type: ignore[arg-type]
    "names": lambda _: tw.ModelOptions(shapes={1: (1,)}),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kinds_are_usage_errors(session: tw.Session, name: str) -> None:
    with pytest.raises(UsageError) as found:
        WRONG[name](session)
    assert str(found.value)


def test_options_take_lists_and_numbers_of_numpy() -> None:
    options = tw.ModelOptions(batch=np.int32(2), shapes={"x": [1, np.int64(3)]})  # type: ignore[arg-type]
    assert (options.batch, type(options.batch)) == (2, int)
    assert options.shapes == {"x": (1, 3)}


def test_a_name_that_is_close_is_guessed(session: tw.Session) -> None:
    with pytest.raises(UsageError, match="Did you mean budget"):
        session.optimize("zoo:mlp", bugdet=2)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="Known: .*onnxruntime"):
        session.compare("zoo:mlp", peers="nonsense")


def test_a_session_shows_itself_without_opening_anything(tmp_path: Path) -> None:
    session = tw.open(db=tmp_path / "none.db", threads=2, seed=7)
    text = repr(session)
    for part in ("target llvm", "threads 2", "none.db", "seed 7"):
        assert part in text
    assert "<table>" in session._repr_html_() and "none.db" in session._repr_html_()
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.5, "2.5"),
        ("x" * 78, repr("x" * 78)),
        ("x" * 79, "a long str"),
        (10**90, "a long int"),
        (True, "True"),
        ([1], "a list"),
        (np.zeros(3), "a numpy.ndarray"),
    ],
)
def test_what_was_given_is_shown_if_it_is_short(value: object, shown: str) -> None:
    """Of others the kind: a list may have a million entries."""
    with pytest.raises(UsageError) as found:
        arguments.count_of(value, "rounds", least=10**100)
    assert found.value.message == f"rounds must be a whole number from {10**100}, not {shown}."


def test_numbers_within_their_limits() -> None:
    assert (arguments.count_of(0, "n"), arguments.count_of(3, "n", 3)) == (0, 3)
    for wrong in (2, -1, True, 2.0, "3"):
        with pytest.raises(UsageError, match="n must be a whole number from 3"):
            arguments.count_of(wrong, "n", 3)
    assert arguments.error_of(np.float32(0.5)) == 0.5
    assert arguments.error_of("1e-3") == 1e-3
    assert arguments.error_of("40dB") == pytest.approx(0.01) == arguments.error_of(" 40.0 db")
    assert [arguments.decibels_of(each) for each in ("30dB", "1e-3", 0.1)] == [30.0, None, None]
    for wrong in (0, -1.0, float("inf"), float("nan"), True, "x", "-3dB", "dB", "0", "1e999"):
        with pytest.raises(UsageError, match="max_error must be a number above 0"):
            arguments.error_of(wrong)
