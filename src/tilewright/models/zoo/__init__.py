"""Networks built in code as ONNX graphs: exact architectures, seeded random weights.

Nothing is downloaded, so a network is the same everywhere. Importing this package does not
import onnx; building a network does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.models.zoo import (
    bert,
    densenet,
    googlenet,
    gpt2,
    inception,
    mobilenet,
    nasnet,
    recurrent,
    resnet,
    resnet_int8,
    squeezenet,
    ssd,
    vgg,
    vit,
)
from tilewright.models.zoo._entry import ZooEntry

if TYPE_CHECKING:
    import onnx

__all__ = ["ZooEntry", "build", "entry", "names"]

_FAMILIES = (
    resnet,
    resnet_int8,
    vgg,
    inception,
    googlenet,
    densenet,
    ssd,
    mobilenet,
    squeezenet,
    nasnet,
    recurrent,
    bert,
    gpt2,
    vit,
)
_ENTRIES = {known.name: known for family in _FAMILIES for known in family.ENTRIES}


def names() -> tuple[str, ...]:
    """Names of all networks, in the order of the documentation."""
    return tuple(_ENTRIES)


def entry(name: str) -> ZooEntry:
    """What is known about a network without building it.

    Raises LookupError(name) if the zoo has no such network.
    """
    if name not in _ENTRIES:
        raise LookupError(name)
    return _ENTRIES[name]


def build(name: str, *, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """A network as an ONNX model, opset 17, with float32 inputs and a fixed batch.

    Equal seeds give equal weights at any batch. Raises LookupError(name) if the zoo has no such
    network and ValueError if `batch` is below 1.
    """
    return entry(name).build(batch=batch, seed=seed)
