"""Dense layer of singles with products of float16, see `float16_sums`.

As `dense_packed`, with weights rounded ahead. Data is copied in the type that is multiplied, zeros
behind what does not fill a run. With one row the weights' bytes count, which are half as many: they
are widened as they come, on any processor that converts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand, Numbers
from tilewright.cost.floors import Work
from tilewright.graph.arrays import rounded_to
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FLOAT16, Knob
from tilewright.kernels.columns import Bools, column
from tilewright.kernels.float16_sums import RUNS, error_of_runs, lanes, rate_of_runs, runs
from tilewright.kernels.halves import ROUNDING_CYCLES, converts_float16, multiplied_work
from tilewright.kernels.matrix_products import PackedDense, product
from tilewright.kernels.ports import Widening
from tilewright.kernels.register_tile import RegisterTile
from tilewright.kernels.run_rounding import of_dense

_WIDE = (6, 8)
"""Registers of singles that blocks of columns may fill beside the usual numbers, for tiles of
halves."""


def copied(workload: Workload, forms: tuple[Form, ...], run: int) -> bool:
    """Whether the data is copied first: into the type that is multiplied, and up to whole runs."""
    data = product(workload).data
    as_it_is = data < len(forms) - 1 and forms[data].dtype == (FLOAT16 if run else None)
    return not as_it_is or (run > 0 and product(workload).depth % run > 0)


class Float16Dense(Widening, PackedDense):
    """Spec of the dense layer by products of float16."""

    name = "dense_float16"
    multiplies_in = FLOAT16

    def multiplied_in(self, workload: Workload) -> str:
        """Halves."""
        return FLOAT16

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision with constant weights on a CPU that converts halves."""
        return converts_float16(target) and super().applies(workload, target, resources)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Those of `dense_packed`, and how many products are added up in halves."""
        block, *others = super().knobs(workload, target, resources, forms)
        found = runs(target, product(workload).rows)
        if len(found) > 1:
            wide = product(workload).blocks(target.lanes(workload.computed_in), _WIDE)
            block = replace(block, values=(*block.values, *wide))
        return block, *others, Knob(name="run", values=found)

    def tile(self, settings: Sequence[Settings], register: Numbers) -> RegisterTile:
        """Of halves in runs, twice as many in a register."""
        twice = np.where(column(settings, "run") > 0, 2.0, 1.0)
        return super().tile(settings, twice * register)

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Sums fit the registers, which they fill; no run is longer than the sum."""
        whole = column(settings, "block") % lanes(target, settings) == 0
        short = column(settings, "run") <= product(workload).depth
        return whole & short & super().valid_many(workload, target, resources, forms, settings)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, at the rate of runs, and the copy of the data."""
        found = super().demand(workload, target, resources, forms, settings)
        dense = product(workload)
        copies = np.array([copied(workload, forms, int(s["run"])) for s in settings], np.float64)
        peak = target.operations_per_cycle(FLOAT16, tiles=False)
        run, rows = column(settings, "run"), column(settings, "tile_rows")
        return replace(
            found,
            per_cycle=found.per_cycle * rate_of_runs(target, run, rows) / peak,
            cycles=copies * ROUNDING_CYCLES * workload.types[dense.data].elements,
            launches=1.0 + copies,
        )

    def error_bound(self, workload: Workload) -> float:
        """See `error_of_runs`."""
        return error_of_runs(product(workload).depth)

    def addition_deviations(self, workload: Workload, operands: Sequence[Array]) -> Array:
        """See `AddsInHalves`: in runs of the usual length."""
        data, weights = operands
        return of_dense(data, weights, max(RUNS) if product(workload).rows > 1 else 0)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of halves, where there is arithmetic on them."""
        return multiplied_work(workload, target, product(workload).weight, FLOAT16)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are rounded ahead."""
        return {product(workload).weight: FLOAT16}

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights."""
        ((weight, (chunks, depth, block)),) = super().packed_shapes(workload, candidate).items()
        run = int(candidate.setting("run")) or 1
        return {weight: (chunks, -(-depth // run) * run, block)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[K, N] → [N/b, K, b], K and N padded with zeros to whole runs and blocks."""
        dense = product(workload)
        depth = self.packed_shapes(workload, candidate)[dense.weight][1]
        weights = np.pad(constants[dense.weight], ((0, depth - dense.depth), (0, 0)))
        halves = rounded_to(weights, FLOAT16).astype(np.float16)
        return super().pack(workload, candidate, {**constants, dense.weight: halves})


SPEC = Float16Dense()
