"""Artifacts of a simulated device: opened, planned again, described, run and shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tilewright as tw
from helpers.fakes.engines import NumpyReference
from helpers.fakes.measuring import measured
from helpers.records.written_artifacts import write_content
from tilewright.core.errors import DamagedArtifact, ModelError, TargetError, UsageError
from tilewright.core.events import discard
from tilewright.core.forms import PLAIN, blocked, form_texts
from tilewright.core.records import Placement
from tilewright.deploy import artifact as artifacts
from tilewright.deploy import opening, racing, showing
from tilewright.deploy.manifest import Machine, Port
from tilewright.deploy.opening import OpenedArtifact, open_artifact, open_model
from tilewright.deploy.plan_models import ArtifactSource
from tilewright.kernels.spaces import default_candidate, ranked_defaults
from tilewright.measure.accesses.registry import access_to
from tilewright.plan.planning_data import PlanningRequest, data_of, placements_of
from tilewright.plan.preparation import prepare
from tilewright.store.known_candidates import shipping_key

MODEL = "op:conv2d[c=16,h=8,w=8,out=16,k=3,pad=1]"
Made = tuple[Path, Placement]
Changed = Callable[..., OpenedArtifact]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The folder of a compiled network, and what it was compiled for."""
    folder = tmp_path_factory.mktemp("made")
    with (
        tw.open(db=folder / "a.db", target="simulated") as session,
        pytest.MonkeyPatch.context() as patch,
    ):
        network = prepare(MODEL, tw.ModelOptions(), session.placement)
        patch.setattr(racing, "make_peer", lambda _name: NumpyReference(network))
        session.optimize(MODEL, budget=0, out=folder / "out")
        return folder / "out", session.placement


@pytest.fixture
def placement(made: Made) -> Placement:
    return made[1]


@pytest.fixture
def folder(made: Made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "out"))


@pytest.fixture
def changed(folder: Path) -> Changed:
    """The artifact with other fields in its manifest."""

    def change(**fields: Any) -> OpenedArtifact:
        opened = open_artifact(folder)
        return replace(opened, manifest=msgspec.structs.replace(opened.manifest, **fields))

    return change


def ports(found: tuple[Port, ...], **fields: Any) -> tuple[Port, ...]:
    return (msgspec.structs.replace(found[0], **fields), *found[1:])


def test_the_network_is_imported_again(
    folder: Path, placement: Placement, changed: Changed
) -> None:
    opened = open_artifact(folder)
    network = opened.network(placement)
    assert network.key == opened.manifest.network_key
    assert changed(network_key="").network(placement).key == network.key, "as of before"
    inputs, outputs = opened.manifest.inputs, opened.manifest.outputs
    for fields in (
        {"inputs": ports(inputs, name="z")},
        {"inputs": ports(inputs, shape=(1, 2))},
        {"inputs": ports(inputs, dtype="int8")},
        {"outputs": ports(outputs, name="z")},
    ):
        with pytest.raises(ModelError, match="its inputs and outputs are different now"):
            changed(**fields).network(placement)
    with pytest.raises(ModelError, match="its operators are different now"):
        changed(network_key="another").network(placement)


def test_the_plan_is_the_one_that_was_compiled(
    folder: Path, placement: Placement, changed: Changed
) -> None:
    opened = open_artifact(folder)
    network = opened.network(placement)
    plan = opened.plan(network, placement)
    assert tuple(plan.constant_names) == opened.manifest.constants
    content = json.loads((folder / "manifest.json").read_text())["plan"]
    (kernel,) = content["kernels"]
    impossible = (
        {"implementation": "none such"},
        {"settings": {**kernel["settings"], "lanes": 7}},
        {"settings": {}},
    )
    for fields in impossible:
        other = changed(plan={**content, "kernels": [{**kernel, **fields}]})
        with pytest.raises(ModelError, match="has no such settings for"):
            other.plan(network, placement)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_device_that_does_not_compute_in_its_precision(changed: Changed, precision: str) -> None:
    """The flag is not what can be left out: the folder is in that precision."""
    devices = placements_of(("cuda -model=H100",), None, None)
    (gpu,) = devices.values()
    source = msgspec.structs.replace(changed().manifest.source, precision=precision)
    opened = changed(source=source)
    why = f"was compiled in {precision}, and .*in {precision} on CPUs, not on H100"
    for refused in (opened.network, opened.allowed, ArtifactSource(opened).require):
        with pytest.raises(TargetError, match=why) as error:
            refused(gpu)
        assert error.value.hint is not None and "leave this device out" in error.value.hint
        assert repr(MODEL) in error.value.hint
    asked = PlanningRequest(options=source.options, settings="shipped", max_error=1e-2)
    with tw.open(db="memory:") as session, pytest.raises(TargetError, match="keeps its precision"):
        data_of(ArtifactSource(opened), devices, asked, session.records, discard)


