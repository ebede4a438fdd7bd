"""The child process that compiles networks for a GPU, and runs and times them there;
`measure.cuda_networks` asks it.

A GPU is needed only from the first network that is loaded on: compiling wants none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.compiler.cuda.compilers import Compiled, compiled_source
from tilewright.compiler.cuda.driver import Driver
from tilewright.compiler.cuda.execute import LoadedCudaNetwork
from tilewright.compiler.cuda.network import LIBRARY, write_network
from tilewright.core import child, records
from tilewright.core.errors import InternalError
from tilewright.core.targets import Target
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.probe import allotted_cpus
from tilewright.kernels.base import Workspaces
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure.base import Array
from tilewright.measure.resident import MemoryPeak

CompileText = Callable[[str, str], Compiled]


@dataclass(slots=True)
class Gpu:
    """What this process has on a GPU: its driver, and networks by name. `open_driver` opens the
    driver of a target; `compile_text` compiles CUDA C++ for an architecture."""

    open_driver: Callable[[Target], Driver]
    compile_text: CompileText = field(default=cache(compiled_source))
    networks: dict[str, LoadedCudaNetwork] = field(default_factory=dict[str, LoadedCudaNetwork])
    target: Target | None = None
    _driver: Driver | None = None

    def prepare(self, target: Target) -> None:
        """Note the target; nothing of a GPU is taken yet."""
        self.target = target

    @property
    def driver(self) -> Driver:
        """The target's driver. Raises TargetError where it cannot be had."""
        if self._driver is None:
            if self.target is None:
                raise InternalError("nobody said which GPU is meant")
            self._driver = self.open_driver(self.target)
        return self._driver

    def compile(
        self, plan: NetworkPlan, placement: records.Placement, packed: Path, folder: Path
    ) -> CompiledNetwork:
        """Write the network and its weights into `folder`."""
        from tilewright.compiler.cuda_network import network_of
        from tilewright.compiler.network import write_weights

        jobs = len(allotted_cpus())
        network = network_of(plan, placement.target, self.compile_text, jobs=jobs)
        folder.mkdir(parents=True, exist_ok=True)
        write_network(network, folder / LIBRARY)
        write_weights(folder, plan, packed)
        return CompiledNetwork(
            workspaces={
                symbol: Workspaces(shared=(size,) if size else ())
                for symbol, size in network.workspaces.items()
            },
            library_bytes=(folder / LIBRARY).stat().st_size,
        )

    def load(self, name: str, folder: Path, order: list[str]) -> None:
        """Load a compiled network as `name`."""
        self.unload(name)
        self.networks[name] = LoadedCudaNetwork.open(folder, order, self.driver)

    def unload(self, name: str) -> None:
        """Forget a network."""
        network = self.networks.pop(name, None)
        if network is not None:
            network.close()

    def memory_peak(
        self, folder: Path, order: list[str], inputs: list[Array], runs: int
    ) -> MemoryPeak:
        """What loading and running a network takes of the GPU's memory, by what is free."""
        before = self.driver.free_bytes()
        network = LoadedCudaNetwork.open(folder, order, self.driver)
        network.time(inputs, repeats=runs, warmup=0)
        taken = before - self.driver.free_bytes()
        network.close()
        if taken < 0:
            reason = "another process gave memory of the GPU back meanwhile"
            return MemoryPeak(bytes=None, method="none", reason=reason)
        return MemoryPeak(bytes=taken, method="free memory of the GPU, before and after")

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """What answers each request."""
        return {
            "prepare": self.prepare,
            "compile": self.compile,
            "load": self.load,
            "unload": self.unload,
            "run": self._on_network(LoadedCudaNetwork.__call__),
            "time": self._on_network(LoadedCudaNetwork.time),
            "repeat": self._on_network(LoadedCudaNetwork.repeat),
            "time calls": self._on_network(LoadedCudaNetwork.time_calls),
            "memory peak": self.memory_peak,
        }

    def _on_network(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def handler(name: str, *arguments: Any) -> Any:
            return method(self.networks[name], *arguments)

        return handler


if __name__ == "__main__":
    from tilewright.compiler.cuda.nvidia import open_driver

    child.serve(Gpu(open_driver).handlers)
