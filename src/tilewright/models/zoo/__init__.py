"""Networks built from descriptions as ONNX graphs: exact architectures, seeded random weights.

`networks` describes the networks, `figures.toml` says what was published about them, and
`variances.toml` what their batch normalizations read, measured once on drawn images. Nothing is
downloaded, measured or run here, so a network is the same everywhere. Importing this package does
not import onnx; building a network does.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from msgspec import Struct, convert

if TYPE_CHECKING:
    import onnx

__all__ = ["ZooEntry", "build", "entry", "names"]


class ZooEntry(Struct, frozen=True, kw_only=True):
    """A network of the zoo with its published figures, as `figures.toml` holds them.

    `description` names its section of `networks`, and `quantized` says that its operators work on
    8-bit codes. `parameters` counts trainable values: no running statistics, a tied matrix once.
    `multiply_adds` is for batch 1, None where no published figure fits this input size. Shapes
    are for batch 1, which is always axis 0. `integer_limit` is the exclusive upper bound of
    int64 inputs (the vocabulary), None for networks that read floats. `source` names the paper
    and the implementation the graph follows.
    """

    name: str
    description: str
    quantized: bool = False
    parameters: int
    multiply_adds: int | None = None
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    source: str
    integer_limit: int | None = None

    def build(self, *, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
        """The network as an ONNX model, opset 17, with random weights and a fixed batch.

        Equal seeds give equal weights at any batch. Raises ValueError if `batch` is below 1.
        """
        from tilewright.models.zoo._builder import GraphBuilder
        from tilewright.models.zoo._description import append_network, zoo_sections

        variances = _measured().get(self.description, ())
        graph = GraphBuilder(self.name, batch=batch, seed=seed, variances=variances)
        append_network(graph, self.description, zoo_sections(), quantized=self.quantized)
        graph.model.graph.doc_string = self.source
        return graph.model


@cache
def _entries() -> Mapping[str, ZooEntry]:
    text = resources.files(__name__).joinpath("figures.toml").read_text(encoding="utf-8")
    return {
        name: convert({"name": name, "description": name} | figures, ZooEntry)
        for name, figures in tomllib.loads(text).items()
    }


@cache
def _measured() -> Mapping[str, Sequence[float]]:
    """Variances of what batch normalizations read, in their order, by network."""
    text = resources.files(__name__).joinpath("variances.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), dict[str, list[float]])


def names() -> tuple[str, ...]:
    """Names of all networks, in the order of the documentation."""
    return tuple(_entries())


def entry(name: str) -> ZooEntry:
    """What is known about a network without building it.

    Raises LookupError(name) if the zoo has no such network.
    """
    if name not in _entries():
        raise LookupError(name)
    return _entries()[name]


def build(name: str, *, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """A network as an ONNX model: `entry(name).build(batch=batch, seed=seed)`.

    Raises LookupError(name) if the zoo has no such network.
    """
    return entry(name).build(batch=batch, seed=seed)
