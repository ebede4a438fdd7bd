"""The child process in which TensorRT runs a model: built for this GPU, captured as a CUDA graph
where that can be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

from tilewright.compiler.cuda.driver import DriverError
from tilewright.measure.peers.gpu_engine import StreamEngine, Way

tensorrt: Any = import_module("tensorrt")


class Refused(Exception):
    """TensorRT does not take the model; the message is its own."""


class TensorRt(StreamEngine):
    """One engine and one context of it."""

    def ways(self, model_path: str, precision: str) -> Sequence[Way]:
        """One: TensorRT chooses layouts and algorithms itself, by timing them while it builds.
        Raises `Refused`."""
        logger = tensorrt.Logger(tensorrt.Logger.ERROR)
        plan = _plan(logger, model_path, precision)
        self._engine = tensorrt.Runtime(logger).deserialize_cuda_engine(plan)
        if self._engine is None:
            raise Refused("the engine that was built cannot be loaded")
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise MemoryError("no execution context: out of the GPU's memory")
        for name, memory in self.memory.items():
            self._context.set_tensor_address(name, memory.address)
        self._launch()
        self.driver.synchronise()
        try:
            graph = self.driver.captured(self._launch_in_order)
        except (DriverError, Refused):
            return [Way("no CUDA graph", self._launch)]
        self.stream = None
        return [Way("CUDA graph", partial(self.driver.replay, graph))]

    def _launch(self) -> None:
        if not self._context.execute_async_v3(int(self.stream)):
            raise Refused("an execution failed")

    def _launch_in_order(self) -> None:
        """In the engine's stream, between what the driver's first stream did and does next."""
        for first, then in ((None, self.stream), (self.stream, None)):
            event = self.driver.event()
            self.driver.record(event, first)
            self.driver.wait(event, then)
            if then is not None:
                self._launch()


def _plan(logger: Any, model_path: str, precision: str) -> Any:
    """The engine in bytes, without tf32 where fp32 is asked for."""
    builder = tensorrt.Builder(logger)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(model_path):
        raise Refused("; ".join(str(parser.get_error(it)) for it in range(parser.num_errors)))
    config = builder.create_builder_config()
    if precision == "fp32":
        config.clear_flag(tensorrt.BuilderFlag.TF32)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise Refused("it builds no engine for the model; its log says why")
    return plan


if __name__ == "__main__":
    TensorRt().serve()
