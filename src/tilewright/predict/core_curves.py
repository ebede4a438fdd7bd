"""How the time of a kernel changes with the number of cores that it runs on.

    CoreCurves(table=CurveTable(kernels=…, target=…), model=…).carried_s(times_s, 1, (2, 4))

The curves are learnt from kernels timed on 1 to 16 cores of one machine and on both cores of two
others (docs/benchmarks-cores.md): the time on one core over that on several, from what the kernel
takes on one core, its independent pieces, its own estimates, and what of its data and weights the
caches of so many cores hold. Beyond 16 cores a curve goes on as it does from 8 to 16, as far as
there are pieces: nobody measured that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log2, sqrt

import numpy as np

from tilewright.core.grouping import grouped
from tilewright.core.targets import Target, threads_alone
from tilewright.kernels.estimates import facts_of_many
from tilewright.kernels.registry import implementation
from tilewright.predict.base import Features, Floats
from tilewright.predict.collected import family_of
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.kernel_features import Kernel

FAMILY = "cores"
"""The name of the curves' model."""

MODEL = 2
"""Of its features; other ones make another model."""

MOST_CORES = 16
"""Beyond so many nothing was measured."""

_GRID = (1, 2, 3, 4, 6, 8, 12, MOST_CORES)
_LAUNCH_S = {1: 0.4e-6, 2: 1.9e-6, MOST_CORES: 4.7e-6}
"""What starting a parallel loop takes, measured (docs/benchmarks-cores.md)."""

_FIRST, _WIDEST = 0.85, 1.1
"""How wide intervals are from one core to two, and at most, as parts of what held 90 % of all rows
when the model was fitted: so they held 89 to 96 % of the operators that it had not seen, by number
of cores (docs/benchmarks-cores.md)."""

