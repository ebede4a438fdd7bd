"""The child process in which ONNX Runtime runs on a GPU, by its CUDA provider.

Its convolutions are tried with channels first and last; where every node runs on the GPU it
replays a CUDA graph, as our networks do. A run returns before the GPU is done, and events in its
stream tell the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

from tilewright.kernels.cuda.base import CUDA
from tilewright.measure.peers.gpu_engine import StreamEngine, Way

onnxruntime: Any = import_module("onnxruntime")
_state: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
_PROVIDER = "CUDAExecutionProvider"
_LAYOUTS = {"channels first": "0", "channels last": "1"}
_REFUSALS: tuple[type[Exception], ...] = tuple(
    getattr(_state, name)
    for name in ("EPFail", "Fail", "InvalidArgument", "NotImplemented", "RuntimeException")
)


class NoGpu(Exception):
    """ONNX Runtime cannot compute on a GPU here; the message says why."""


class OnnxRuntimeOnGpu(StreamEngine):
    """One session for each way, of which the fastest stays."""

    def load(self, model_path: str, threads: int, precision: str) -> str:
        """Raises `NoGpu` where the package is the one for CPUs."""
        if _PROVIDER not in onnxruntime.get_available_providers():
            raise NoGpu(
                f"ONNX Runtime {onnxruntime.__version__} is built without CUDA; the package "
                "onnxruntime-gpu has it"
            )
        self._threads = threads
        return super().load(model_path, threads, precision)

    def ways(self, model_path: str, precision: str) -> Sequence[Way]:
        """With a CUDA graph in each layout that it takes, else without."""
        found: list[Way] = []
        refusals: list[Exception] = []
        for layout in _LAYOUTS:
            for graph in (True, False):
                try:
                    found.append(self._way_of(model_path, precision, layout, graph=graph))
                    break
                except _REFUSALS as error:
                    refusals.append(error)
        if not found:
            raise refusals[-1]
        return found

    def _way_of(self, model_path: str, precision: str, layout: str, *, graph: bool) -> Way:
        session = self._session(model_path, precision, layout, graph=graph)
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        call = partial(session.run_with_iobinding, self._bound(session), options)
        call()
        self.driver.synchronise()
        return Way(f"{layout}, {'CUDA graph' if graph else 'no CUDA graph'}", call)

    def _session(self, model_path: str, precision: str, layout: str, *, graph: bool) -> Any:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3
        provider = {
            "user_compute_stream": str(int(self.stream)),
            "enable_cuda_graph": str(int(graph)),
            "prefer_nhwc": _LAYOUTS[layout],
            "use_tf32": str(int(precision != "fp32")),
            "cudnn_conv_algo_search": "EXHAUSTIVE",
            "arena_extend_strategy": "kSameAsRequested",
        }
        session = onnxruntime.InferenceSession(
            model_path,
            options,
            providers=[(_PROVIDER, provider), "CPUExecutionProvider"],
            enable_fallback=0,
        )
        if _PROVIDER not in session.get_providers():
            raise NoGpu(
                "ONNX Runtime cannot load its CUDA provider: libraries of CUDA or cuDNN that it "
                "was built for are missing"
            )
        return session

    def _bound(self, session: Any) -> Any:
        binding = session.io_binding()
        for names, bind in (
            (self.input_names, binding.bind_input),
            (self.output_names, binding.bind_output),
        ):
            for name in names:
                shape, address = self.types[name].shape, self.memory[name].address
                bind(name, CUDA, 0, self.numpy(name), shape, address)
        return binding


if __name__ == "__main__":
    OnnxRuntimeOnGpu().serve()
