"""The process that reads modules of Relax: with the arguments FOLDER and PARENT it reads a request
as JSON from stdin and answers as the exporter of PyTorch's models does."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.core.signals import die_with_parent
from tilewright.models.exported.conversion import MODEL, REMARK
from tilewright.models.exported.exporter import main
from tilewright.models.onnx_file import save_onnx


def write_model(folder: Path, request: Mapping[str, Any]) -> None:
    """Read the module that a request names, and write it as ONNX into the folder."""
    from tilewright.compiler.relax_export.conversion import to_onnx
    from tilewright.compiler.relax_export.reading import read_module

    path = Path(request["path"])
    model, remark = to_onnx(read_module(path), path.stem, request["seed"])
    if remark:
        model.metadata_props.add(key=REMARK, value=remark)
    save_onnx(model, folder / MODEL)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    sys.exit(main(Path(sys.argv[1]), json.load(sys.stdin), write_model))
