"""Export by a child process, and what was exported before.

PyTorch never enters this process: its threads would spin beside what is timed here, and a user's
own code may print, crash or call exit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.core.codec import digest
from tilewright.core.errors import ModelError, TargetError, UsageError, quoted
from tilewright.core.scratch import PrivateFolder, remove_unused, scratch_folder
from tilewright.core.settings import child_environment
from tilewright.models.cache import EXPORTS, PARTIAL, use
from tilewright.models.loaded import OnnxReference

FORMAT = 1
"""Rises when the same request is exported to another file, so that older ones are not taken."""

EXPORTER = "tilewright.models.exported.exporter"
MODEL, RESULT, SIZES = "model.onnx", "result.json", "sizes.json"
_TAIL_LINES = 8
_ERRORS = {kind.__name__: kind for kind in (UsageError, ModelError, TargetError)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is to be exported.

    `argument` is what the user wrote, for messages; `content` all that the result depends on, as
    JSON; `packages` what must be installed, and `extra` the name of tilewright's extra that brings
    it. `lasting` says that equal contents give equal files: only such results are kept.
    """

    argument: str
    content: Mapping[str, Any]
    packages: Sequence[str] = ("torch", "onnxscript")
    extra: str = "torch"
    lasting: bool = True


def export(request: ExportRequest, cache: Path) -> OnnxReference:
    """Export, or find what was exported before by the same versions.

    Raises TargetError where a package is missing, what the exporter raised, and ModelError where
    it broke down, with the last lines it said.
    """
    require_packages(request)
    kept = cache / EXPORTS / _key(request)
    if request.lasting and (found := _kept_export(kept)):
        return found
    folder = scratch_folder()
    run_exporter({**request.content, "argument": request.argument}, folder.path)
    if request.lasting and keep(folder.path, kept, MODEL) and (found := _kept_export(kept)):
        return found
    return OnnxReference(path=folder.path / MODEL, keeper=folder)


def require_packages(request: ExportRequest) -> None:
    """Raise TargetError, with the command that helps, where a package is not installed."""
    missing = [name for name in request.packages if find_spec(name) is None]
    if missing:
        raise TargetError(
            f"{quoted(request.argument)} needs {' and '.join(missing)}, not installed here",
            hint=f"pip install 'tilewright[{request.extra}]', or: pip install {' '.join(missing)}",
        )


def broken_packages() -> Mapping[str, str]:
    """The packages for PyTorch's models that are installed and do not load, with what they say.

    They are loaded in a process of their own; one that crashes it is told as `torch`.
    """
    if find_spec("torch") is None:
        return {}
    done = _run(EXPORTER, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        found: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        return {"torch": f"importing it ends with exit code {done.returncode}"}
    return found


def _run(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[str]:
    """Run a module with our search path; what it prints, also what is no text."""
    search_path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        env=child_environment(PYTHONPATH=search_path, **(environment or {})),
        check=False,
        **streams,
    )


def run_exporter(content: Mapping[str, Any], folder: Path) -> None:
    """Run the exporter in a process of its own: it writes `model.onnx` into the folder. Raises as
    `export`."""
    with scratch_folder() as scratch:
        places = str(folder), str(os.getpid())
        done = _run(
            EXPORTER,
            *places,
            environment={"TMPDIR": str(scratch)},
            input=json.dumps(content),
            stderr=subprocess.STDOUT,
        )
    with suppress(FileNotFoundError):
        answer = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        raise _ERRORS[answer["kind"]](answer["message"], hint=answer["hint"])
    if done.returncode or not (folder / MODEL).is_file():
        said = [line for line in done.stdout.splitlines() if line.strip(" ^~")][-_TAIL_LINES:]
        last = quoted(said[-1].strip())[1:-1] if said else f"exit code {done.returncode}"
        raise ModelError(
            f"{quoted(content['argument'])} could not be exported: {last}",
            hint="\n".join(["The last it said:", *said]) if said else None,
        )


def _key(request: ExportRequest) -> str:
    versions = {name: _version(name) for name in (*request.packages, "onnx")}
    return digest(json.dumps([FORMAT, request.content, versions], sort_keys=True), length=32)


def _version(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return "unknown"


def _kept_export(kept: Path) -> OnnxReference | None:
    """An earlier export, held from now on; None where it is not there or not whole."""
    held = use(kept)
    return OnnxReference(path=kept / MODEL, keeper=held) if held and _whole(kept, MODEL) else None


def _whole(kept: Path, model: str) -> bool:
    """Whether every file of an earlier export is there in its length."""
    try:
        sizes = json.loads((kept / SIZES).read_text(encoding="utf-8"))
        return model in sizes and all(
            (kept / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def keep(made: Path, kept: Path, model: str) -> bool:
    """Put a folder with the file `model` into the cache at once, or leave a faster process's;
    whether one is there."""
    try:
        with PrivateFolder(kept.parent, PARTIAL) as folder:
            partial = folder / kept.name
            shutil.copytree(made, partial)
            sizes = {path.name: path.stat().st_size for path in partial.iterdir()}
            (partial / SIZES).write_text(json.dumps(sizes), encoding="utf-8")
            if not _whole(kept, model):
                remove_unused(kept)
                partial.replace(kept)
    except (OSError, shutil.Error):
        return _whole(kept, model)
    return True
