"""What a compiled network consists of, before anything is compiled: kernels, calls, constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.fingerprints import digest
from tilewright.core.forms import form_texts
from tilewright.core.records import Candidate
from tilewright.graph.arrange import Arrangement, KernelCall
from tilewright.graph.network import Array
from tilewright.graph.tasks import TaskKey, task_key
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation

Assignment = Mapping[TaskKey, Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """One call of a kernel in the network.

    `symbol` is the kernel's unique name; `constants` are the names of its constant operands in
    the parameter file, by argument index.
    """

    item: KernelCall
    symbol: str
    constants: dict[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantParameter:
    """A constant as the artifact stores it: name, physical shape, element type."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConstant:
    """One entry of the weights file: argument `index` of `workload`, packed for `candidate`.

    `sources` are the graph constants behind the workload's constant arguments, by argument index.
    """

    parameter: ConstantParameter
    workload: Workload
    candidate: Candidate
    index: int
    sources: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBlueprint:
    """Everything but the weights' values.

    `symbols` names the kernel of each task, `constants` what the weights file holds, in the order
    of the library's parameters.
    """

    arrangement: Arrangement
    assignment: Assignment
    uses: tuple[KernelUse, ...]
    symbols: Mapping[TaskKey, str]
    constants: tuple[StoredConstant, ...]


def packed_constant(stored: StoredConstant, values: Mapping[str, Array]) -> Array:
    """The physical form of one constant; `values` holds the graph's constants."""
    spec = implementation(stored.candidate.implementation)
    logical = {
        index: values[name].reshape(stored.workload.arguments[index].type.shape)
        for index, name in stored.sources.items()
    }
    if stored.index not in spec.packed_shapes(stored.workload, stored.candidate):
        return np.asarray(logical[stored.index], order="C")
    packed = spec.pack(stored.workload, stored.candidate, logical)
    return np.asarray(packed[stored.index], order="C")


def blueprint(arrangement: Arrangement, assignment: Assignment) -> NetworkBlueprint:
    """Name the kernels and the stored constants of a network."""
    graph = arrangement.network.graph
    symbols: dict[TaskKey, str] = {}
    uses: list[KernelUse] = []
    stored: dict[str, StoredConstant] = {}
    for item in arrangement.calls:
        key = task_key(item)
        if key not in assignment:
            raise InternalError(f"no candidate for task {key}")
        symbol = symbols.setdefault(key, f"kernel_{len(symbols)}_{item.call.workload.anchor_name}")
        sources = {
            index: name
            for index, (name, argument) in enumerate(
                zip(item.call.inputs, item.call.workload.arguments, strict=True)
            )
            if argument.role == "constant" or name in graph.constants
        }
        names: dict[int, str] = {}
        for index in sources:
            entry = _stored(item, assignment[key], index, sources)
            stored[entry.parameter.name] = entry
            names[index] = entry.parameter.name
        uses.append(KernelUse(item=item, symbol=symbol, constants=names))
    return NetworkBlueprint(
        arrangement=arrangement,
        assignment=assignment,
        uses=tuple(uses),
        symbols=symbols,
        constants=tuple(stored.values()),
    )


def _stored(
    item: KernelCall, candidate: Candidate, index: int, sources: Mapping[int, str]
) -> StoredConstant:
    workload = item.call.workload
    spec = implementation(candidate.implementation)
    kind = workload.arguments[index].type
    packed = spec.packed_shapes(workload, candidate)
    shape = packed.get(index, kind.shape)
    # packing may fold several constants into one, so all of them take part in the name
    origin = [sources[i] for i in sorted(sources)] if index in packed else [sources[index]]
    form = f"{candidate.implementation}{candidate.settings}{form_texts(candidate.forms)}{index}"
    identity = digest("\0".join([*origin, str(shape), form if index in packed else ""]))
    return StoredConstant(
        parameter=ConstantParameter(name=f"w_{identity}", shape=shape, dtype=kind.dtype),
        workload=workload,
        candidate=candidate,
        index=index,
        sources=sources,
    )
