"""Which of several shapes computes arrays, how these are padded, and what is in the file."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.records.written_artifacts import manifest_content, write_artifact
from tilewright.core.budget import Limit
from tilewright.core.codec import convert
from tilewright.core.errors import DamagedArtifact, ModelError, UsageError
from tilewright.deploy.manifest import (
    SHAPES,
    Manifest,
    is_artifact,
    is_shape_set,
    read_manifest,
)
from tilewright.deploy.opening import describe_shapes, input_names
from tilewright.deploy.publishing import forget_shapes, reseal
from tilewright.deploy.several_shapes import _fault  # pyright: ignore[reportPrivateUsage]
from tilewright.deploy.shape_set import (
    Extent,
    Member,
    ShapeSet,
    Sizes,
    described,
    read_shape_set,
    varied_axes,
    write_shape_set,
)
from tilewright.models import ModelOptions
from tilewright.search.levels import OptimizeRequest

GRID = [{"batch": batch, "tokens": tokens} for batch in (1, 4) for tokens in (8, 16)]


def port(name: str, *shape: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": [*shape], "dtype": "float32", "index_ranges": [], **more}


def manifest(sizes: Sizes, **changed: Any) -> Manifest:
    """Ports of an encoder whose second output is as long as all rows, and one more each."""
    batch, tokens = sizes["batch"], sizes["tokens"]
    ports = {
        "inputs": [port("ids", batch, tokens), port("mask", batch, 1, tokens + 1)],
        "outputs": [port("y", batch, tokens, 3), port("flat", 2 * batch + 1, 5)],
    }
    return convert(manifest_content(**ports, **changed), Manifest)


def member(sizes: Sizes) -> Member:
    folder = "-".join(f"{name}{size}" for name, size in sizes.items())
    return Member(folder=folder, sizes=dict(sizes), fingerprint="0123")


def grid(padded: tuple[str, ...] = ("batch", "tokens")) -> ShapeSet:
    axes = varied_axes([(member(sizes), manifest(sizes)) for sizes in GRID], padded)
    return ShapeSet(model="net", axes=axes, members=tuple(map(member, GRID)))


def shapes(batch: int, tokens: int) -> dict[str, tuple[int, ...]]:
    return {"ids": (batch, tokens), "mask": (batch, 1, tokens + 1)}


def test_where_axes_occur() -> None:
    batch, tokens = grid().axes
    assert (batch.name, batch.sizes, tokens.sizes) == ("batch", (1, 4), (8, 16))
    assert batch.inputs == {"ids": (Extent(axis=0, factor=1),), "mask": (Extent(axis=0, factor=1),)}
    assert batch.outputs["flat"] == (Extent(axis=0, factor=2, more=1),)
    assert tokens.inputs["mask"] == (Extent(axis=2, factor=1, more=1),)
    assert tokens.outputs == {"y": (Extent(axis=1, factor=1),)}
    assert batch.pads and tokens.pads


def test_outputs_that_do_not_grow_evenly_are_not_padded() -> None:
    def uneven(batch: int) -> tuple[Member, Manifest]:
        ports = {"inputs": [port("x", batch)], "outputs": [port("y", batch * batch)]}
        sizes = {"batch": batch}
        return member(sizes), convert(manifest_content(**ports), Manifest)

    (axis,) = varied_axes([uneven(batch) for batch in (1, 4, 16)], ("batch",))
    assert not axis.pads and "do not follow" in axis.reason


@pytest.mark.parametrize(("least_sqnr_db", "pads"), [(None, False), (30.0, True), (45.0, False)])
def test_padding_may_change_results_as_much_as_was_asked_for(
    least_sqnr_db: float | None, pads: bool
) -> None:
    """One of a thousand elements is off by 0.3 of it: that is a ratio of 40.5 dB."""
    request = OptimizeRequest(
        model="m", options=ModelOptions(), budget=Limit(measurements=0), folder=Path("o"),
        max_error=0.03, least_sqnr_db=least_sqnr_db, seed=0,
    )  # fmt: skip
    axes = varied_axes([(member(sizes), manifest(sizes)) for sizes in GRID], ("batch",))
    made: Any = [SimpleNamespace(member=member(sizes), inputs={}) for sizes in GRID]
    exact = np.random.default_rng(0).choice([-1.0, 1.0], 1000)
    off = exact * np.where(np.arange(1000) == 7, 1.3, 1.0)
    runs: Any = (lambda *_: {"y": exact}, lambda *_: {"y": off})
    fault = _fault(axes[0], axes, made, runs, request)
    assert (fault == "") == pads and ("changes results by 0.3" in fault) != pads


def test_outputs_that_would_be_empty() -> None:
    def narrowed(tokens: int) -> tuple[Member, Manifest]:
        ports = {"inputs": [port("x", tokens)], "outputs": [port("y", tokens - 4)]}
        sizes = {"tokens": tokens}
        return member(sizes), convert(manifest_content(**ports), Manifest)

    made = [narrowed(tokens) for tokens in (16, 32)]
    axes = varied_axes(made, ("tokens",))
    shapes = ShapeSet(model="net", axes=axes, members=tuple(m for m, _ in made))
    assert shapes.choice({"x": (5,)}).cut({"y": np.ones(12)})["y"].shape == (1,)
    with pytest.raises(UsageError, match="tokens is 4: an output would be empty"):
        shapes.choice({"x": (4,)})


@given(st.integers(1, 4), st.integers(1, 16))
def test_padded_and_cut(batch: int, tokens: int) -> None:
    rng = np.random.default_rng(batch * 100 + tokens)
    chosen = grid().choice(shapes(batch, tokens))
    sizes = chosen.member.sizes
    assert sizes["batch"] == (1 if batch == 1 else 4) and sizes["tokens"] == (8, 16)[tokens > 8]
    assert chosen.pads == (dict(chosen.given) != sizes) == ("padded" in str(chosen))
    ports = manifest(sizes).inputs
    arrays = {name: rng.normal(size=shape) for name, shape in shapes(batch, tokens).items()}
    padded = chosen.padded(ports, arrays)
    for each in ports:
        whole, part = padded[each.name], arrays[each.name]
        assert whole.shape == each.shape
        np.testing.assert_array_equal(whole[tuple(map(slice, part.shape))], part)
        assert np.count_nonzero(whole) == np.count_nonzero(part)
    outputs = {each.name: np.ones(each.shape) for each in manifest(sizes).outputs}
    cut = chosen.cut(outputs)
    assert cut["y"].shape == (batch, tokens, 3) and cut["flat"].shape == (2 * batch + 1, 5)


@pytest.mark.parametrize(
    ("ranges", "filled"), [((), 0), (((-5, 4),), 0), (((2, 4),), 2), (((-4, -1),), -1)]
)
def test_indices_are_padded_with_valid_ones(ranges: Any, filled: int) -> None:
    ports = [port("ids", 4, 8, index_ranges=ranges), port("mask", 4, 1, 9)]
    content = manifest_content(inputs=ports)
    chosen = grid().choice(shapes(3, 8))
    arrays = {"ids": np.full((3, 8), 3), "mask": np.ones((3, 1, 9))}
    padded = chosen.padded(convert(content, Manifest).inputs, arrays)
    assert padded["ids"][3:].tolist() == [[filled] * 8]


@pytest.mark.parametrize(
    ("asked", "padded", "said"),
    [
        (shapes(5, 8), ("batch",), "batch is 5, larger than any shape: this artifact has 1, 4"),
        (shapes(1, 17), ("batch", "tokens"), "tokens is 17, larger"),
        (shapes(1, 9), ("batch",), "tokens is 9: .* not padded, because nobody asked"),
        ({"ids": (1, 8), "mask": (2, 1, 9)}, ("batch",), "do not agree on one size of 'batch'"),
        ({"ids": (1, 8), "mask": (1, 1, 8)}, ("batch",), "do not agree on one size of 'tokens'"),
    ],
)
def test_what_no_shape_takes(asked: Any, padded: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        grid(padded).choice(asked)


def test_the_shape_that_options_name() -> None:
    assert grid().asked_for(4, {"tokens": (16,)}).sizes == {"batch": 4, "tokens": 16}
    with pytest.raises(UsageError, match="no shape batch 2, tokens 8") as caught:
        grid().asked_for(2, {"tokens": (8,)})
    assert "batch 1, tokens 8" in (caught.value.hint or "")
    with pytest.raises(UsageError, match=r"'x' cannot be \[9, 9\]"):
        grid().asked_for(4, {"tokens": (16,), "x": (9, 9)})
    with pytest.raises(UsageError, match="none is named"):
        grid().asked_for(None, {})


def test_the_file(tmp_path: Path) -> None:
    for sizes in GRID:
        ports = {"inputs": [port("ids", *sizes.values())], "outputs": [port("y", 1)]}
        write_artifact(tmp_path / member(sizes).folder, **ports)
    (tmp_path / "weights-0123456789abcdef.params").write_bytes(b"1")
    (tmp_path / "weights-mine.params").write_bytes(b"1")
    (tmp_path / member(GRID[1]).folder / "notes.txt").write_text("mine")
    write_shape_set(tmp_path, grid())
    assert is_shape_set(tmp_path) and is_artifact(str(tmp_path))
    found = read_shape_set(tmp_path)
    assert (found.axes, found.members) == (grid().axes, grid().members)
    assert input_names(tmp_path) == ["ids"]
    told = describe_shapes(tmp_path)
    assert [row.shape for row in told.shapes] == [described(sizes) for sizes in GRID]
    assert told.padded == ("batch", "tokens") and told.shapes[0].latency_s == 2e-3
    assert told.size_bytes == sum(row.alone_bytes for row in told.shapes)
    forget_shapes(tmp_path, kept=[member(GRID[0]).folder])
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    kept, mine = member(GRID[0]).folder, member(GRID[1]).folder
    files = {f"{kept}/{name}" for name in ("manifest.json", "model.so", "weights.params")}
    assert left == {kept, mine, f"{mine}/notes.txt", "weights-mine.params", *files}


def test_another_network_in_the_folder_of_a_shape(tmp_path: Path) -> None:
    for sizes in GRID:
        write_artifact(tmp_path / member(sizes).folder)
    write_shape_set(tmp_path, grid())
    describe_shapes(tmp_path)
    write_artifact(tmp_path / member(GRID[2]).folder, fingerprint="4567")
    with pytest.raises(DamagedArtifact, match="batch4-tokens8 is another network by now"):
        describe_shapes(tmp_path)


def test_weights_that_cannot_be_replaced_leave_a_shape_as_it_was(tmp_path: Path) -> None:
    write_artifact(tmp_path)
    with pytest.raises(OSError, match="full"), reseal(tmp_path):
        raise OSError("the disk is full")
    assert read_manifest(tmp_path).fingerprint == "0123"


@pytest.mark.parametrize(
    "change",
    [
        {"model": "another"},
        {"schema_version": 7},
        {"members": []},
        {"members": [{"folder": "../x", "sizes": {"batch": 1, "tokens": 8}}]},
        {"members": [{"folder": "..", "sizes": {"batch": 1, "tokens": 8}}]},
        {"members": [{"folder": "", "sizes": {"batch": 1, "tokens": 8}}]},
        {"members": [{"folder": "x", "sizes": {"batch": 1}}]},
        {"axes": 3},
    ],
)
def test_a_damaged_file(tmp_path: Path, change: dict[str, Any]) -> None:
    write_shape_set(tmp_path, grid())
    path = tmp_path / SHAPES
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DamagedArtifact, match="is damaged"):
        read_shape_set(tmp_path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DamagedArtifact):
        read_shape_set(tmp_path)


def test_a_shape_that_is_gone(tmp_path: Path) -> None:
    write_shape_set(tmp_path, grid())
    with pytest.raises(ModelError, match="no compiled network"):
        describe_shapes(tmp_path)


def test_two_shapes_in_one_folder() -> None:
    with pytest.raises(ValueError, match="one folder"):
        msgspec.structs.replace(grid(), members=(member(GRID[0]),) * 2).__post_init__()
