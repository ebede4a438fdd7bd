"""Plans over a CPU and a GPU whose parts are compiled in one place and run in another.

`ToCarry` compiles parts for devices that are elsewhere, and keeps no weights. `write` and `read`
are the folder of a plan; `CarriedParts` is what the runtime takes in the place of `PlanParts`.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from networks_on_a_card import drawn, is_drawn
from tilewright.compiler.cuda.compilers import Compiled
from tilewright.compiler.cuda.network import LIBRARY as CUDA_LIBRARY
from tilewright.compiler.cuda.network import write_network
from tilewright.core.errors import TargetError
from tilewright.core.records import Placement
from tilewright.core.schedules import PLAN_FILE
from tilewright.core.weights import WEIGHTS
from tilewright.deploy.compiled_parts import Way
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.base import CPU
from tilewright.kernels.plans import packed_constant
from tilewright.measure.networks import ToCompile
from tilewright.models.loaded import LoadedModel, PreparedNetwork
from tilewright.plan.scheduling.plan_file import Plan, read_plan, write_plan
from tilewright.plan.scheduling.schedule import Schedule

CPU_LIBRARY = "model.so"
_CARRIED = "carried.pickle"


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What is known of a plan where nothing is compiled: its networks without constants, those
    constants that are not drawn anew, the ways to compute it with the schedule of each and what
    each is promised to take in seconds, and which constants each part has, by its folder."""

    networks: Mapping[str, PreparedNetwork]
    constants: Mapping[str, Mapping[str, Array]]
    ways: Mapping[str, Way]
    schedules: Mapping[str, Schedule]
    promised_s: Mapping[str, float]
    stored: Mapping[str, tuple[Any, ...]]


def write(folder: Path, plan: Plan, carried: Carried) -> None:
    """Write the folder of a plan, beside the parts that lie there."""
    write_plan(plan, folder / PLAN_FILE)
    (folder / _CARRIED).write_bytes(pickle.dumps(carried))


def is_written(folder: Path) -> bool:
    """Whether a plan's folder is complete."""
    return (folder / _CARRIED).exists()


def bare(network: PreparedNetwork) -> PreparedNetwork:
    """A network without constants and files."""
    graph = replace(network.graph, constants={}, examples={})
    own = replace(network.model.graph, constants={}, examples={})
    model = LoadedModel(name=network.model.name, graph=own, reference=None)
    return replace(network, model=model, fused=replace(network.fused, graph=graph))


def small_constants(network: PreparedNetwork) -> dict[str, Array]:
    """The constants of a network that are carried."""
    return {name: a for name, a in network.graph.constants.items() if not is_drawn(a)}


@dataclass(kw_only=True)
class Compiling:
    """Compiles parts for a device, wherever that is, without weights; `stored` are the constants of
    each by the name of its folder. `compile_text` compiles CUDA C++ for an architecture."""

    compile_text: Any
    stored: dict[str, tuple[Any, ...]]

    def __call__(self, placement: Placement, parts: Sequence[ToCompile]) -> None:
        """Compile, one after the other."""
        for each in parts:
            each.folder.mkdir(parents=True, exist_ok=True)
            self.stored[each.folder.name] = tuple(each.plan.constants)
            if placement.target.kind in CPU:
                _write_for_cpu(each.plan, placement, each.folder / CPU_LIBRARY)
            else:
                _write_for_gpu(each.plan, placement, each.folder, self.compile_text)


def _write_for_cpu(plan: NetworkPlan, placement: Placement, path: Path) -> None:
    from tilewright.compiler.network import compile_network, write_library

    executable, _ = compile_network(plan, placement.target)
    write_library(executable, path)


def _write_for_gpu(
    plan: NetworkPlan, placement: Placement, folder: Path, compile_text: Any
) -> None:
    from tilewright.compiler.cuda_network import network_of

    network = network_of(plan, placement.target, compile_text, jobs=2)
    write_network(network, folder / CUDA_LIBRARY)


class Texts:
    """Compiles each text once: parts of several ways have kernels in common."""

    def __init__(self, compile_text: Any) -> None:
        self._compile, self._known = compile_text, dict[tuple[str, str], Compiled]()

    def __call__(self, source: str, arch: str) -> Compiled:
        """What a text is compiled to."""
        key = (source, arch)
        found = self._known.get(key) or self._compile(source, arch)
        if found.binary:
            self._known[key] = found
        return found


class CarriedPlan:
    """The folder of a plan that was compiled elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.plan = read_plan(folder / PLAN_FILE)
        self.carried: Carried = pickle.loads((folder / _CARRIED).read_bytes())  # noqa: S301 - ours

    @cached_property
    def _constants(self) -> dict[str, dict[str, Array]]:
        return {name: self._constants_of(name) for name in self.carried.networks}

    def _constants_of(self, name: str) -> dict[str, Array]:
        network, found = self.carried.networks[name], dict(self.carried.constants[name])
        own = {
            source
            for way in self.carried.ways.values()
            for part in way.parts[name]
            for stored in self.carried.stored[part.folder.name]
            for source in stored.sources.values()
        }
        for missing in sorted(own - found.keys()):
            found[missing] = drawn(missing, network.graph.types[missing].shape)
        return found

    def add_weights(self) -> None:
        """Write the weights of all parts that have none yet."""
        import tvm

        for way in self.carried.ways.values():
            for name, parts in way.parts.items():
                for part in parts:
                    folder = self.folder / part.folder.name
                    if (folder / WEIGHTS).exists():
                        continue
                    stored = self.carried.stored[part.folder.name]
                    arrays = {it.name: packed_constant(it, self._constants[name]) for it in stored}
                    held = {key: tvm.runtime.tensor(np.array(a)) for key, a in arrays.items()}
                    tvm.runtime.save_param_dict_to_file(held, str(folder / "begun"))
                    (folder / "begun").rename(folder / WEIGHTS)

    def way(self, name: str) -> Way:
        """A way, whose parts lie where this folder is now."""
        parts = {
            network: tuple(replace(p, folder=self.folder / p.folder.name) for p in each)
            for network, each in self.carried.ways[name].parts.items()
        }
        return Way(parts=parts)


class CarriedParts:
    """One way of a carried plan, as `deploy.compiled_parts.Parts`: nothing can be compiled."""

    def __init__(self, carried: CarriedPlan, way: str, placements: Mapping[str, Placement]) -> None:
        self._carried, self._way = carried, way
        self.plan, self.placements = carried.plan, placements
        self.names = tuple(carried.carried.networks)

    def network(self, name: str) -> PreparedNetwork:
        """A network, without its constants."""
        return self._carried.carried.networks[name]

    def way(self, schedule: Schedule) -> Way:
        """The one that there is, whatever the schedule."""
        return self._carried.way(self._way)

    def alone(self, device: str) -> Way:
        """Raises TargetError."""
        return self.left((), {})

    def fastest_alone(self, without: Collection[str] = ()) -> str | None:
        """None is there beside the one way."""
        return None

    def left(self, lost: Collection[str], slower: Mapping[str, float]) -> Way:
        """Raises TargetError."""
        raise TargetError("nothing else was compiled for this machine")
