"""The child process that compares a decoder's artifact with ONNX Runtime before it ships."""

from __future__ import annotations

from pathlib import Path

from tilewright.core import child
from tilewright.deploy.artifact import load_decoder


def require_right(folder: Path, model: Path, threads: int) -> None:
    """Raise ModelError where the decoder gives other logits than ONNX Runtime with `model`."""
    load_decoder(folder, threads, verify=False).require_right(model)


if __name__ == "__main__":
    child.serve({"require right": require_right})
