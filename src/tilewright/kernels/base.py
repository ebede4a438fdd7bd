"""What an implementation of an operator must tell without touching a compiler.

The half here is numpy only; the half of the same name in `compiler.lower` builds the kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import Work
from tilewright.graph.network import Array, TensorType
from tilewright.graph.workload import Step, Workload
from tilewright.kernels.columns import Bools
from tilewright.kernels.knobs import Knob as Knob

CPU = frozenset({"cpu"})
"""The kinds of targets that implementations are for unless they name others."""

LLVM = "llvm"
"""What builds kernels of implementations that name nothing else."""

HALF, FLOAT16 = "bfloat16", "float16"
HALVES = frozenset({HALF, FLOAT16})
"""The element types of 16 bits that singles may be stored and multiplied in."""

MIXED = "auto"
"""The precision of which each tensor gets its own part."""

CODED_WEIGHTS = "int8-weights"
"""The precision of which dense layers have their weights on codes of eight bits."""

CHOSEN = frozenset({MIXED, "int8"})
"""Precisions in which products are in the type that their operands lie in."""

SINGLE = frozenset({"float32"})
"""The element types that kernels for single precision take."""


def anchored(
    workload: Workload, operator: str = ""
) -> tuple[Step, tuple[TensorType, ...], TensorType]:
    """The anchor, the types of its operands, and that of its result.

    Raises InternalError where there is none, or another operator than the one that is asked for.
    """
    step, index = workload.anchor, workload.anchor_index
    if step is None or index is None or operator not in ("", step.operator):
        raise InternalError(f"{workload.key} has no {f'{operator} anchor'.lstrip()}")
    operands, result = workload.step_types(index)
    return step, operands, result


class Implementation(Protocol):
    """One way to compute workloads with a certain anchor.

    `name` is unique and joins the two halves. `anchors` are the operators it can anchor on.
    """

    @property
    def name(self) -> str: ...

    @property
    def anchors(self) -> frozenset[str]: ...

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Whether it can compute this workload on this kind of processor, with these resources."""
        ...

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[tuple[Form, ...], ...]:
        """Layouts worth considering for its ports (arguments, then the result), the usual first.

        The graph tuner chooses among them; `kernels.ports` has the common answers.
        """
        ...

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """The knobs, each with its candidate values."""
        ...

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Whether a combination of knob values makes sense together."""
        ...

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """What one call asks of the processor, vectorised: one array entry per setting.

        `cost` makes a rough time of it, from which defaults are picked.
        """
        ...

    def error_bound(self, workload: Workload) -> float:
        """Largest error relative to sum |w||x| that a correct kernel may show."""
        ...

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shapes of the constant arguments that `pack` rearranges (by argument index)."""
        ...

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """The physical form of each constant argument (by argument index)."""
        ...


@runtime_checkable
class OtherProcessors(Protocol):
    """An implementation for other processors than CPUs, which all others are for."""

    @property
    def target_kinds(self) -> frozenset[str]:
        """The kinds of targets (`Target.kind`) that it is for."""
        ...


@runtime_checkable
class OtherBuilder(Protocol):
    """An implementation whose kernels are built by something else than TVM with LLVM."""

    @property
    def builder(self) -> str:
        """The name of what builds them, as in `compiler.builders`."""
        ...


@runtime_checkable
class Library(Protocol):
    """An implementation that hands tasks to another program's kernels.

    What it `applies` to nothing else computes. Other tasks that it `takes` it gets only where
    people name it (`Placement.libraries`), and only once it was measured on them: its estimates are
    believed by nobody.
    """

    def takes(self, workload: Workload, forms: tuple[Form, ...]) -> bool:
        """Whether it can compute a workload whose ports are in these forms."""
        ...

    def missing(self) -> str:
        """What must be installed before it can be used; empty where it can be."""
        ...


@runtime_checkable
class PacksTypes(Protocol):
    """An implementation that packs constants in other element types than their own."""

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Those element types, by argument index."""
        ...


@runtime_checkable
class TakesHalves(Protocol):
    """An implementation that reads and writes singles that lie in memory in 16 bits: they are
    widened when they are read, and rounded when they are written."""

    def half_ports(self, workload: Workload) -> frozenset[int]:
        """The ports, arguments and then the result, at which it does."""
        ...


@runtime_checkable
class TakesCodes(Protocol):
    """An implementation that reads constants as codes of eight bits with scales: it computes tasks
    of which these are in such a form, and no others."""

    def coded_ports(self, workload: Workload) -> frozenset[int]:
        """The ports of these constants."""
        ...


@runtime_checkable
class ReadsBeforeWriting(Protocol):
    """An implementation that writes each element of the result once, and then has read what it
    needs of operands at that place: the result may lie where such an operand lay."""

    reads_before_writing: bool


@runtime_checkable
class Coarse(Protocol):
    """An implementation that multiplies in a coarser element type than that of its operands.

    `multiplies_in` is that type. It competes only where people allow that precision
    (`Placement.precision`).
    """

    @property
    def multiplies_in(self) -> str: ...


@runtime_checkable
class ValidatesMany(Protocol):
    """An implementation of a large space, whose settings are filtered as columns: a space is listed
    many times as fast as by `valid`."""

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """`valid` of each setting."""
        ...


@runtime_checkable
class DemandsOfMany(Protocol):
    """An implementation that tells the demands of many workloads together: a batch of kernels that
    all differ is described many times as fast as by `demand`."""

    def demand_of_many(
        self,
        workloads: Sequence[Workload],
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """`demand` of each workload in the setting of its place; the layouts are those of all."""
        ...


class FilteredAsColumns(ABC):
    """The half of `ValidatesMany` that asks about one setting."""

    @abstractmethod
    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """See `ValidatesMany`."""

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """See `valid_many`."""
        return bool(self.valid_many(workload, target, resources, forms, [settings])[0])


class ToldAsColumns(FilteredAsColumns):
    """The halves of `ValidatesMany` and `DemandsOfMany` that ask about one workload."""

    @abstractmethod
    def demand_of_many(
        self,
        workloads: Sequence[Workload],
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """See `DemandsOfMany`."""

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """See `demand_of_many`."""
        return self.demand_of_many((workload,), target, resources, forms, settings)


@runtime_checkable
class OtherAlgorithm(Protocol):
    """An implementation whose algorithm needs another amount of work than the definition, or units
    of another speed."""

    def error_bound(self, workload: Workload) -> float:
        """Largest error relative to sum |w||x|."""
        ...

    def least_work(self, workload: Workload, target: Target) -> Work:
        """The least that the algorithm must do."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """Bytes of the buffers that a kernel takes from TVM's pools, in their order: `shared` ones by
    the thread that calls it, `own` ones by every thread that takes part in a parallel loop."""

    shared: tuple[int, ...] = ()
    own: tuple[int, ...] = ()


@runtime_checkable
class TakesWorkspace(Protocol):
    """An implementation whose kernels need more memory than their operands.

    Buffers of a few pages, such as one row of a tile, may be left out.
    """

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """What one call takes."""
        ...