_ROUNDS = 3
"""A curve depends on the time on one core, which follows from a time on several by the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """What kernels tell of themselves on a number of cores, one entry each."""

    pieces: Floats
    estimate_s: Floats

    def busy(self, cores: int) -> Floats:
        """How many cores equal pieces keep busy."""
        count = np.fmax(1.0, self.pieces)
        return count / np.ceil(count / cores)


def kernel_facts(kernels: Sequence[Kernel], target: Target, cores: int) -> KernelFacts:
    """The facts of kernels on so many cores."""
    pieces, estimate_s = np.ones(len(kernels)), np.ones(len(kernels))
    alike = grouped(
        [((chosen.implementation, chosen.forms), n) for n, (_, chosen) in enumerate(kernels)]
    )
    for (name, forms), rows in alike.items():
        told = facts_of_many(
            implementation(name),
            [kernels[row][0] for row in rows],
            target,
            threads_alone(cores),
            forms,
            [dict(kernels[row][1].settings) for row in rows],
        )
        pieces[rows], estimate_s[rows] = told["parallel_extent"], told["estimate_s"]
    return KernelFacts(pieces=pieces, estimate_s=estimate_s)


@dataclass(frozen=True, kw_only=True)
class CurveTable:
    """Kernels on a processor as rows of features, for any number of cores."""

    kernels: Sequence[Kernel]
    target: Target
    _facts: dict[int, KernelFacts] = field(default_factory=dict[int, KernelFacts], init=False)

    def facts(self, cores: int) -> KernelFacts:
        """The facts of the kernels on so many cores."""
        if cores not in self._facts:
            self._facts[cores] = kernel_facts(self.kernels, self.target, cores)
        return self._facts[cores]

    def features(self, alone_s: Floats, cores: int) -> Features:
        """What is known of kernels that take `alone_s` on one core, before they run on `cores`. The
        scale is the time on one."""
        one, here, l2_bytes = self.facts(1), self.facts(cores), self.target.cache_bytes(2)
        there = self.target.cores if cores <= self.target.cores else MOST_CORES
        columns = {
            "cores": np.full(len(alone_s), log2(cores)),
            "machine": np.full(len(alone_s), log2(min(there, MOST_CORES))),
            "l2": np.full(len(alone_s), log2(max(1, l2_bytes))),
            "alone_s": np.log2(alone_s),
            "busy": np.log2(here.busy(cores)),
            "pieces": np.log2(np.clip(here.pieces, 1.0, 1024.0)),
            "estimate": np.log2(one.estimate_s / here.estimate_s),
            "over_estimate": np.log2(alone_s / one.estimate_s),
        }
        for name, sizes in self._sizes.items():
            columns[f"op.{name}"] = np.log2(sizes + 1.0)
            columns[f"{name}_per_s"] = np.clip(np.log2((sizes + 1.0) / alone_s), 20.0, 40.0)
            if name != "flop":
                columns[f"{name}_of_l2"] = np.clip(np.log2((sizes + 1.0) / l2_bytes), -5, 5)
                columns[f"{name}_of_all_l2"] = np.clip(
                    np.log2((sizes + 1.0) / l2_bytes / cores), -5.0, 5.0
                )
        columns |= {f"family.{name}": which for name, which in self._families.items()}
        values = np.column_stack(list(columns.values()))
        return Features(names=tuple(columns), values=values, scale=alone_s)

    @cached_property
    def _sizes(self) -> dict[str, Floats]:
        workloads = [workload for workload, _ in self.kernels]
        constants = [
            sum(one.type.bytes for one in workload.arguments if one.role == "constant")
            for workload in workloads
        ]
        whole = np.array([workload.bytes for workload in workloads], np.float64)
        return {
            "data": whole - np.array(constants),
            "constants": np.array(constants, np.float64),
            "flop": np.array([workload.flop for workload in workloads], np.float64),
        }

    @cached_property
    def _families(self) -> dict[str, Floats]:
        names = np.array([family_of(workload) for workload, _ in self.kernels])
        return {str(name): (names == name).astype(np.float64) for name in np.unique(names)}


@dataclass(frozen=True, kw_only=True)
class CoreCurves:
    """The curves of kernels on one device."""

    table: CurveTable
    model: FamilyModel

    def carried_s(self, times_s: Floats, known: int, wanted: Sequence[int]) -> dict[int, Floats]:
        """Seconds of each kernel on each `wanted` number of cores where it takes `times_s` on
        `known`."""
        alone_s = times_s
        for _ in range(_ROUNDS if known > 1 else 0):
            alone_s = times_s * alone_s / self._on(alone_s, (known,))[known]
        there_s = self._on(alone_s, (known, *wanted))
        return {cores: times_s * there_s[cores] / there_s[known] for cores in wanted}

    def reach(self, known: int, wanted: int) -> float:
        """How far 90 % of the times carried over lie from the truth at most, in the logarithm: it
        grows with the root of the doublings between the two, up to what is as wide for all
        numbers of cores, and is twice as much beyond what was measured."""
        share = min(_WIDEST, _FIRST * sqrt(abs(log2(wanted / known))))
        return self.model.reach * share * (2.0 if max(known, wanted) > MOST_CORES else 1.0)

    def _on(self, alone_s: Floats, counts: Sequence[int]) -> dict[int, Floats]:
        """Seconds on each of these numbers of cores; more cores take longer by what starting them
        takes at most."""
        found, least_s = {1: alone_s}, alone_s - _launch_s(1)
        most = MOST_CORES if max(counts) > MOST_CORES else max(counts)
        steps = {n for n in _GRID if n <= most} | {n for n in counts if n <= MOST_CORES}
        for cores in sorted(steps - {1}):
            said_s = self.model.predict(self.table.features(alone_s, cores)).predicted
            found[cores] = np.minimum(said_s, np.maximum(least_s, 0.0) + _launch_s(cores))
            least_s = np.minimum(least_s, found[cores] - _launch_s(cores))
        beyond = [cores for cores in counts if cores > MOST_CORES]
        return found | {cores: self._beyond(found, cores) for cores in beyond}

    def _beyond(self, found: Mapping[int, Floats], cores: int) -> Floats:
        """As it goes on from 8 to 16 cores, where there are pieces for more."""
        slope = np.clip(np.log2(found[MOST_CORES // 2] / found[MOST_CORES]), 0.0, 1.0)
        facts = self.table.facts(cores)
        gain = np.maximum(1.0, facts.busy(cores) / facts.busy(MOST_CORES))
        return found[MOST_CORES] / gain**slope


def _launch_s(cores: int) -> float:
    return float(np.interp(log2(cores), np.log2(list(_LAUNCH_S)), list(_LAUNCH_S.values())))
