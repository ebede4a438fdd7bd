"""A peer of networks on GPUs that computes in numpy, as if it did so on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.graph.evaluate import run_graph
from tilewright.kernels.cuda.base import CUDA
from tilewright.measure.peers.base import ProcessPeer
from tilewright.measure.peers.engine import Arrays, Engine
from tilewright.models.loading import load

POINTS = {"tilewright.peers": {"numpy": f"{__name__}:peer"}}


def peer() -> ProcessPeer:
    return ProcessPeer(name="numpy", package="numpy", modules={CUDA: __name__})


class Numpy(Engine):
    def load(self, model_path: str, threads: int, precision: str) -> str:
        self.model = load(model_path)
        return "fp32"

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        return partial(run_graph, self.model.graph, inputs)

    def outputs(self, result: Any) -> Arrays:
        outputs = zip(self.model.outputs, self.model.graph.outputs, strict=True)
        return {name: result[tensor] for name, tensor in outputs}


if __name__ == "__main__":
    Numpy().serve()
