"""Files in, files out, and what of them a network may use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.fakes.placements import altered
from tilewright.collect.interchanging import merge
from tilewright.core.errors import ModelError, StoreError, UsageError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Measurement, Placement, Protocol
from tilewright.graph.network import TensorType
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import local_placement
from tilewright.measure import metaschedule
from tilewright.search.tuning import without_outdated
from tilewright.session import Session
from tilewright.store import open_store
from tilewright.store.interchange.lines import IMPORTED

WORKLOAD = Workload(
    arguments=(Argument(type=TensorType((4,))),), steps=(Step(operator="relu", inputs=(0,)),)
)
FORMS = (PLAIN, PLAIN)
HERE = local_placement()
TASK = Task(
    key=(WORKLOAD.key, FORMS), name="relu", workload=WORKLOAD, forms=FORMS, count=1, nodes=()
)


def took(placement: Placement, number: int = 0, *, kernel_hash: str = "h") -> Measurement:
    return Measurement(
        workload_key=WORKLOAD.key,
        candidate=Candidate(implementation="one", settings=(("k", number),), forms=FORMS),
        device_class=placement.device.class_key,
        resources=placement.resources,
        protocol=Protocol(),
        kernel_hash=kernel_hash,
        samples_s=(1.0 + number,),
        build_s=0.0,
        created_at=float(number),
    )


def database(path: Path, placement: Placement, *records: Measurement) -> Path:
    with open_store(path) as store:
        store.add_device(placement.device)
        store.add_workload(WORKLOAD)
        store.add(records)
    return path


def numbers(path: Path, placement: Placement = HERE) -> list[object]:
    """The candidates that are known on a device."""
    with open_store(path) as store:
        outcomes = store.outcomes(WORKLOAD.key, placement.key)
        return [outcome.candidate.setting("k") for outcome in outcomes]


@pytest.mark.parametrize("kind", ["db", "jsonl", "autotvm", "t4", "csv"])
def test_records_of_an_equal_machine_are_taken_others_never(tmp_path: Path, kind: str) -> None:
    twin = altered(HERE, instance="another machine")
    stranger = altered(HERE, class_key=HERE.device.class_key + "x", instance="stranger")
    mine = database(tmp_path / "mine.db", HERE, took(HERE, 1))
    theirs = database(tmp_path / "b.db", twin, took(twin, 2), took(stranger, 3), took(HERE, 1))
    path = theirs
    if kind != "db":
        with open_store(theirs) as store:
            store.export(tmp_path / f"b.{kind}", kind)
        path = tmp_path / f"b.{kind}"
    taken = merge(mine, path, None)
    assert (taken.measurements, taken.skipped) == (2, ())
    assert numbers(mine) == [1, 2]
    assert numbers(mine, stranger) == [3]
    if kind != "csv":
        with open_store(mine) as store:
            found = {(d.class_key, d.instance) for d in store.devices()}
            assert (HERE.device.class_key, "another machine") in found


def test_merge_into_a_third(tmp_path: Path) -> None:
    one = database(tmp_path / "a.db", HERE, took(HERE, 1), took(HERE, 2))
    other = database(tmp_path / "b.db", HERE, took(HERE, 2), took(HERE, 3))
    taken = merge(one, other, tmp_path / "c.db")
    assert numbers(tmp_path / "c.db") == [1, 2, 3]
    assert numbers(one) == [1, 2]
    assert (taken.measurements, taken.skipped) == (3, ())
    assert taken.lines == taken.imported + taken.known
    assert merge(one, other, None).measurements == 1
    assert merge(one, other, None).imported == 0
    assert merge(one, one, None).imported == 0


def test_merges_that_cannot_be(tmp_path: Path) -> None:
    good = database(tmp_path / "a.db", HERE, took(HERE))
    with pytest.raises(StoreError, match=r"no database at .*none\.db"):
        merge(tmp_path / "none.db", good, None)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("no database at all, " * 100)
    with pytest.raises(StoreError):
        merge(tmp_path / "text.db", good, None)
    for into in (None, tmp_path / "c.db"):
        with pytest.raises(ModelError, match=r"none\.db cannot be read"):
            merge(good, tmp_path / "none.db", into)
    assert not (tmp_path / "c.db").exists()


def test_times_of_other_programs_are_not_believed() -> None:
    foreign = took(HERE, 7, kernel_hash=f"{IMPORTED}t4")
    outcomes = {TASK.key: [took(HERE, 1), foreign]}
    kept, gone = without_outdated(
        outcomes, {TASK.key: WORKLOAD}, lambda kernels: ["h"] * len(kernels)
    )
    assert (kept[TASK.key], gone) == ([took(HERE, 1)], 0)


def test_a_session_imports_and_exports(tmp_path: Path) -> None:
    database(tmp_path / "a.db", HERE, took(HERE, 1))
    with Session(db=tmp_path / "a.db") as session:
        assert session.export_file(tmp_path / "a.log") == 1
        assert session.import_file(str(tmp_path / "a.log")).known == 1
        for wrong in ("nothing", ""):
            with pytest.raises(UsageError, match="knows no task"):
                session.import_file(tmp_path / "a.log", "t4", task=wrong)
        with pytest.raises(UsageError):
            session.import_file(tmp_path / "a.log", "xml")


def test_metaschedule_goes_to_its_own_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def import_database(path: Path, workloads: Sequence[Workload], placement: Placement) -> object:
        seen.extend([path, workloads, placement])
        return [took(placement, 1), took(placement, 1)], 3, [(2, "no such workload")]

    def export_database(folder: Path, rows: Sequence[object], placement: Placement) -> int:
        seen.extend([folder, rows, placement])
        return 1

    monkeypatch.setattr(metaschedule, "import_database", import_database)
    monkeypatch.setattr(metaschedule, "export_database", export_database)
    database(tmp_path / "a.db", HERE, took(HERE, 1), took(altered(HERE, class_key="x"), 2))
    (tmp_path / "work").mkdir()
    with Session(db=tmp_path / "a.db") as session:
        taken = session.import_file(tmp_path / "work", "metaschedule")
        assert (taken.lines, taken.imported, taken.known, taken.measurements) == (3, 1, 1, 1)
        assert [(item.line, item.reason) for item in taken.skipped] == [(2, "no such workload")]
        assert session.export_file(tmp_path / "out", "metaschedule") == 1
    assert seen[:3] == [tmp_path / "work", [WORKLOAD], HERE]
    assert seen[3:] == [tmp_path / "out", [(WORKLOAD, took(HERE, 1))] * 2, HERE]
