"""Databases for plain TVM: the same kernels there, the same candidates back here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from helpers.fakes.placements import altered
from helpers.kernels.one_kernel import PLACEMENT, all_settings, random_arrays, step, workload
from helpers.kernels.packed_kernel import constants_workload
from helpers.kernels.traced_kernel import traced
from tilewright.compiler.build import kernel_hash_of, kernel_identity, kernel_module
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.compiler.metaschedule.records import MODULE, RECORDS, WORKLOADS
from tilewright.core.errors import ModelError
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate, Measurement, Protocol
from tilewright.graph.arrays import to_physical
from tilewright.graph.workload import Workload
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.registry import implementation
from tilewright.measure.metaschedule import SIDE_FILE, export_database, import_database
from tilewright.testing.implementations import plain

GEOMETRY: dict[str, Any] = dict(strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1)
CONV = constants_workload(
    [(1, 16, 8, 8), (16, 16, 3, 3)], [1], [step("conv2d", 0, 1, **GEOMETRY), step("relu", 2)]
)
BLOCKED = (blocked(8), PLAIN, blocked(8))
DENSE = constants_workload([(4, 32), (32, 16)], [1], [step("dense", 0, 1)])
SOFTMAX = workload([(8, 32)], step("softmax", 0, axis=1))
CONCAT = workload([(1, 8, 4, 4), (1, 8, 4, 4)], step("concat", 0, 1, axis=1))


def ours(task: Workload, name: str, forms: tuple[Form, ...]) -> Candidate:
    """An implementation's candidate with the least estimate."""
    found = all_settings(task, name, forms)
    facts = facts_of(
        implementation(name), task, PLACEMENT.target, PLACEMENT.resources, forms, found
    )
    settings = found[int(np.argmin(facts["estimate_s"]))]
    return Candidate(implementation=name, settings=tuple(settings.items()), forms=forms)


def row(task: Workload, candidate: Candidate, seconds: float) -> tuple[Workload, Measurement]:
    return task, Measurement(
        workload_key=task.key,
        candidate=candidate,
        device_class=PLACEMENT.device.class_key,
        resources=PLACEMENT.resources,
        protocol=Protocol(repeats=2),
        kernel_hash=kernel_identity(task, candidate, PLACEMENT.target, PLACEMENT.resources),
        samples_s=(seconds, seconds * 1.5),
        build_s=0.25,
        created_at=12.0,
    )


def applied(folder: Path) -> Any:
    """The exported module after TVM's own pass, as the README says."""
    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms

    module = tvm.ir.load_json((folder / MODULE).read_text())
    with tvm.target.Target(PLACEMENT.tvm_target), ms.database.JSONDatabase(work_dir=str(folder)):
        return relax.transform.MetaScheduleApplyDatabase()(module)


def hashes(module: Any) -> set[str]:
    """Our hash of each kernel, less the marks that TVM adds."""
    from tvm import tirx

    return {
        kernel_hash_of(
            function.without_attr("tirx.is_scheduled").with_attr("global_symbol", "main")
        )
        for function in module.functions.values()
        if isinstance(function, tirx.PrimFunc)
    }


def test_plain_tvm_makes_the_same_kernels(tmp_path: Path) -> None:
    rows = [
        row(CONV, ours(CONV, "conv2d_direct", BLOCKED), 1e-3),
        row(CONV, ours(CONV, "conv2d_winograd", BLOCKED), 1e-3),
        row(DENSE, ours(DENSE, "dense_packed", plain(DENSE)), 1e-3),
        row(SOFTMAX, ours(SOFTMAX, "rows", plain(SOFTMAX)), 1e-3),
        row(CONCAT, ours(CONCAT, "injective", plain(CONCAT)), 1e-3),
        row(SOFTMAX, ours(SOFTMAX, "generic", plain(SOFTMAX)), 1e-3),
        row(CONV, traced(CONV, plain(CONV)), 1e-3),
    ]
    assert export_database(tmp_path, rows, PLACEMENT) == len(rows)
    assert hashes(applied(tmp_path)) == {measured.kernel_hash for _, measured in rows}
    readme = (tmp_path / "README.txt").read_text()
    assert "MetaScheduleApplyDatabase" in readme and "left out" not in readme


