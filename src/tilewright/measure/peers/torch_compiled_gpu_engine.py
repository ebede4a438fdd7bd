"""The child process in which torch, with its compiler, runs our graph of a model on a GPU.

The compiler chooses layouts itself. What it launches is captured as a CUDA graph, as eager torch's
launches are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.measure.peers.torch_compiled_engine import compiled
from tilewright.measure.peers.torch_engine import Place
from tilewright.measure.peers.torch_gpu_engine import TorchGpuEngine, on_gpu


class CompiledTorchGpuEngine(TorchGpuEngine):
    """One graph, compiled for the shapes it has."""

    def layouts(self) -> list[tuple[str, Place]]:
        """One: the compiler's."""
        return [("", on_gpu)]

    def called(self, place: Place) -> Callable[..., Any]:
        """Compiling takes tens of seconds."""
        return compiled(self._graph, place)


if __name__ == "__main__":
    CompiledTorchGpuEngine().serve()
