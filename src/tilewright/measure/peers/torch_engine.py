"""The child process in which eager torch runs our graph of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.core.child import serve, wait_until_asleep
from tilewright.measure.peers.timing import time_calls
from tilewright.measure.peers.torch_graph import TorchGraph
from tilewright.measure.peers.torch_operators import torch
from tilewright.models.loading import load

Arrays = dict[str, np.ndarray[Any, Any]]


class Engine:
    """One graph. Torch computes fp32 as fp32 unless told otherwise, so there is one precision."""

    def __init__(self) -> None:
        self._network: TorchGraph | None = None

    def start(self, model_path: str, threads: int, _precision: str) -> str:
        """Read the model and bind it to torch."""
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        self._network = TorchGraph(load(model_path).graph)
        wait_until_asleep()
        return "fp32"

    def run(self, inputs: Arrays) -> Arrays:
        """One call; outputs by name."""
        assert self._network is not None
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
        with torch.inference_mode():
            outputs = self._network.run(tensors)
        arrays = {name: np.ascontiguousarray(value.numpy()) for name, value in outputs.items()}
        wait_until_asleep()
        return arrays

    def time(self, inputs: Arrays, repeats: int, warmup: int) -> list[float]:
        """Seconds per call with the inputs converted ahead."""
        network = self._network
        assert network is not None
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
        with torch.inference_mode():
            return time_calls(lambda: network.run(tensors), repeats, warmup)


if __name__ == "__main__":
    engine = Engine()
    serve({"start": engine.start, "run": engine.run, "time": engine.time})
