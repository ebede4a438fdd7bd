"""`hf:`, `torch:` and `.pt2` arguments as requests to the exporter."""

from __future__ import annotations

import re
from dataclasses import asdict
from hashlib import file_digest
from pathlib import Path

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.input_files import require_regular
from tilewright.models.exported.conversion import ExportRequest
from tilewright.models.exported.transformer_forms import transformer_model
from tilewright.models.loaded import ModelOptions
from tilewright.models.naming import quoted, quoted_matches

_PLACE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def transformer_request(text: str, options: ModelOptions) -> tuple[str, ExportRequest]:
    """A readable name, and the request for the text after `hf:`.

    The network is traced with the shapes that are asked for. Raises UsageError as
    `transformer_model`, for unknown inputs and for shapes of another number of axes.
    """
    model = transformer_model(text)
    batch = 1 if options.batch is None else options.batch
    if batch < 1:
        raise UsageError(f"a batch of {batch} is not possible")
    shapes: dict[str, tuple[int, ...]] = {
        name: (batch, *shape) for name, shape in model.inputs.items()
    }
    for name, shape in options.shapes.items():
        if name not in shapes:
            raise UsageError(
                f"the model has no input {quoted(name)}", hint=quoted_matches(name, shapes)
            )
        if len(shape) != len(shapes[name]) or any(size < 1 for size in shape):
            raise UsageError(
                f"shape {list(shape)} of input {quoted(name)} is not possible: without --shape it "
                f"is {list(shapes[name])}"
            )
        shapes[name] = shape
    content = {**asdict(model), "kind": "transformer", "inputs": shapes, "seed": options.seed}
    del content["name"]
    request = ExportRequest(
        argument=f"hf:{text}",
        content=content,
        packages=("torch", "onnxscript", "transformers"),
        extra="transformers",
    )
    return model.name, request


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
    try:
        require_regular(path)
        with path.open("rb") as file:
            checksum = file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        near = [entry.name for entry in path.parent.glob("*.pt2")]
        hint = quoted_matches(path.name, near) if near else None
        raise ModelError(f"no such file: {quoted(path)}", hint=hint) from None
    except OSError as error:
        raise ModelError(f"cannot read {quoted(path)}: {error.strerror or error}") from error
    content = {"kind": "program", "path": str(path.absolute()), "sha256": checksum}
    return path.stem, ExportRequest(argument=str(path), content=content)