def test_every_kernel_of_a_task_must_be_possible(
    folder: Path, placement: Placement, changed: Changed
) -> None:
    """Calls of one task may have different ones."""
    network = open_artifact(folder).network(placement)
    content = json.loads((folder / "manifest.json").read_text())["plan"]
    (kernel,), (call,) = content["kernels"], content["calls"]
    impossible = {**kernel, "settings": {**kernel["settings"], "lanes": 7}}
    calls = [call, {**call, "name": "again", "kernel": 1}]
    both = changed(plan={**content, "kernels": [kernel, kernel], "calls": calls})
    assert len(both.plan(network, placement).calls) == 2
    other = changed(plan={**content, "kernels": [kernel, impossible], "calls": calls})
    with pytest.raises(ModelError, match="has no such settings for"):
        other.plan(network, placement)


def test_a_manifest_of_before_names_what_computed_each_task(
    folder: Path, placement: Placement, changed: Changed
) -> None:
    """Up to schema version 2; the plan is made of it, and every task must be named."""
    opened = open_artifact(folder)
    network = opened.network(placement)
    plan = opened.plan(network, placement)
    named = {
        shipping_key(key): {
            "implementation": candidate.implementation,
            "settings": dict(candidate.settings),
            "layouts": form_texts(candidate.forms),
        }
        for key, candidate in plan.candidates.items()
    }
    before = changed(schema_version=2, assignment=named, plan={})
    assert before.plan(network, placement).candidates == plan.candidates
    missing = changed(schema_version=2, assignment={}, plan={})
    with pytest.raises(ModelError, match="no longer fits .*: it has no task conv2d"):
        missing.plan(network, placement)
    unfit = changed(schema_version=2, assignment=named, plan={"layouts": {"x": "blocked3"}})
    with pytest.raises(ModelError, match="its layouts do not fit"):
        unfit.plan(network, placement)


def test_settings_are_possible_for_the_threads_it_was_made_for(
    placement: Placement, changed: Changed
) -> None:
    more = replace(placement, resources=replace(placement.resources, threads=64))
    opened = changed()
    assert opened.plan(opened.network(placement), more).calls


def test_what_is_there_already(folder: Path, tmp_path: Path) -> None:
    fingerprint = open_artifact(folder).manifest.fingerprint
    assert opening.shipped_already(folder, fingerprint)
    assert not opening.shipped_already(folder, fingerprint + "0")
    assert not opening.shipped_already(tmp_path / "nothing", fingerprint)
    with (folder / "model.so").open("ab") as file:
        file.write(b"more")
    assert not opening.shipped_already(folder, fingerprint)


def test_a_model_or_an_artifact(folder: Path, placement: Placement) -> None:
    network, nothing = open_model(MODEL, tw.ModelOptions(), placement)
    assert nothing is None
    again, opened = open_model(str(folder), tw.ModelOptions(seed=3), placement)
    assert opened is not None and opened.folder == folder and again.key == network.key
    with pytest.raises(UsageError, match="compiled for fixed shapes"):
        open_model(str(folder), tw.ModelOptions(batch=2), placement)
    with pytest.raises(UsageError, match="compiled for fixed shapes"):
        open_model(str(folder), tw.ModelOptions(shapes={"x": (1,)}), placement)


