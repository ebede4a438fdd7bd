"""Mutated artifacts: refused in words, or the right numbers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzzing import byte_changes
from fuzzing.cases import Case, Ground, generator
from fuzzing.verdicts import Fault
from fuzzing.warm import Ended

MANIFEST, LIBRARY, WEIGHTS = "manifest.json", "model.so", "weights.params"
_FILES = (MANIFEST, LIBRARY, WEIGHTS)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    7,
    1 << 70,
    1.5,
    "",
    "x",
    "../up",
    [],
    [1],
    {},
    {"a": 1},
)
_TOLERANCE = 1e-4

Change = Callable[[Path, Random], str]


def artifact_case(ground: Ground, seed: int, folder: Path) -> Case:
    """A good artifact with changes, run on the input whose output is known."""
    rng = generator("artifacts", seed)
    target = folder / "artifact"
    target.mkdir()
    for name in _FILES:
        shutil.copy(ground.artifact / name, target / name)
    change = rng.choice(CHANGES)
    told = change(target, rng)
    given_bytes = sum(p.stat().st_size for p in target.iterdir() if p.is_file())
    run = ("run", "artifact", "--input", str(ground.folder / "x.npy"), "--out", "outputs")
    commands = [(*run, "--threads", "1", "--format", "json")]
    if rng.random() < 0.08:
        commands.append(("profile", "artifact", "--threads", "1", "--format", "json"))
    if rng.random() < 0.1:
        commands.append(("show", "artifact"))
    return Case(
        what=told,
        commands=commands,
        given_bytes=given_bytes,
        check=lambda ended: compare(ground, folder, ended),
    )


def compare(ground: Ground, folder: Path, ended: Sequence[Ended]) -> list[Fault]:
    """The output of a run beside the known one."""
    if ended[0].code != 0:
        return []
    (entry,) = json.loads(ended[0].out)["data"]["outputs"]
    ours = np.load(folder / entry["file"])
    right = np.load(ground.folder / "y.npy")
    if ours.shape != right.shape or ours.dtype != right.dtype:
        text = f"{ours.dtype}{list(ours.shape)} instead of {right.dtype}{list(right.shape)}"
        return [Fault(group="wrong shape or type from an artifact", text=text)]
    error = float(np.max(np.abs(ours - right)) / np.max(np.abs(right)))
    if error <= _TOLERANCE:
        return []
    return [Fault(group="wrong number from an artifact", text=f"off by {error:.2g}")]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a manifest."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found: list[tuple[Any, Any]] = []
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found.extend(_places(value[key]))
    return found


def manifest_changed(folder: Path, rng: Random) -> str:
    """Entries of the manifest removed, replaced, swapped, renamed."""
    path = folder / MANIFEST
    content = json.loads(path.read_text())
    told: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        top = [(content, key) for key in content if key != "result"]
        container, key = rng.choice(rng.choice((top, _places(content))) or top)
        told.append(_entry_changed(container, key, rng))
    path.write_text(json.dumps(content))
    return "manifest: " + "; ".join(told)


def _entry_changed(container: Any, key: Any, rng: Random) -> str:
    drawn = rng.random()
    value = container[key]
    if drawn < 0.25:
        del container[key]
        return f"{key} removed"
    if drawn < 0.4 and isinstance(value, list) and len(value) > 1:
        rng.shuffle(value)
        return f"{key} in another order"
    if drawn < 0.5 and isinstance(value, list) and value:
        value.append(rng.choice(value))
        return f"an entry of {key} doubled"
    if drawn < 0.65 and isinstance(value, int | float):
        container[key] = rng.choice((value + 1, -value, value * 1000, 0))
    elif drawn < 0.7 and isinstance(container, dict):
        container[rng.choice(("new", "", "é"))] = container.pop(key)
        return f"{key} renamed"
    else:
        container[key] = rng.choice(_VALUES)
    return f"{key} = {container[key]!r}"


def text_changed(folder: Path, rng: Random) -> str:
    """Bytes of the manifest."""
    return "manifest: " + _bytes_changed(folder / MANIFEST, rng)


def weights_changed(folder: Path, rng: Random) -> str:
    """Bytes of the weights."""
    return "weights: " + _bytes_changed(folder / WEIGHTS, rng)


def library_changed(folder: Path, rng: Random) -> str:
    """Bytes of the library."""
    return "library: " + _bytes_changed(folder / LIBRARY, rng)


def _bytes_changed(path: Path, rng: Random) -> str:
    content, told = byte_changes.changed(path.read_bytes(), rng)
    path.write_bytes(content)
    return told


def file_replaced(folder: Path, rng: Random) -> str:
    """A file that is missing, a folder, a link, a pipe, unreadable, or another one's content."""
    name = rng.choice(_FILES)
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    how = rng.choice(("missing", "folder", "link", "dangling", "loop", "pipe", "empty", "other"))
    if how == "folder":
        path.mkdir()
    elif how == "link":
        (folder.parent / "elsewhere").write_bytes(content)
        path.symlink_to("../elsewhere")
    elif how == "dangling":
        path.symlink_to("nowhere")
    elif how == "loop":
        path.symlink_to(name)
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "empty":
        path.touch()
    elif how == "other":
        others = [each for each in _FILES if each != name]
        path.write_bytes((folder / rng.choice(others)).read_bytes())
    return f"{name}: {how}"


def file_added(folder: Path, rng: Random) -> str:
    """Something more in the folder."""
    name = rng.choice(("more", ".staging-1", "report.html", "model.so.bak", "weights.params.1"))
    (folder / name).write_bytes(rng.randbytes(100))
    return f"{name} added"


CHANGES: tuple[Change, ...] = (
    *(manifest_changed, manifest_changed, manifest_changed, text_changed),
    *(weights_changed, weights_changed, library_changed, library_changed),
    *(file_replaced, file_added),
)