def test_plain_tvm_gets_the_same_numbers(tmp_path: Path) -> None:
    import tvm
    from tvm import relax

    candidate = ours(CONV, "conv2d_direct", BLOCKED)
    export_database(tmp_path, [row(CONV, candidate, 1e-3)], PLACEMENT)
    data, weight = random_arrays(CONV)
    packed = implementation("conv2d_direct").pack(CONV, candidate, {1: weight})
    tensors = [tvm.runtime.tensor(a) for a in (to_physical(data, BLOCKED[0]), packed[1])]
    executable = tvm.compile(applied(tmp_path), tvm.target.Target(PLACEMENT.tvm_target))
    found = relax.VirtualMachine(executable, tvm.cpu())["conv2d_0"](*tensors).numpy()
    kernel = build_kernel(CONV, candidate, PLACEMENT.target, PLACEMENT.resources)
    wanted = tvm.runtime.tensor(np.full(kernel.argument_types[-1][0], np.nan, np.float32))
    kernel.call(*tensors, wanted)
    np.testing.assert_array_equal(found, wanted.numpy())


def test_the_fastest_record_of_a_task_wins(tmp_path: Path) -> None:
    first, second = all_settings(CONV, "conv2d_direct", BLOCKED)[:2]
    rows = [
        row(CONV, Candidate(implementation="conv2d_direct", settings=tuple(s.items()),
                            forms=BLOCKED), seconds)
        for s, seconds in ((first, 2e-3), (second, 1e-3))
    ]  # fmt: skip
    starts = {kernel_hash_of(_start(measured.candidate)) for _, measured in rows}
    assert export_database(tmp_path, rows, PLACEMENT) == 2
    found = hashes(applied(tmp_path))
    assert rows[1][1].kernel_hash in found
    assert (rows[0][1].kernel_hash in found) == (len(starts) == 2)


def _start(candidate: Candidate) -> Any:
    from tilewright.compiler.metaschedule.search import traced as start_of

    return start_of(CONV, candidate, PLACEMENT.target, PLACEMENT.resources)[0]["main"]


def test_kernels_that_changed_are_left_out_and_named(tmp_path: Path) -> None:
    task, measured = row(SOFTMAX, ours(SOFTMAX, "rows", plain(SOFTMAX)), 1e-3)
    gone = structs.replace(measured.candidate, implementation="uninstalled")
    rows = [
        (task, replace(measured, kernel_hash="old")),
        (task, replace(measured, candidate=gone)),
        (task, measured),
    ]
    assert export_database(tmp_path, rows, PLACEMENT) == 1
    readme = (tmp_path / "README.txt").read_text()
    assert f"left out: rows of {task.key}: its template has changed" in readme
    assert f"left out: uninstalled of {task.key}" in readme


def test_our_own_export_comes_back_as_it_was(tmp_path: Path) -> None:
    rows = [
        row(CONV, ours(CONV, "conv2d_direct", BLOCKED), 1e-3),
        row(DENSE, ours(DENSE, "dense_packed", plain(DENSE)), 2e-3),
        row(CONV, traced(CONV, BLOCKED), 3e-3),
    ]
    export_database(tmp_path, rows, PLACEMENT)
    found, lines, skipped = import_database(tmp_path / RECORDS, [CONV, DENSE], PLACEMENT)
    assert (lines, skipped) == (3, [])
    assert found == [measured for _, measured in rows]
    found, lines, skipped = import_database(tmp_path, [DENSE], PLACEMENT)
    assert [measured.workload_key for measured in found] == [DENSE.key]
    assert skipped == [(1, "its shapes fit no known task"), (3, "its shapes fit no known task")]


def test_records_of_another_device_class_are_not_taken(tmp_path: Path) -> None:
    export_database(tmp_path, [row(CONV, traced(CONV, plain(CONV)), 1e-3)], PLACEMENT)
    other = altered(PLACEMENT, class_key="another")
    found, _, skipped = import_database(tmp_path, [CONV], other)
    assert not found and "another device class, test" in skipped[0][1]


