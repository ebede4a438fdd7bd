"""The fuzzer: its cases follow from their seeds, and it overlooks nothing bad."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest

from fuzz import main
from fuzzing import artifact_cases, byte_changes, database_cases, model_changes
from fuzzing.cases import Ground, generator
from fuzzing.command_cases import grammar
from fuzzing.journal import Journal
from fuzzing.model_cases import compare, differences, judged, model_case
from fuzzing.running import COUNTS, KINDS, Row
from fuzzing.seed_models import NETWORKS
from fuzzing.verdicts import Fault, faults_of
from fuzzing.warm import Ended

pytestmark = pytest.mark.regression
FINE = Ended(code=0, out="{}", err="", wall_s=0.1, cpu_s=0.1, peak_bytes=0)
TRACE = """Traceback (most recent call last):
  File "/x/src/tilewright/models/clean.py", line 7, in fold
    int(None)
TypeError: int() argument must be a string, not 'NoneType'
"""


def groups(ended: Ended, *words: str, given_bytes: int = 0) -> list[str]:
    return [fault.group for fault in faults_of(words or ("predict", "m"), ended, given_bytes)]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5])
def test_documented_ends_are_fine(code: int) -> None:
    assert groups(replace(FINE, code=code, err="error: so it is")) == []


def test_our_own_faults_are_bad_and_grouped_by_cause() -> None:
    (group,) = groups(replace(FINE, code=70, err=TRACE))
    assert (
        group
        == "exit 70: TypeError: int() argument must be a string, not … in models/clean.py:fold"
    )
    assert groups(replace(FINE, code=4, err=TRACE)), "a traceback, whatever the exit code"
    assert groups(replace(FINE, code=-11)) == ["crash: SIGSEGV in predict"]
    assert groups(replace(FINE, code=99)) == ["exit code 99"]
    assert groups(replace(FINE, code=4, err="")) == ["no message at exit code 4"]


def test_hangs_and_memory_are_bad() -> None:
    assert groups(replace(FINE, code=-9, timed_out=True)) == ["hang: predict"]
    large = replace(FINE, peak_bytes=3 << 30)
    assert groups(large) == ["memory: predict"]
    assert groups(large, given_bytes=2 << 30) == []
    stopped = replace(FINE, code=130, interrupted=True, wall_s=5.0)
    assert groups(replace(stopped, cpu_s=4.0)) == []
    assert groups(replace(stopped, cpu_s=0.01)) == ["hang: predict"], "it waited for a pipe"
    assert groups(replace(FINE, code=130)) == ["exit code 130"], "nobody interrupted it"


def test_json_is_json() -> None:
    words = ("predict", "m", "--format", "json")
    assert groups(replace(FINE, out='{"a": 1}'), *words) == []
    assert groups(replace(FINE, out='{"a": NaN}'), *words) == ["json of predict: NaN is not JSON"]
    assert groups(replace(FINE, out=""), *words)


@pytest.mark.parametrize("seed", [0, 7, 14, 21, 28, 35, 49, 56])
def test_a_model_follows_from_its_seed(tmp_path: Path, seed: int) -> None:
    """None of these takes a test of the onnx package: those take seconds to collect."""
    written = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        model_case(Ground(folder=tmp_path), seed, folder)
        written.append((folder / "model.onnx").read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("change", dict.fromkeys(model_changes.CHANGES), ids=lambda c: c.__name__)
def test_changes_of_models_change_them(change: model_changes.Change) -> None:
    changed = 0
    for seed in range(24):
        rng = Random(seed)
        model = rng.choice(NETWORKS)(rng)
        before = model.SerializeToString()
        change(model, rng)
        changed += model.SerializeToString() != before
    assert changed >= 12


def test_good_models_are_good() -> None:
    for build in NETWORKS:
        onnx.checker.check_model(build(Random(0)), full_check=True)


@pytest.mark.parametrize("change", dict.fromkeys(byte_changes.CHANGES), ids=lambda c: c.__name__)
def test_changes_of_bytes_take_any_length(change: byte_changes.Change) -> None:
    for length in (1, 2, 17, 5000):
        before = bytes(range(256)) * (length // 256 + 1)
        data = bytearray(before[:length])
        assert change(data, Random(length))


def test_wrong_numbers_are_seen() -> None:
    right = {"y": np.array([1.0, 2.0, np.nan], np.float32)}
    assert differences(right, right) == []
    off = {"y": np.array([1.0, 2.1, np.nan], np.float32)}
    assert differences(off, right) == ["output 'y': off by 0.05 of the largest"]
    infinite = {"y": np.array([1.0, np.inf, np.nan], np.float32)}
    assert differences(infinite, right) == ["output 'y': off by inf of the largest"]
    finite = {"y": np.array([1.0, 2.0, 0.0], np.float32)}
    assert differences(finite, right) == ["output 'y': other values are not finite"]
    assert differences({"y": right["y"][:2]}, right) == [
        "output 'y': is float32[2], not float32[3]"
    ]
    assert differences({"z": right["y"]}, right) == ["outputs are ['z'], not ['y']"]
    integers = {"y": np.arange(100)}
    assert differences({"y": np.arange(100) + 1}, integers)


def test_a_wrong_number_is_one_that_nobody_else_has() -> None:
    ours, other = {"y": np.zeros(2)}, {"y": np.ones(2)}
    assert judged(ours, ["cannot", ours]) == []
    assert judged(ours, [other, "cannot", ours]) == []
    (fault,) = judged(ours, ["cannot", other])
    assert fault.group.startswith("wrong number: output …: off by …")
    (fault,) = judged(ours, ["Fail: index 7 is out of bounds", "cannot"])
    assert fault.group == "answers where ONNX Runtime raises: Fail: index … is out of bounds"


def test_a_bad_model_is_not_the_fault_of_the_target(tmp_path: Path) -> None:
    refused = replace(FINE, code=3, err="error: onnxruntime failed")
    (fault,) = compare(tmp_path, 0, [refused])
    assert fault == Fault(group="the target is blamed for a bad model", text=refused.err)
    assert compare(tmp_path, 0, [replace(refused, code=4)]) == []


def test_a_wrong_number_of_an_artifact_is_seen(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.ones(3, np.float32))
    np.save(tmp_path / "ours.npy", np.full(3, 1.1, np.float32))
    outputs = {"data": {"outputs": [{"file": "ours.npy"}]}}
    ended = replace(FINE, out=json.dumps(outputs))
    ground = Ground(folder=tmp_path)
    (fault,) = artifact_cases.compare(ground, tmp_path, [ended])
    assert fault == Fault(group="wrong number from an artifact", text="off by 0.1")
    shutil.copy(tmp_path / "y.npy", tmp_path / "ours.npy")
    assert artifact_cases.compare(ground, tmp_path, [ended]) == []


def test_a_harmed_database_is_seen(tmp_path: Path) -> None:
    good = tmp_path / "good.db"
    with sqlite3.connect(good) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
        connection.execute("INSERT INTO runs VALUES (1)")
    before = database_cases.dump(good)
    refused = [replace(FINE, code=4), FINE]
    assert database_cases.unharmed(good, before, refused) == []
    with sqlite3.connect(good) as connection:
        connection.execute("INSERT INTO runs VALUES (2)")
    assert database_cases.unharmed(good, before, [FINE, FINE]) == [], "an import adds rows"
    (fault,) = database_cases.unharmed(good, before, refused)
    assert fault.group == "a refused file left rows in the good database"
    with sqlite3.connect(good) as connection:
        connection.execute("DELETE FROM runs WHERE id = 1")
    (fault,) = database_cases.unharmed(good, before, [FINE, FINE])
    assert fault.group == "rows of the good database are gone"
    good.write_bytes(b"no database")
    (fault,) = database_cases.unharmed(good, before, [FINE, FINE])
    assert fault.group == "the good database is harmed"


def test_command_lines_know_every_verb_and_flag() -> None:
    verbs = grammar()
    assert {("optimize",), ("db", "merge"), ("study", "tuners")} <= set(verbs)
    flags = {name for flag in verbs["profile",] for name in flag.names}
    assert {"MODEL", "--threads", "--memory", "--format"} <= flags
    switches = {name for flag in verbs["profile",] if flag.switch for name in flag.names}
    assert "--memory" in switches and "--threads" not in switches


def row(kind: str, seed: int, *faults: Fault) -> Row:
    return Row(
        kind=kind,
        seed=seed,
        what="something",
        commands=[("predict", "m")],
        codes=[0],
        seconds=1.0,
        peak_bytes=0,
        faults=faults,
    )


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.jsonl"
    Journal(path).add(row("models", 0))
    Journal(path).add(row("models", 1, Fault(group="exit 70: x", text="more")))
    with path.open("a") as file:
        file.write('{"kind": "models", "se')
    journal = Journal(path)
    assert set(journal.rows) == {("models", 0), ("models", 1)}
    assert [bad["seed"] for bad in journal.bad] == [1]
    assert "models: 2 cases, 1 bad" in journal.summary()
    assert "1 × exit 70: x\n  models:1" in journal.summary()


def test_all_kinds_are_counted() -> None:
    assert set(COUNTS) == set(KINDS)
    assert generator("models", 1).random() != generator("commands", 1).random()


def test_what_is_replayed_must_be_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--replay", "nothing:1"])
    assert raised.value.code == 2
    assert "KIND:SEED" in capsys.readouterr().err
