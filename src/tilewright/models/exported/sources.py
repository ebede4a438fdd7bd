"""`hf:`, `torch:` and `.pt2` arguments as requests to the exporter."""

from __future__ import annotations

import re
from hashlib import file_digest
from pathlib import Path

from tilewright.core.errors import UsageError
from tilewright.core.input_files import require_regular
from tilewright.models.exported.architectures import transformer_model
from tilewright.models.exported.conversion import ExportRequest
from tilewright.models.loaded import ModelOptions
from tilewright.models.naming import quoted, quoted_matches
from tilewright.models.source import reading

_PLACE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def transformer_request(text: str, options: ModelOptions) -> tuple[str, ExportRequest]:
    """A readable name, and the request for the text after `hf:`.

    The network is traced with the shapes that are asked for. Raises UsageError as
    `transformer_model`, for unknown inputs and for shapes of another number of axes.
    """
    name, model = transformer_model(text)
    shapes: dict[str, tuple[int, ...]] = {
        name: (options.batch or 1, *shape) for name, shape in model["inputs"].items()
    }
    for entry, shape in options.shapes.items():
        if entry not in shapes:
            raise UsageError(
                f"the model has no input {quoted(entry)}", hint=quoted_matches(entry, shapes)
            )
        if len(shape) != len(shapes[entry]):
            raise UsageError(
                f"shape {list(shape)} of input {quoted(entry)} is not possible: without --shape it "
                f"is {list(shapes[entry])}"
            )
        shapes[entry] = shape
    content = {**model, "kind": "transformer", "inputs": shapes, "seed": options.seed}
    request = ExportRequest(
        argument=f"hf:{text}",
        content=content,
        packages=("torch", "onnxscript", "transformers"),
        extra="transformers",
    )
    return name, request


def torch_request(text: str, options: ModelOptions) -> tuple[str, ExportRequest]:
    """A readable name, and the request for the text after `torch:`.

    It is exported anew each time, for the user's code may have changed. Raises UsageError for what
    is not of the form MODULE:NAME.
    """
    place = _PLACE.fullmatch(text)
    if place is None:
        raise UsageError(
            f"{quoted('torch:' + text)} is not of the form torch:MODULE:NAME",
            hint="For instance torch:torchvision.models:resnet50, or torch:mine:network for "
            "`network` in mine.py of the current folder.",
        )
    content = {
        "kind": "torch",
        "module": place[1],
        "name": place[2],
        "shapes": {name: list(shape) for name, shape in options.shapes.items()},
        "batch": options.batch,
        "seed": options.seed,
    }
    return text, ExportRequest(argument=f"torch:{text}", content=content, lasting=False)


def program_request(path: Path) -> tuple[str, ExportRequest]:
    """A readable name, and the request for a file that torch.export.save wrote.

    Raises ModelError where it cannot be read.
    """
    with reading(path, ".pt2"):
        require_regular(path)
        with path.open("rb") as file:
            checksum = file_digest(file, "sha256").hexdigest()
    content = {"kind": "program", "path": str(path.absolute()), "sha256": checksum}
    return path.stem, ExportRequest(argument=str(path), content=content)
