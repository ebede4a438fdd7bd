"""Measures what batch normalizations of the zoo read, on drawn images, with ONNX Runtime, and
writes it to `models/zoo/variances.toml`. Every one divides by what it reads: one run measures all.
Weights of several seeds are measured, since those of single ones are off by up to a half.

    python benchmarks/zoo_variances.py src/tilewright/models/zoo/variances.toml
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from tilewright.graph.inputs import random_image
from tilewright.models import zoo
from tilewright.models.zoo._builder import NORM_SHIFT, GraphBuilder
from tilewright.models.zoo._description import append_network, zoo_sections

IMAGES, SEEDS = 2, 3


class Measuring(GraphBuilder):
    """Writes batch normalizations as what they are in training; `read` has the variances, which
    are outputs of the network."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, batch=IMAGES, seed=seed)
        self.read: list[str] = []

    def norm(
        self,
        x: str,
        epsilon: float = 1e-5,
        scale: float = 1.0,
        shift: float = NORM_SHIFT,
        name: str = "bn",
    ) -> str:
        """Divides by the standard deviation within channels, on average over them."""
        channels = self.shape(x)[1]
        weight, bias, mean, spread = self.drawn_norm(self.path(name), channels, scale, shift)
        mean_of_channels = self.node("ReduceMean", x, axes=(0, 2, 3), keepdims=1)
        centred = self.node("Sub", x, mean_of_channels)
        square = self.node("Mul", centred, centred)
        variance = self.node("ReduceMean", square, keepdims=1, name=f"{name}.read")
        self.read.append(variance)
        self.model.graph.output.append(onnx.helper.make_value_info(variance, self._types[variance]))
        scaled = self.node("Div", x, self.node("Sqrt", variance))
        factor = weight / np.sqrt(spread)
        factors = self.constant(factor.reshape(-1, 1, 1), name=f"{name}.factor")
        shifts = self.constant((bias - mean * factor).reshape(-1, 1, 1), name=f"{name}.shift")
        return self.node("Add", self.node("Mul", scaled, factors), shifts)


def variances(name: str) -> list[float]:
    """What the batch normalizations of a network read, in their order: geometric means."""
    logarithms = np.mean([np.log(of_seed(name, seed)) for seed in range(SEEDS)], axis=0)
    return [float(f"{value:.3g}") for value in np.exp(logarithms)]


def of_seed(name: str, seed: int) -> list[float]:
    """The same of the weights of one seed."""
    graph = Measuring(name, seed)
    append_network(graph, name, zoo_sections())
    if not graph.read:
        return []
    session = onnxruntime.InferenceSession(graph.model.SerializeToString())
    shape = (IMAGES, *zoo.entry(name).input_shapes[0][1:])
    images = random_image(np.random.default_rng(seed), shape)
    found = session.run(graph.read, {session.get_inputs()[0].name: images})
    return [np.asarray(value).item() for value in found]


def written(found: dict[str, list[float]]) -> str:
    """The text of the file, in lines of ten numbers."""
    lines = [
        "# The variance within channels of what each batch normalization reads, in the order in",
        "# which they are built, measured by benchmarks/zoo_variances.py.",
    ]
    for name, values in found.items():
        lines += ["", f"{name} = ["]
        for start in range(0, len(values), 10):
            lines.append("    " + ", ".join(map(repr, values[start : start + 10])) + ",")
        lines.append("]")
    return "\n".join(lines) + "\n"


def main(path: Path) -> None:
    """Measure every network of images in single precision."""
    wanted = [
        name
        for name in zoo.names()
        if zoo.entry(name).description == name and len(zoo.entry(name).input_shapes[0]) == 4
    ]
    found = {name: values for name in wanted if (values := variances(name))}
    path.write_text(written(found), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    main(parser.parse_args().file)
