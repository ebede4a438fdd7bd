"""What `Session.optimize` returns."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tilewright.core.arguments import Text, path_of
from tilewright.core.errors import OutputError
from tilewright.core.fingerprints import digest
from tilewright.core.results import GraphTuneResult, OptimizeResult
from tilewright.deploy.artifact import Artifact, load
from tilewright.deploy.publishing import DRAWING, FILES, REPORT, publish, staging
from tilewright.models.drawing import write_drawing
from tilewright.models.source import readable_name
from tilewright.report import displays, html
from tilewright.store.output import replacing

_LONGEST = 100


def default_folder(model: str) -> Path:
    """`./tilewright-out/NAME`, with what a file system does not like replaced."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", readable_name(model)).strip("._") or "model"
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{digest(name, length=8)}"
    return Path("tilewright-out") / name


def write_documents(folder: Path, result: OptimizeResult) -> None:
    """Write the report, and the drawing where there is one, beside an artifact."""
    document = OptimizedNetwork(result=result, folder=folder)
    document.write_report()
    document.write_drawing()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OptimizedNetwork:
    """A shipped network: `result` holds the numbers, `folder` the files. Renders in notebooks."""

    result: OptimizeResult
    folder: Path

    def write_report(self) -> Path:
        """Write `report.html` beside the artifact; returns its path."""
        path = self.folder / REPORT
        with replacing(path) as temporary:
            temporary.write_text(html.render(self.result), encoding="utf-8")
        return path

    def write_drawing(self) -> Path | None:
        """Write the graph tuner's choice as `layouts.onnx` for Netron; None, and an older one is
        removed, without it."""
        path, result = self.folder / DRAWING, self.result
        if not isinstance(result, GraphTuneResult) or not result.choices:
            path.unlink(missing_ok=True)
            return None
        read = {tensor for choice in result.choices for tensor in choice.inputs}
        with replacing(path) as temporary:
            write_drawing(
                temporary,
                result.model,
                result.choices,
                [choice.output for choice in result.choices if choice.output not in read],
            )
        return path

    def save(self, folder: Text) -> Path:
        """Copy library, weights, manifest, report and drawing into another folder."""
        target = path_of(folder, "folder")
        with staging(target) as made:
            for name in FILES:
                if name != DRAWING or (self.folder / name).exists():
                    _copy(self.folder / name, made / name, target)
            publish(made, target)
        return target

    def load(self, *, threads: int | None = None) -> Artifact:
        """The network, ready to run in this process."""
        return load(self.folder, threads=threads)

    def _repr_html_(self) -> str:
        found = displays.page(self.result)
        assert found is not None, "every result has a page"
        return displays.notebook_html(found, report=html.render(self.result))

    def __repr__(self) -> str:
        return repr(self.result)


def _copy(source: Path, copy: Path, target: Path) -> None:
    try:
        shutil.copy2(source, copy)
    except OSError as error:
        raise OutputError(
            f"cannot copy {source} to {target}: {error.strerror or error}",
            hint="What was there before is unchanged.",
        ) from error
