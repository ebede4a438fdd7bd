"""Damaged artifacts are refused by name; nothing is loaded here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.records.written_artifacts import (
    CONTENTS,
    manifest_content,
    write_artifact,
    write_content,
)
from tilewright.core.errors import ModelError
from tilewright.deploy.hashes import file_sha256
from tilewright.deploy.manifest import (
    LIBRARY,
    MANIFEST,
    WEIGHTS,
    read_manifest,
    require_files,
)
from tilewright.deploy.opening import describe, open_artifact, shipped_already
from tilewright.graph.plan import NetworkPlan

pytestmark = pytest.mark.regression

ONE_FOLDER = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_artifact(tmp_path)


def test_what_was_written_is_read(artifact: Path) -> None:
    opened = open_artifact(artifact)
    assert opened.manifest.constants == ("w_1", "w_2")
    assert opened.manifest.machine.class_key == "cpu-1"
    assert opened.manifest.source.options.shapes == {"x": (1, 3)}
    plan = opened.manifest.shipped_plan
    assert isinstance(plan, NetworkPlan) and plan.constant_names == ["w_1", "w_2"]
    (candidate,) = plan.candidates.values()
    assert dict(candidate.settings) == {"tile": 4, "order": "rows", "unroll": True}
    content = json.loads((artifact / MANIFEST).read_text())
    assert opened.manifest.content == content
    assert content["sha256"][LIBRARY] == file_sha256(artifact / LIBRARY)
    assert shipped_already(artifact, "0123") and not shipped_already(artifact, "0124")


@ONE_FOLDER
@given(data=st.data())
def test_a_flipped_bit_is_found(artifact: Path, data: st.DataObject) -> None:
    """Anywhere in any file, unless the manifest still says the same, in other words."""
    write_artifact(artifact)
    name = data.draw(st.sampled_from([LIBRARY, WEIGHTS, MANIFEST]))
    whole = (artifact / name).read_bytes()
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    (artifact / name).write_bytes(changed)
    try:
        opened = open_artifact(artifact)
    except ModelError as error:
        assert name in error.message
        assert error.hint is not None and "optimize" in error.hint
        assert not shipped_already(artifact, "0123")
    else:
        assert name == MANIFEST
        assert opened.manifest == read_manifest(write_artifact(artifact))


@pytest.mark.parametrize("name", CONTENTS)
def test_files_are_not_hashed_where_that_is_not_wanted(artifact: Path, name: str) -> None:
    (artifact / name).write_bytes(CONTENTS[name][::-1])
    with pytest.raises(ModelError, match=f"does not fit its hash in {name}"):
        open_artifact(artifact)
    open_artifact(artifact, verify=False)
    (artifact / name).write_bytes(CONTENTS[name][:-1])
    with pytest.raises(ModelError, match=f"cut short in {name}"):
        open_artifact(artifact, verify=False)
    (artifact / name).unlink()
    with pytest.raises(ModelError, match=f"lacks {name}"):
        open_artifact(artifact, verify=False)


def test_a_changed_manifest_is_taken_only_without_verifying(artifact: Path) -> None:
    content = json.loads((artifact / MANIFEST).read_text())
    content["constants"].reverse()
    (artifact / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=rf"{MANIFEST}.*does not fit its hash"):
        read_manifest(artifact)
    assert read_manifest(artifact, verify=False).constants == ("w_2", "w_1")


def test_an_artifact_of_before_there_were_hashes(artifact: Path) -> None:
    content = manifest_content(schema_version=1)
    del content["sha256"]
    write_content(artifact, content)
    assert open_artifact(artifact).manifest.sha256 == {}
    assert "before artifacts had hashes" in describe(artifact).warnings[0]
    assert {file.state for file in describe(artifact).files} == {"size only"}
    (artifact / WEIGHTS).write_bytes(b"")
    with pytest.raises(ModelError, match=WEIGHTS):
        open_artifact(artifact)


def test_hashes_and_version_belong_together(artifact: Path) -> None:
    for content in (manifest_content(schema_version=1), manifest_content(sha256={})):
        (artifact / MANIFEST).write_text(json.dumps(content))
        with pytest.raises(ModelError, match=MANIFEST):
            read_manifest(artifact)


WRONG: tuple[Any, ...] = (None, 7, -1, True, 1.5, "x", [], ["x"], {}, {"x": 1}, [[]], 10**30)


def paths(content: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is something inside a JSON value."""
    items: Any = ()
    if isinstance(content, dict):
        items = content.items()
    elif isinstance(content, list):
        items = enumerate(content)
    for key, value in items:
        yield (*path, key)
        yield from paths(value, (*path, key))


@pytest.mark.parametrize("path", list(paths(manifest_content())), ids=str)
def test_a_sealed_manifest_with_something_else_inside(artifact: Path, path: Any) -> None:
    """Every field removed, or of another type: refused as damaged, or read as something of the
    right form; never another error."""
    changed = []
    for value in WRONG:
        changed.append(deepcopy(manifest_content()))
        inside(changed[-1], path)[path[-1]] = value
    changed.append(deepcopy(manifest_content()))
    del inside(changed[-1], path)[path[-1]]
    for content in changed:
        write_content(artifact, content)
        try:
            manifest = open_artifact(artifact).manifest
            assert manifest.machine.threads >= 1 and manifest.shipped_plan is not None
            describe(artifact)
        except ModelError as error:
            assert str(artifact) in error.message


def inside(content: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        content = content[key]
    return content


@pytest.mark.parametrize(
    "changed",
    [
        {"machine": 7},
        {"constants": "w"},
        {"inputs": [{"name": "x", "shape": [-1], "dtype": "float32"}]},
        {"inputs": [{"name": "x", "shape": [1], "dtype": "float31"}]},
        {"inputs": [{"name": "x", "shape": [1], "dtype": "float32"}] * 2},
        {"outputs": []},
        {"versions": {}},
        {"sizes_bytes": []},
        {"schema_version": 2, "plan": {}, "assignment": {"a": {}}},
        {"schema_version": 2, "plan": {"layouts": 3}, "assignment": {}},
        {"plan": {}},
        {"source": {}},
        {"plan": {"calls": 3}},
    ],
    ids=str,
)
def test_what_is_refused(artifact: Path, changed: dict[str, Any]) -> None:
    write_content(artifact, manifest_content(**changed))
    for verify in (True, False):
        with pytest.raises(ModelError, match="is damaged"):
            read_manifest(artifact, verify=verify)


def test_a_manifest_that_is_no_file(artifact: Path) -> None:
    (artifact / MANIFEST).unlink()
    (artifact / MANIFEST).mkdir()
    with pytest.raises(ModelError, match="is a folder, not a regular file"):
        read_manifest(artifact)


def test_a_manifest_too_deep_to_read(artifact: Path) -> None:
    (artifact / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(ModelError, match="cannot read"):
        read_manifest(artifact)


def test_what_an_artifact_is(artifact: Path) -> None:
    told = describe(artifact)
    assert (told.model, told.threads, told.latency_s) == ("net", 2, 2e-3)
    assert [port.shape for port in told.outputs] == [()]
    assert [(file.name, file.state) for file in told.files] == [
        (LIBRARY, "verified"),
        (WEIGHTS, "verified"),
        (MANIFEST, "verified"),
    ]
    assert {file.state for file in describe(artifact, verify=False).files} == {"not checked"}
    require_files(artifact, read_manifest(artifact))
