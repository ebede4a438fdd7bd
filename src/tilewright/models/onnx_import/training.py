"""Nodes that train: they are refused, for this is inference."""

from __future__ import annotations

from tilewright.core.errors import ModelError

HINT = "Export the network for inference: in PyTorch after `model.eval()`."


def training_refused() -> ModelError:
    """The error for a node in training mode."""
    return ModelError("it is in training mode, and this is inference", hint=HINT)
