"""A MODEL argument becomes a `Graph`. The only layer that imports onnx and ONNX Runtime's cleaner.

Importing this package is cheap: `loading`, which does the work, is imported by who calls it.
"""

from tilewright.models.loaded import LoadedModel, ModelOptions

__all__ = ["LoadedModel", "ModelOptions"]
