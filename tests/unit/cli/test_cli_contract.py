"""stdout holds data only, in the envelope; exit codes and messages are those documented."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes.session import DATABASE_FIELDS, NOTE, OPTIMIZED, TASK, FakeSession
from helpers.records.written_artifacts import write_artifact
from tilewright.cli.output import envelope, plain
from tilewright.core.errors import (
    InternalError,
    ModelError,
    NegativeVerdict,
    OutputError,
    StoreError,
    TargetError,
    TilewrightError,
    UsageError,
)
from tilewright.core.records import PlacementKey
from tilewright.core.results import Check
from tilewright.core.targets import threads_alone
from tilewright.store import open_store

Command = Callable[..., Any]
VERBS = (
    ("optimize", ("zoo:resnet50",)),
    ("profile", ("zoo:resnet50",)),
    ("compare", ("zoo:mlp",)),
    ("show", ("op:conv2d[n=1]",)),
    ("collect", ("--op", "conv2d")),
    ("fit", ()),
    ("predict", ("zoo:resnet50",)),
    ("explain", ("op:conv2d[c=64]", "--versus", "op:conv2d[c=65]")),
    ("study padding", ("op:conv2d[c=64,pad=1]", "--values", "0,1")),
    ("study cores", ("op:relu[shape=8]", "--cores", "1,2,4", "--beside", "none")),
    ("evaluate", ("--table", "t.csv", "--family", "knobs")),
    ("doctor", ()),
    ("targets", ()),
    ("db info", ()),
    ("db gc", ()),
    ("db export", ("all.jsonl",)),
    ("db import", ("all.jsonl",)),
)


@pytest.mark.parametrize(("verb", "arguments"), VERBS)
def test_json_is_one_object_in_the_envelope(
    tilewright: Command, session: FakeSession, verb: str, arguments: tuple[str, ...]
) -> None:
    session.noise_on_stdout = "chatter of a library"
    session.events = [NOTE]
    ran = tilewright(*verb.split(), *arguments, "--format", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert set(document) == {"schema_version", "command", "data", "warnings"}
    assert document["schema_version"] == 1
    assert document["command"] == verb
    assert ran.out.count("\n") == 1
    assert "chatter" not in ran.out
    if verb not in ("db info", "db gc"):
        assert "chatter" in ran.err
        assert document["warnings"] == ["clocks moved"]
    assert session.closed == 1


@pytest.mark.parametrize("format", ["table", "csv", "md"])
@pytest.mark.parametrize(("verb", "arguments"), VERBS)
def test_every_verb_has_every_format(
    tilewright: Command, verb: str, arguments: tuple[str, ...], format: str
) -> None:
    ran = tilewright(*verb.split(), *arguments, "--format", format)
    assert ran.code == 0
    assert ran.out.strip()
    assert "\x1b" not in ran.out
    if format == "csv":
        rows = list(csv.reader(io.StringIO(ran.out)))
        assert len(rows) >= 2
        assert {len(row) for row in rows} == {len(rows[0])}


def test_fields_other_tools_rely_on(tilewright: Command) -> None:
    def data(*tokens: str) -> Any:
        return json.loads(tilewright(*tokens, "--format", "json").out)["data"]

    optimized = data("optimize", "zoo:resnet50")
    wanted = "model target threads latency_s baseline_latency_s reference_latency_s "
    wanted += "speedup_vs_reference max_abs_error tasks measurements failures elapsed_s artifact"
    assert set(wanted.split()) <= set(optimized)
    profiled = data("profile", "zoo:resnet50")
    assert profiled["network_latency_s"] == 0.010
    wanted = "name anchor implementation count latency_s share gflop_per_s gbyte_per_s bound"
    assert set(wanted.split()) <= set(profiled["tasks"][0])
    compared = data("compare", "zoo:mlp")
    wanted = "model peer precision threads latency_s peer_latency_s speedup max_abs_error "
    assert set((wanted + "max_rel_error").split()) <= set(compared["rows"][0])
    assert compared["geomean_speedup"] == 0.95
    assert set(data("db", "info")) == set(DATABASE_FIELDS)
    imported = data("db", "import", "some.log")
    assert {"lines", "imported", "skipped"} <= set(imported)
    assert imported["skipped"][0] == {"line": 1, "reason": "reason 1"}


def test_json_holds_no_nan_and_is_ascii(tilewright: Command, session: FakeSession) -> None:
    session.optimized = replace(OPTIMIZED, max_abs_error=math.nan, model="m\x9b\u202eä")
    ran = tilewright("optimize", "m", "--format", "json")
    assert ran.out.isascii()
    data = json.loads(ran.out, parse_constant=pytest.fail)["data"]
    assert data["max_abs_error"] is None
    assert data["model"] == "m\x9b\u202eä"


ERRORS = (
    (NegativeVerdict, 1),
    (UsageError, 2),
    (TargetError, 3),
    (ModelError, 4),
    (OutputError, 4),
    (StoreError, 5),
)


@pytest.mark.parametrize("format", ["table", "json"])
@pytest.mark.parametrize(("kind", "code"), ERRORS)
def test_errors_on_purpose(
    tilewright: Command,
    session: FakeSession,
    kind: type[TilewrightError],
    code: int,
    format: str,
) -> None:
    session.error = kind("the file is cut short", hint="Look at tilewright doctor.")
    ran = tilewright("profile", "m.onnx", "--format", format)
    assert ran.code == code
    assert ran.out == ""
    assert ran.err == "error: the file is cut short\n  Look at tilewright doctor.\n"
    assert session.closed == 1


@pytest.mark.parametrize("error", [ValueError("odd"), InternalError("odd"), KeyError("odd")])
def test_bugs_show_a_traceback_and_ask_for_a_report(
    tilewright: Command, session: FakeSession, error: Exception
) -> None:
    session.error = error
    ran = tilewright("profile", "m.onnx")
    assert (ran.code, ran.out) == (70, "")
    assert "Traceback" in ran.err
    assert "report" in ran.err.splitlines()[-1]


def test_interrupt_prints_the_command_that_resumes(
    tilewright: Command, session: FakeSession
) -> None:
    session.error = KeyboardInterrupt()
    ran = tilewright("optimize", "my model.onnx", "--budget", "2m", "--shape", "x=1,3")
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.splitlines()[-1].strip() == (
        "tilewright optimize 'my model.onnx' --budget 2m --shape x=1,3"
    )
    assert session.closed == 1


def test_an_interrupt_that_an_import_swallowed_is_one_too(
    tilewright: Command, session: FakeSession
) -> None:
    session.error = ImportError("initialization failed")
    session.error.__cause__ = KeyboardInterrupt()
    assert tilewright("profile", "m.onnx").code == 130


USAGE = (
    (("optimze", "m"), "optimize"),
    (("optimize", "m", "--buget", "3m"), "--budget"),
    (("optimize",), "MODEL"),
    (("optimize", "m", "n"), "n"),
    (("profile", "m", "--format", "yaml"), "table"),
    (("profile", "m", "--settings", "worst"), "shipped"),
    (("profile", "m", "--meter", "hwmon"), "--power"),
    (("profile", "m", "--threads", "0"), "--threads"),
    (("profile", "m", "--beside-threads", "2"), "--beside MODEL"),
    (("profile", "m", "--beside", "n", "--beside-threads", "0"), "--beside-threads"),
    (("profile", "m", "--threads", "two"), "--threads"),
    (("profile", "m", "--batch", "0"), "--batch"),
    (("profile", "m", "--seed", "-1"), "--seed"),
    (("profile", "m", "--shape", "x"), "NAME=1,3,224,224"),
    (("profile", "m", "--shape", "x=1,-3"), "NAME=1,3,224,224"),
    (("profile", "m", "--shape", "x=" + "9" * 5000), "NAME=1,3,224,224"),
    (("profile", "m", "--shape", "x=1", "--shape", "x=2"), "twice"),
    (("optimize", "m", "--max-error", "nan"), "--max-error"),
    (("optimize", "m", "--max-error", "30DBm"), "30dB"),
    (("compare",), "MODEL"),
    (("compare", "m", "--peers", ","), "--peers"),
    (("compare", "m", "--fail-below", "0"), "--fail-below"),
    (("show", "m", "--tir", "--asm"), "--tir and --asm"),
    (("run", "artifact"), "--input"),
    (("db", "nfo"), "info"),
    (("db", "gc", "--failures-older-than", "soon"), "duration"),
    (("db", "gc", "--cache-limit", "much"), "no size"),
    (("db", "export", "x", "--as", "xml"), "parquet"),
    (("db", "export", "x", "--kind", "autotv"), "autotvm"),
    (("db", "export", "nothing"), "--kind"),
    (("db", "import", "x", "--kind", "metaschedul"), "metaschedule"),
    (("db", "merge", "a.db"), "B"),
)


@pytest.mark.parametrize(("tokens", "word"), USAGE)
def test_usage_errors(
    tilewright: Command, session: FakeSession, tokens: tuple[str, ...], word: str
) -> None:
    ran = tilewright(*tokens)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err
    assert session.closed == 0


def test_flags_reach_the_session(tilewright: Command, session: FakeSession) -> None:
    shared = ["--db", "d.db", "--threads", "3", "--seed", "7", "--out", "there", "--target"]
    ran = tilewright(
        "optimize", "m", *shared, "llvm -mcpu=x", "--batch", "4", "--shape", "in=put=1, 3"
    )
    assert ran.code == 0
    opened, call = session.calls
    assert (opened["db"], opened["threads"], opened["seed"]) == ("d.db", 3, 7)
    assert opened["target"] == "llvm -mcpu=x"
    assert (call["model"], call["budget"], call["out"]) == ("m", "10m", Path("there"))
    options = call["options"]
    assert (options.batch, options.seed) == (4, 7)
    assert dict(options.shapes) == {"in=put": (1, 3)}


def test_what_json_lacks_is_told_all_the_same() -> None:
    """Names of files need not be UTF-8, and numbers need not be finite."""
    folder = Path(os.fsdecode(b"a\xff"))
    found = plain({"folder": folder, 1: (float("nan"), np.float64(2.0), {2**70})})
    assert found == {"folder": "a\udcff", "1": [None, 2.0, [2**70]]}
    assert json.loads(envelope("x", found, ()))["data"] == found


def test_out_keeps_the_json(tilewright: Command, session: FakeSession, tmp_path: Path) -> None:
    ran = tilewright("profile", "m", "--out", "kept", "--settings", "shipped")
    assert ran.code == 0
    kept = json.loads((tmp_path / "kept" / "profile.json").read_text())
    assert kept["command"] == "profile"
    assert session.calls[1]["settings"] == "shipped"
    assert "Report: kept/profile.html" in ran.out
    assert "Profiled for" in (tmp_path / "kept" / "profile.html").read_text()


@pytest.mark.parametrize(
    "words",
    [("profile", "m"), ("compare", "m"), ("study", "tuners"), ("collect", "--op", "all"),
     ("evaluate", "--family", "softmax")],
    ids=" ".join,
)  # fmt: skip
def test_nothing_is_measured_where_it_could_not_be_written(
    tilewright: Command, session: FakeSession, tmp_path: Path, words: Sequence[str]
) -> None:
    (tmp_path / "file").write_text("")
    ran = tilewright(*words, "--out", "file")
    assert (ran.code, ran.out, session.calls) == (4, "", [])
    assert "error: file/answer.json cannot be written: " in ran.err


def test_numbers_are_scaled_for_people_and_si_in_csv(tilewright: Command) -> None:
    table = tilewright("profile", "m").out
    assert "2 ms" in table
    assert "180" in table
    assert TASK.name in table
    rows = list(csv.DictReader(io.StringIO(tilewright("profile", "m", "--format", "csv").out)))
    assert float(next(row for row in rows if row["name"] == TASK.name)["latency_s"]) == 0.002


def test_doctor_fails_when_something_will_not_work(
    tilewright: Command, session: FakeSession
) -> None:
    session.checks += (Check(name="compiler", status="warning", detail="old"),)
    assert tilewright("doctor").code == 0
    session.checks += (Check(name="disk", status="problem", detail="full", advice="Make room."),)
    ran = tilewright("doctor")
    assert ran.code == 1
    assert "Make room." in ran.out


@pytest.mark.parametrize(("flag", "view"), [("--tir", "tir"), ("--asm", "asm"), (None, "graph")])
def test_show(tilewright: Command, session: FakeSession, flag: str | None, view: str) -> None:
    session.text = "for i:\n\tadd ```\n"
    ran = tilewright("show", "key", *([flag] if flag else []))
    assert ran.out == "for i:\n\tadd ```\n"
    assert session.calls[-1]["what"] == view
    assert tilewright("show", "key", "--format", "md").out.startswith("````\n")


@pytest.mark.parametrize("format", ["table", "csv", "md", "json"])
def test_show_of_an_artifact(
    tilewright: Command, session: FakeSession, tmp_path: Path, format: str
) -> None:
    write_artifact(tmp_path / "art", model="net\x1b[31m")
    ran = tilewright("show", "art", "--format", format)
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out and "conv2d" in ran.out
    assert len(session.calls) == 1, "it was opened and asked nothing"
    if format == "json":
        data = json.loads(ran.out)["data"]
        assert data["inputs"] == [{"name": "x", "shape": [1, 3], "dtype": "float32"}]
        assert data["files"][0]["state"] == "verified"
        assert data["tasks"][0]["settings"] == {"tile": 4}
    elif format != "csv":
        assert "verified" in ran.out and "x86-64-v3" in ran.out
    assert tilewright("show", "art", "--tir").code == 0
    assert session.calls[-1] == {"name": "art", "what": "tir"}


def test_files_of_an_artifact_are_checked_unless_told_otherwise(
    tilewright: Command, session: FakeSession, tmp_path: Path
) -> None:
    path = write_artifact(tmp_path / "art") / "model.so"
    path.write_bytes(path.read_bytes()[::-1])
    ran = tilewright("show", "art")
    assert ran.code == 4
    assert "model.so" in ran.err and "optimize" in ran.err
    assert "not checked" in tilewright("show", "art", "--no-verify").out
    np.save(tmp_path / "x.npy", np.ones(3))
    for verb in (("run", "art", "--input", "x.npy"), ("profile", "art"), ("compare", "art")):
        assert tilewright(*verb).code == 0
        assert session.verify
        assert tilewright(*verb, "--no-verify").code == 0
        assert not session.verify


def test_db_verbs_call_the_store(tilewright: Command, session: FakeSession) -> None:
    assert tilewright("db", "export", "a.x", "--as", "csv").code == 0
    assert (session.calls[-1]["path"], session.calls[-1]["kind"]) == (Path("a.x"), "csv")
    assert tilewright("db", "export", "a.t4").code == 0
    assert session.calls[-1]["kind"] is None
    flags = ("--kind", "t4", "--task", "conv2d-1", "--target", "llvm")
    assert tilewright("db", "import", "b.json", *flags).code == 0
    wanted = {"path": Path("b.json"), "kind": "t4", "task": "conv2d-1", "target": "llvm"}
    assert session.calls[-1] == wanted
    gc = ("db", "gc", "--keep-version", "1.0", "--keep-version", "1.1")
    assert tilewright(*gc, "--failures-older-than", "2h").code == 0
    assert session.store.calls == [
        ("gc", {"keep_versions": ("1.0", "1.1"), "failures_older_than_s": 7200.0}),
    ]


def test_merging_two_files(tilewright: Command, tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        with open_store(tmp_path / name) as store:
            store.add_peak(
                PlacementKey(device_class="some class", resources=threads_alone(1)),
                "flop_per_s",
                1.0,
            )
    ran = tilewright("db", "merge", "a.db", "b.db", "--format", "json")
    document = json.loads(ran.out)
    assert document["command"] == "db merge"
    data = document["data"]
    assert (data["lines"], data["imported"], data["skipped"]) == (1, 1, [])
    assert tilewright("db", "merge", "none.db", "b.db").code == 5
    assert tilewright("db", "merge", "a.db", "none.db").code == 4
    assert "imported" in tilewright("db", "merge", "a.db", "b.db", "--into", "c.db").out


def test_skipped_lines_are_told(tilewright: Command) -> None:
    out = tilewright("db", "import", "some.log").out
    assert "reason 20" in out
    assert "reason 21" not in out
    assert "More skipped lines, 5 of them" in out
    assert "3 of 30 lines fit no task" in out


def test_cleaning_up_keeps_the_cache_below_a_limit(
    tilewright: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    (tmp_path / "exports" / "key").mkdir(parents=True)
    (tmp_path / "exports" / "key" / "model.onnx").write_bytes(bytes(3000))
    info = json.loads(tilewright("db", "info", "--format", "json").out)["data"]
    assert (info["cache"], info["cache_bytes"]) == (str(tmp_path), 3000)
    for limit, left in (("3kB", True), ("2kB", False)):
        cleaned = json.loads(tilewright("db", "gc", "--cache-limit", limit, "--format", "json").out)
        assert cleaned["data"]["cached_models"] == (not left)
        assert (tmp_path / "exports" / "key").exists() == left


def test_database_info_is_readable(tilewright: Command) -> None:
    out = tilewright("db", "info").out
    assert "known.db" in out
    assert "12\u202f345" in out
    assert "4 KiB" in out


def test_warnings_of_the_result_are_shown_once(tilewright: Command, session: FakeSession) -> None:
    session.events = [NOTE]
    session.optimized = replace(OPTIMIZED, warnings=(NOTE.message, "late"), latency_spread=0.3)
    ran = tilewright("optimize", "m", "--format", "json")
    warnings = json.loads(ran.out)["warnings"]
    assert warnings[:2] == [NOTE.message, "late"]
    assert "30.0 %" in warnings[2]
    assert ran.err.count(NOTE.message) == 1
    assert ran.err.count("late") == 1


def test_version(tilewright: Command) -> None:
    ran = tilewright("--version")
    assert ran.code == 0
    assert ran.out.startswith("tilewright ")


@pytest.mark.parametrize(
    "verb", [(), *[tuple(verb.split()) for verb, _ in VERBS], ("run",), ("db",)]
)
def test_help(tilewright: Command, session: FakeSession, verb: tuple[str, ...]) -> None:
    ran = tilewright(*verb, "--help")
    assert ran.code == 0
    assert "Usage: tilewright" in ran.out
    assert ran.err == ""
    assert session.calls == []
    if verb and verb != ("db",):
        for flag in ("--out", "--format"):
            assert flag in ran.out


def test_run_writes_outputs(tilewright: Command, session: FakeSession, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 2), np.float32))
    values = np.array([1.0, np.nan, 3.0], np.float32)
    session.outputs = {"../../evil\x1b": values, "n/y": np.int64(4)}
    ran = tilewright("run", "art", "--input", "a=x.npy", "--format", "json")
    assert ran.code == 0
    call = session.calls[-1]
    assert list(call["inputs"]) == ["a"]
    first, second = json.loads(ran.out)["data"]["outputs"]
    folder = tmp_path / "tilewright-out" / "art" / "outputs"
    assert (
        sorted(path.parent for path in map(Path, (first["file"], second["file"])))
        == [folder.relative_to(tmp_path)] * 2
    )
    assert (first["min"], first["max"], first["not_finite"]) == (1.0, 3.0, 1)
    np.testing.assert_array_equal(np.load(tmp_path / first["file"]), values)
    assert np.load(tmp_path / second["file"]) == 4
    assert second["shape"] == []


def test_run_names_unnamed_inputs_by_the_manifest(
    tilewright: Command, session: FakeSession, tmp_path: Path
) -> None:
    for name, value in (("x=1.npy", 1), ("y.npy", 2)):
        np.save(tmp_path / name, np.array(value))
    inputs = [{"name": name, "shape": [], "dtype": "int64"} for name in ("second", "first")]
    write_artifact(tmp_path / "art", inputs=inputs)
    ran = tilewright("run", "art", "--input", "x=1.npy", "--input", "y.npy", "--out", "o")
    assert ran.code == 0, ran.err
    given = session.calls[-1]["inputs"]
    assert {name: int(array) for name, array in given.items()} == {"second": 1, "first": 2}
    assert (tmp_path / "o" / "y.npy").is_file()
    few = tilewright("run", "art", "--input", "y.npy")
    assert few.code == 2
    assert "'second', 'first'" in few.err
    mixed = tilewright("run", "art", "--input", "a=y.npy", "--input", "y.npy")
    assert mixed.code == 2
    double = tilewright("run", "art", "--input", "a=y.npy", "--input", "a=y.npy")
    assert double.code == 2
    assert tilewright("run", "nowhere", "--input", "y.npy").code == 4


def test_run_refuses_what_is_no_array(tilewright: Command, tmp_path: Path) -> None:
    assert tilewright("run", "art", "--input", "none.npy").code == 4
    (tmp_path / "text.npy").write_text("no array")
    assert tilewright("run", "art", "--input", "text.npy").code == 4
    np.save(tmp_path / "whole.npy", np.zeros(100))
    data = (tmp_path / "whole.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(data[:300])
    assert tilewright("run", "art", "--input", "cut.npy").code == 4
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    assert tilewright("run", "art", "--input", "objects.npy").code == 4
