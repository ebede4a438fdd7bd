"""A MODEL argument becomes a `Graph`. The only layer that imports onnx and ONNX Runtime's cleaner.

Importing this package is cheap: the names below load their modules on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.models.loaded import LoadedModel, ModelOptions
    from tilewright.models.loading import load, sketch

__all__ = ["LoadedModel", "ModelOptions", "load", "sketch"]

_HOMES = {
    "LoadedModel": "tilewright.models.loaded",
    "ModelOptions": "tilewright.models.loaded",
    "load": "tilewright.models.loading",
    "sketch": "tilewright.models.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
