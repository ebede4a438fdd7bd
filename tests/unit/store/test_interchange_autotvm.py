"""AutoTVM's logs, both formats."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from helpers.records.interchange_records import (
    CONVOLUTION,
    FORMS,
    PLACEMENT,
    SHARED_LOG,
    SKYLAKE,
    version_1,
    version_2,
)
from helpers.records.store_records import failures
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.records import Candidate, Measurement, Protocol
from tilewright.core.results import ImportResult
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import local_placement, parse_target
from tilewright.kernels.convolution import convolution
from tilewright.kernels.registry import implementation
from tilewright.store import open_store
from tilewright.store.database import SqliteStore
from tilewright.store.interchange.autotvm import convolution_task, described_by

ROOT = Path(__file__).resolve().parents[3]


def take(store: SqliteStore, tmp_path: Path, *lines: str) -> ImportResult:
    path = tmp_path / "some.log"
    path.write_text("\n".join(lines) + "\n")
    return store.import_file(path)


def only(store: SqliteStore) -> Measurement:
    (found,) = store.stored_measurements()
    return found


def test_format_1_becomes_settings_of_the_direct_convolution(
    store: SqliteStore, tmp_path: Path
) -> None:
    taken = take(store, tmp_path, version_1())
    assert (taken.kind, taken.lines, taken.imported, taken.skipped) == ("autotvm", 1, 1, ())
    found = only(store)
    workload = store.workload(found.workload_key)
    assert workload is not None
    conv = convolution(workload)
    assert (conv.in_channels, conv.out_channels, conv.in_height, conv.kernel) == (
        64,
        64,
        56,
        (3, 3),
    )
    assert (conv.strides, conv.padding) == ((1, 1), (1, 1, 1, 1))
    assert workload.arguments[1].role == "constant"
    settings = dict(found.candidate.settings)
    assert found.candidate.implementation == "conv2d_direct"
    assert found.candidate.forms == (blocked(64), PLAIN, blocked(32))
    assert (settings["lanes"], settings["tile_width"], settings["tile_height"]) == (32, 4, 1)
    assert (settings["tile_out"], settings["in_block"]) == (1, 64)
    assert (settings["unroll"], settings["reduce_order"]) == ("kx", "chunk,ky,lane,kx")
    assert found.samples_s == (0.0001027261465,)
    assert found.created_at == 1535509104.953128
    assert found.kernel_hash.startswith("imported:")


def test_format_2_and_packed_arguments(store: SqliteStore, tmp_path: Path) -> None:
    packed = [
        ["TENSOR", [1, 4, 56, 56, 16], "float32"],
        ["TENSOR", [4, 4, 3, 3, 16, 32], "float32"],
        [2, 2],
        [1, 1, 1, 1],
        [1, 1],
        "NCHW16c",
        "NCHW32c",
        "float32",
    ]
    assert take(store, tmp_path, version_2(), version_2(arguments=packed)).imported == 2
    one, other = store.stored_measurements()
    assert one == other
    assert one.candidate.setting("unroll") == "none"
    assert one.candidate.setting("in_block") == 16
    assert one.samples_s == (6.0e-5, 6.2e-5)
    assert "0.8.0" in one.versions


def test_pointwise_convolutions_have_their_rows_collapsed(
    store: SqliteStore, tmp_path: Path
) -> None:
    knobs = (
        ("tile_ic", "sp", [2, 32]),
        ("tile_oc", "sp", [4, 16]),
        ("tile_ow", "sp", [4, 7]),
        ("tile_oh", "ot", 2),
    )
    line = version_1(data=(1, 64, 28, 28), weight=(64, 64, 1, 1), padding=0, knobs=knobs)
    assert take(store, tmp_path, line).imported == 1
    found = only(store)
    workload = store.workload(found.workload_key)
    assert workload is not None
    assert workload.result.shape == (1, 64, 1, 784)
    assert dict(found.candidate.settings)["tile_width"] == 14


def test_failures_keep_their_kind(store: SqliteStore, tmp_path: Path) -> None:
    lines = [version_1(result=([1e9], error, 3.0, 5.0 + error)) for error in range(1, 9)]
    texts = version_1(result=(["no room"], 4, 3.0, 99.0))
    assert take(store, tmp_path, *lines, texts).failures == 9
    key = convolution_task(
        (1, 64, 56, 56), (64, 64, 3, 3), strides=(1, 1), padding=(1,) * 4, dilation=(1, 1)
    ).key
    found = failures(store, key, described_by(SKYLAKE).key)
    kinds = ["build", "build", "build", "crash", "wrong result", "timeout", "timeout", "crash"]
    assert [failure.kind for failure in found] == [*kinds, "crash"]
    assert found[-1].message == "no room"


DENSE = [["tile_k", "sp", [-1, 8]], ["tile_x", "sp", [-1, 4]]]
HUGE = (("tile_ic", "sp", [1, 64]), ("tile_oc", "sp", [1, 64]), ("tile_ow", "sp", [1, 56]))
ODD = (("tile_ic", "sp", [1, 48]), ("tile_oc", "sp", [2, 32]), ("tile_ow", "sp", [14, 4]))
INT8 = [["TENSOR", [1, 64, 8, 8], "int8"], ["TENSOR", [64, 64, 3, 3], "int8"], [1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (version_1()[:-40], "cut short"),
        ("[]", "not a JSON object"),
        ("hello", "not a JSON object"),
        ('{"a": 1}', "neither AutoTVM's format 0.1 nor 0.2"),
        ('{"input": [], "config": {}, "result": []}', "names no target"),
        (version_2(task="dense_pack.x86", entity=DENSE), "dense_pack.x86.*tile_k, tile_x"),
        (version_2(task="depthwise_conv2d_NCHWc.x86"), "depthwise_conv2d_NCHWc.x86"),
        (version_2(target="cuda -model=v100", task="conv2d_nchw.cuda"), "cuda, not for a CPU"),
        (version_2(target='{"kind": "opencl"}'), "opencl"),
        (version_1(knobs=HUGE), "conv2d_direct"),
        (version_1(knobs=ODD), "48 does not divide 64"),
        (version_1(weight=(64, 32, 3, 3)), "groups"),
        (version_1(data=(1, 64, 56)), "3 axes"),
        (version_1(data=(1, 64, 0, 56)), "whole number from 1"),
        (version_1(weight=(64, 64, 99, 99)), "larger than"),
        (version_2(arguments=INT8), "no float32 tensor"),
        (version_1(result=([float("inf")], 0, 1.0, 1.0)), "not finite"),
        (version_1(result=([0.0], 0, 1.0, 1.0)), "no positive times"),
        (version_1(result=([], 0, 1.0, 1.0)), "no positive times"),
        (version_1(result=([1.0], 0, 1.0, "now")), "time stamp"),
        ('{"tilewright": {"record": {"record": "peak"}}, "input": 1, "result": 2}', "required"),
    ],
)
def test_what_is_not_understood_is_told_and_the_rest_taken(
    store: SqliteStore, tmp_path: Path, line: str, reason: str
) -> None:
    taken = take(store, tmp_path, version_1(), line, version_2())
    assert (taken.lines, taken.imported) == (3, 2)
    assert [skipped.line for skipped in taken.skipped] == [2]
    assert re.search(reason, taken.skipped[0].reason)


def test_the_class_of_a_log_is_never_this_machine(store: SqliteStore, tmp_path: Path) -> None:
    here = local_placement()
    take(store, tmp_path, version_2(target=here.tvm_target), version_1())
    classes = {device.class_key: device.instance for device in store.devices()}
    assert len(classes) == 2
    assert set(classes.values()) == {""}
    assert here.device.class_key not in classes
    assert parse_target("llvm").device.class_key not in classes
    measured = {m.resources for m in store.stored_measurements()}
    assert here.resources in measured, "a target tells its threads, if nothing else"


def test_lines_that_fit_no_task_are_counted(store: SqliteStore, tmp_path: Path) -> None:
    convolved = convolution_task(
        (1, 64, 56, 56), (64, 64, 3, 3), strides=(1, 1), padding=(1,) * 4, dilation=(1, 1)
    )
    fused = Workload(
        arguments=(*convolved.arguments, Argument(type=convolved.result)),
        steps=(convolved.steps[0], Step(operator="add", inputs=(3, 2))),
    )
    store.add_workload(fused)
    taken = take(store, tmp_path, version_1(), version_2(), version_2(task="dense"))
    assert (taken.imported, taken.unmatched) == (2, 1)
    assert taken.note == "1 of 3 lines fit no task of this database"


def test_the_shared_log(store: SqliteStore) -> None:
    path = ROOT.parent / "shared" / "data" / SHARED_LOG
    if not path.exists():
        pytest.skip(f"the shared data {SHARED_LOG} is not here")
    taken = store.import_file(path)
    assert (taken.lines, taken.imported + len(taken.skipped)) == (21, 21)
    assert (taken.imported, taken.skipped) == (21, ())
    again = store.import_file(path, "autotvm")
    assert (again.imported, again.known) == (0, taken.imported)
    best = min(store.stored_measurements(), key=lambda m: m.latency_s)
    assert best.latency_s == 7.6947802e-06


def test_exported_lines_read_like_autotvms(store: SqliteStore, tmp_path: Path) -> None:
    store.add_workload(CONVOLUTION)
    store.add_device(PLACEMENT.device)
    store.add([direct(tile_width=7, tile_height=2)])
    assert store.export(tmp_path / "x.log") == 1
    line = json.loads((tmp_path / "x.log").read_text())
    assert line["version"] == 0.2
    target, task, arguments, named = line["input"]
    assert target == "llvm -mcpu=skylake-avx512 -num-cores=1"
    assert (task, named) == ("conv2d_NCHWc.x86", {})
    assert arguments[0] == ["TENSOR", [1, 32, 14, 14], "float32"]
    assert arguments[2:5] == [[1, 1], [1, 1, 1, 1], [1, 1]]
    entity = {name: (kind, value) for name, kind, value in line["config"]["entity"]}
    assert entity["tile_ic"] == ("sp", [-1, 16])
    assert entity["tile_oc"] == ("sp", [-1, 16])
    assert entity["tile_ow"] == ("sp", [-1, 7])
    assert entity["unroll_kw"][0] == "ot"
    assert entity["tile_height"] == ("ot", 2)
    assert line["result"][:2] == [[1e-4, 2e-4], 0]


def test_a_line_without_our_key_means_the_same(store: SqliteStore, tmp_path: Path) -> None:
    """What another program would read: the record by its AutoTVM knobs alone."""
    take(store, tmp_path, version_1())
    (before,) = store.stored_measurements()
    store.export(tmp_path / "x.log")
    line = json.loads((tmp_path / "x.log").read_text())
    del line["tilewright"]
    known = {"tile_ic", "tile_oc", "tile_ow", "unroll_kw"}
    line["config"]["entity"] = [item for item in line["config"]["entity"] if item[0] in known]
    (tmp_path / "y.log").write_text(json.dumps(line))
    with open_store(tmp_path / "y.db") as other:
        assert other.import_file(tmp_path / "y.log").imported == 1
        after = only(other)
    assert after.candidate == before.candidate
    assert after.workload_key == before.workload_key


def direct(**wanted: int) -> Measurement:
    """A measurement of the direct convolution; knobs without a wish have their first value."""
    spec = implementation("conv2d_direct")
    settings = {
        knob.name: wanted.get(knob.name, knob.values[0])
        for knob in spec.knobs(CONVOLUTION, PLACEMENT.target, PLACEMENT.resources, FORMS)
    }
    return Measurement(
        workload_key=CONVOLUTION.key,
        candidate=Candidate(
            implementation=spec.name, settings=tuple(sorted(settings.items())), forms=FORMS
        ),
        device_class=PLACEMENT.device.class_key,
        resources=PLACEMENT.resources,
        protocol=Protocol(),
        kernel_hash="h",
        samples_s=(1e-4, 2e-4),
        build_s=0.5,
    )