def test_hashes_are_looked_at_where_that_is_wanted(folder: Path, placement: Placement) -> None:
    content = json.loads((folder / "manifest.json").read_text())
    hashes = {**content["sha256"], "model.so": "0" * 64}
    write_content(folder, {**content, "sha256": hashes})
    assert open_model(str(folder), tw.ModelOptions(), placement, verify=False)[1]
    with pytest.raises(ModelError):
        open_model(str(folder), tw.ModelOptions(), placement)
    states = [file.state for file in opening.describe(folder, verify=False).files]
    assert states == ["not checked"] * 3


def test_what_it_says_of_itself(folder: Path, placement: Placement) -> None:
    told = opening.describe(folder)
    assert told.source["model"] == MODEL and told.artifact == str(folder)
    assert told.device_class == placement.device.class_key
    assert told.threads == placement.resources.threads and told.warnings == ()
    assert {file.name: (file.size_bytes, file.state) for file in told.files} == {
        name: ((folder / name).stat().st_size, "verified")
        for name in ("model.so", "weights.params", "manifest.json")
    }
    content = json.loads((folder / "manifest.json").read_text())
    write_content(folder, {**content, "result": {"latency_s": "soon"}})
    with pytest.raises(DamagedArtifact, match="in `result`"):
        opening.describe(folder)


@pytest.fixture
def run(folder: Path, placement: Placement) -> Iterator[Callable[..., dict[str, Any]]]:
    (port,) = open_artifact(folder).manifest.inputs
    x = np.ones(port.shape, np.float32)
    yield lambda **more: artifacts.run_on(folder, {port.name: x, **more}, placement)