def test_foreign_records_become_traced_candidates(tmp_path: Path) -> None:
    rows = [
        row(CONV, traced(CONV, plain(CONV)), 1e-3),
        row(SOFTMAX, traced(SOFTMAX, plain(SOFTMAX)), 2e-3),
        row(CONV, traced(CONV, BLOCKED), 3e-3),
        row(DENSE, traced(DENSE, plain(DENSE)), 4e-3),
    ]
    export_database(tmp_path, rows, PLACEMENT)
    (tmp_path / SIDE_FILE).unlink()
    found, lines, skipped = import_database(tmp_path, [SOFTMAX, CONV], PLACEMENT)
    assert lines == 4
    assert [m.candidate for m in found] == [measured.candidate for _, measured in rows[:3]]
    assert [m.samples_s for m in found] == [measured.samples_s for _, measured in rows[:3]]
    for measured, task in zip(found, (CONV, SOFTMAX, CONV), strict=True):
        assert measured.workload_key == task.key
        assert measured.protocol.activations == "warm", "its runner is not ours"
        kernel = kernel_module(task, measured.candidate, PLACEMENT.target, PLACEMENT.resources)[
            "main"
        ]
        assert kernel_hash_of(kernel) == measured.kernel_hash
    assert skipped == [(4, "its module is not the plain computation of a known task")]
    again, _, _ = import_database(tmp_path, [SOFTMAX, CONV], PLACEMENT)
    assert again == found, "the same records, so that a second import adds none"


def test_every_bad_line_is_named_and_the_rest_is_taken(tmp_path: Path) -> None:
    measured = row(SOFTMAX, traced(SOFTMAX, plain(SOFTMAX)), 2e-3)
    export_database(tmp_path, [measured], PLACEMENT)
    (tmp_path / SIDE_FILE).unlink()
    (good,) = (tmp_path / RECORDS).read_text().splitlines()
    index, (trace, seconds, target, arguments) = json.loads(good)

    def record(number=index, steps=trace, run=seconds, at=target) -> str:
        return json.dumps([number, [steps, run, at, arguments]])

    other = {"kind": "llvm", "num-cores": 7}
    nowhere = [[["GetSBlock", [], ["nowhere", "main"], ["b0"]]], []]
    lines = [
        good[: len(good) // 2],
        record(number=5),
        record(at=other),
        record(at={"kind": "abacus"}),
        record(run=[1e10]),
        record(run=[]),
        record(steps=nowhere),
        '{"i": "autotvm"}',
        good,
    ]
    (tmp_path / RECORDS).write_text("\n".join(lines) + "\n")
    found, count, skipped = import_database(tmp_path, [SOFTMAX], PLACEMENT)
    assert count == len(lines) and [m.candidate for m in found] == [measured[1].candidate]
    reasons = dict(skipped)
    assert list(reasons) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "not a tuning record" in reasons[1] and "not a tuning record" in reasons[8]
    assert "workload" in reasons[2]
    assert "another target" in reasons[3] and "another target" in reasons[4]
    assert "trial failed" in reasons[5] and "trial failed" in reasons[6]
    assert "cannot be replayed" in reasons[7]


def test_a_broken_workload_table_costs_its_records_only(tmp_path: Path) -> None:
    rows = [row(task, traced(task, plain(task)), 1e-3) for task in (SOFTMAX, DENSE)]
    export_database(tmp_path, rows, PLACEMENT)
    first, second = (tmp_path / WORKLOADS).read_text().splitlines()
    (tmp_path / WORKLOADS).write_text(f"{first[:100]}\n{second}\n")
    found, _, skipped = import_database(tmp_path, [SOFTMAX, DENSE], PLACEMENT)
    assert [m.workload_key for m in found] == [DENSE.key]
    assert skipped == [(1, "its workload cannot be read")]


def test_a_folder_without_a_database(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no MetaSchedule database"):
        import_database(tmp_path, [CONV], PLACEMENT)
