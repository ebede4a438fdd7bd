"""The child process that compares a decoder's artifact with ONNX Runtime before it ships."""

from __future__ import annotations

from pathlib import Path

from tilewright.core import child
from tilewright.deploy.artifact import decoder_of
from tilewright.deploy.shape_set import ShapeSet


def require_right(folder: Path, shapes: ShapeSet, model: Path, threads: int) -> None:
    """Raise ModelError where the decoder whose networks are in `folder` gives other logits than
    ONNX Runtime with `model`."""
    decoder_of(folder, shapes, threads, verify=False).require_right(model)


if __name__ == "__main__":
    child.serve({"require right": require_right})
