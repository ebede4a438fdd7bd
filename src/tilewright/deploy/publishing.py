"""An artifact appears in its folder complete, or the folder stays as it was."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tilewright.core.errors import OutputError
from tilewright.core.scratch import PrivateFolder
from tilewright.deploy.manifest import LIBRARY, MANIFEST, WEIGHTS
from tilewright.store.output import undone_folders

REPORT = "report.html"
DRAWING = "layouts.onnx"
FILES = (LIBRARY, WEIGHTS, REPORT, DRAWING, MANIFEST)
"""The files of an artifact, in the order in which they appear."""
_STAGING = ".staging-"


@contextmanager
def staging(folder: Path) -> Generator[Path]:
    """A folder of this process inside the output folder, in which all parts are made.

    It is gone afterwards, whatever happens; those of processes that were killed go, too. Where the
    block fails, an output folder that was not there before goes with it. Raises `OutputError` where
    it cannot be made.
    """
    with undone_folders(folder.absolute()):
        try:
            private = PrivateFolder(folder, _STAGING)
        except OSError as error:
            raise OutputError(
                f"cannot write to {folder}: {error.strerror or error}",
                hint="Choose another --out folder.",
            ) from error
        with private as made:
            yield made


def publish(made: Path, folder: Path) -> None:
    """Put the parts of an artifact that lie in `made` into `folder`, on the same file system.

    Nothing is copied, so no room is needed. The manifest of what lay there goes first and the new
    one comes last: without one nothing is taken for a complete artifact. Parts that the new one
    lacks are removed.
    """
    if made == folder:
        return
    try:
        for name in reversed(FILES):
            if name == MANIFEST or not (made / name).exists():
                (folder / name).unlink(missing_ok=True)
        for name in FILES:
            if (made / name).exists():
                (made / name).replace(folder / name)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error