def test_it_runs_where_it_was_made_for(
    folder: Path, run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (name, result), *others = run().items()
    (port,) = open_artifact(folder).manifest.outputs
    assert not others and (name, result.shape) == (port.name, port.shape)
    with pytest.raises(UsageError, match="no input is called 'more'"):
        run(more=np.ones(1, np.float32))
    opened = open_artifact(folder)
    other = msgspec.structs.replace(opened.manifest, outputs=ports((port,), dtype="int8"))
    monkeypatch.setattr(
        artifacts, "open_artifact", lambda *_a, **_n: replace(opened, manifest=other)
    )
    with pytest.raises(DamagedArtifact, match="gave other outputs"):
        run()


def machine(**fields: Any) -> Machine:
    known: dict[str, Any] = {
        "class_key": "c", "architecture": "a64", "model": "a box", "vector_bytes": 0,
        "features": ("f", "g"), "target": {}, "threads": 1,
    }  # fmt: skip
    return Machine(**{**known, **fields})


def test_a_machine_without_what_it_needs_is_refused(placement: Placement) -> None:
    target = replace(placement.target, architecture="a64", features=("g", "f", "h"))
    artifacts.refuse_other_machine(machine(), target)
    with pytest.raises(TargetError, match=r"compiled for cuda \(H100\), not for") as caught:
        card = {"kind": "cuda", "arch": "sm_90"}
        gpu = machine(architecture="sm_90", model="H100", target=card, features=())
        artifacts.refuse_other_machine(gpu, target)
    assert caught.value.hint == "Give the target it was made for: --target cuda."
    with pytest.raises(TargetError, match="^compiled for a box; this CPU lacks e, i") as caught:
        artifacts.refuse_other_machine(machine(features=("i", "f", "e")), target)
    assert "on this machine" in caught.value.hint and "--tracker" in caught.value.hint
    with pytest.raises(TargetError, match="compiled for vax, this machine is a64"):
        artifacts.refuse_other_machine(machine(architecture="vax"), target)
    with pytest.raises(TargetError, match="a box; the board lacks i") as caught:
        artifacts.refuse_other_machine(machine(features=("i",)), target, "the board")
    assert caught.value.hint == "Run `tilewright optimize` for the board."


def test_tile_registers_that_there_are_not_or_may_not_be_used(
    folder: Path, changed: Changed, placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor without AMX, and one whose tile registers Linux does not let this process use,
    have the same features: their first instruction would end the process."""
    tiles = ("amx-bf16", "amx-int8", "amx-tile")
    target = replace(placement.target, architecture="x86_64", features=("avx512bf16",))
    here = replace(placement, device=replace(placement.device, target=target))
    made_on = {"architecture": "x86_64", "model": "a Xeon", "features": (*target.features, *tiles)}
    opened = changed(machine=machine(**made_on))
    monkeypatch.setattr(artifacts, "open_artifact", lambda *_a, **_n: opened)
    monkeypatch.setattr(artifacts, "local_placement", lambda _threads: here)
    monkeypatch.setattr(artifacts, "Artifact", lambda *_: pytest.fail("it is loaded"))
    with pytest.raises(TargetError, match=f"a Xeon; this CPU lacks {', '.join(tiles)}") as caught:
        artifacts.load(folder)
    assert caught.value.exit_code == 3
    assert "where Linux lets a process use them" in caught.value.hint


def test_a_device_elsewhere_is_refused_by_its_name(
    folder: Path, placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not access_to(placement.device).here
    opened = open_artifact(folder)
    moved = msgspec.structs.replace(opened.manifest, machine=machine())
    elsewhere = replace(opened, manifest=moved)
    with pytest.raises(TargetError, match=f"the device {placement.target.model}"):
        artifacts.refuse_elsewhere(elsewhere, placement)
    monkeypatch.setattr(artifacts, "in_this_process", lambda _placement: True)
    with pytest.raises(TargetError, match="compiled for a64, this machine is"):
        artifacts.refuse_elsewhere(elsewhere, placement)


def test_what_shipped_is_shown(folder: Path, placement: Placement, tmp_path: Path) -> None:
    with tw.open(db=tmp_path / "a.db", target="simulated") as session:
        plan = open_artifact(folder).plan(open_artifact(folder).network(placement), placement)
        shown = session.show(folder)
        ((key, task),) = plan.tasks.items()
        assert shown == showing.describe(task.workload, plan.candidates[key])
        assert session.show(MODEL).startswith(f"task {task.workload.key}\n")
        with pytest.raises(UsageError, match="no task or model is called 'nothing'"):
            session.show("nothing")
        with pytest.raises(UsageError, match="unknown view 'tri'"):
            session.show(MODEL, "tri")


def test_the_best_of_what_is_known_is_shown(tmp_path: Path) -> None:
    """Of a model in the layouts that it has there, of a task by its key in any."""
    with tw.open(db=tmp_path / "a.db", target="simulated") as session:
        network, _ = open_model(MODEL, tw.ModelOptions(), session.placement)
        (task,) = network.tasks.values()
        here = {"device_class": session.placement.device.class_key,
                "resources": session.placement.resources}  # fmt: skip
        session.store.add_device(session.placement.device)
        session.store.add_workloads([task.workload])
        best, *others = ranked_defaults(task.workload, task.forms, session.placement)
        slowest = others[-1][0] if others else best[0]
        blocks = (blocked(16), PLAIN, blocked(16))
        elsewhere = default_candidate(task.workload, blocks, session.placement)[0]
        assert task.forms == (PLAIN,) * 3
        assert session.show(task.workload.key) == showing.describe(task.workload, best[0])
        assert session.show(MODEL) == showing.describe(task.workload, best[0])
        session.store.add([
            measured(task.workload, slowest, 2e-3, **here),
            measured(task.workload, elsewhere, 1e-3, **here),
        ])  # fmt: skip
        assert session.show(MODEL) == showing.describe(task.workload, slowest)
        assert session.show(task.workload.key) == showing.describe(task.workload, elsewhere)


def test_a_task_in_words(folder: Path, placement: Placement) -> None:
    opened = open_artifact(folder)
    plan = opened.plan(opened.network(placement), placement)
    ((key, task),) = plan.tasks.items()
    first, *lines = showing.describe(task.workload, plan.candidates[key]).splitlines()
    assert first == f"task {task.workload.key}"
    data, weights, step = lines[:3]
    assert data.startswith("  %0 = data float32") and weights.startswith("  %1 = constant ")
    assert step.startswith("  %2 = conv2d(%0, %1; ") and step.endswith("# anchor")
    assert lines[-1] == f"  {task.workload.flop} FLOP, {task.workload.bytes} bytes"
    bare = msgspec.structs.replace(plan.candidates[key], settings=())
    assert ": no knobs\n" in showing.describe(task.workload, bare)
