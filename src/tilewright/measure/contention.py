"""How much kernels on two cores of this machine slow each other down, measured and kept.

    measured_contention(placement)     3.7e10, say: 37 GB/s (see `cost.contention`)

Products of a matrix and a vector are timed beside each other: they do little but read weights,
from memory or, where the last-level cache holds all of them, from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from tilewright.core.forms import PLAIN
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import threads_alone
from tilewright.cost.contention import CONTENTION, CONTENTION_CORES, measured_scale
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.estimates import kernel_stream
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.kernels import beside
from tilewright.measure.pairs import KernelPairs, PairTimes
from tilewright.measure.targeting import in_this_process
from tilewright.models import ModelOptions
from tilewright.store.base import Store

_ROWS = (4096, 2048), (4096, 4096)
"""Weights of 32 and of 64 MiB."""


def keep_contention(store: Store, placement: Placement) -> None:
    """Measure the scale of a machine as `measured_contention` does, and keep it for its class, of
    one thread, where it could be measured."""
    found = measured_contention(placement)
    if found is not None:
        store.add_device(placement.device)
        store.add_peak(
            replace(placement, resources=threads_alone(CONTENTION_CORES)).key, CONTENTION, found
        )


def measured_contention(placement: Placement) -> float | None:
    """The scale of a machine in bytes per second, measured on the first two cores of a placement;
    None where it has fewer or is no CPU of this machine, and where the kernels did not run."""
    one = replace(
        placement, resources=threads_alone(CONTENTION_CORES), precision=ModelOptions().precision
    )
    if len(one.binding.cpus) < 2 or not in_this_process(one):
        return None
    kernels = [_product(rows, columns, one) for rows, columns in _ROWS]
    try:
        with KernelPairs(beside(one, CONTENTION_CORES)) as measuring:
            return scale_of(kernels, measuring.times(kernels), one)
    except (ChildError, RemoteError):
        return None


def scale_of(
    kernels: Sequence[tuple[Workload, Candidate]], times: PairTimes, one: Placement
) -> float:
    """The scale by what two kernels took beside each other, on a core each."""
    own, other = (
        kernel_stream(*kernel, one.target, CONTENTION_CORES) / median(alone_s)
        for kernel, alone_s in zip(kernels, times.alone_s, strict=True)
    )
    return measured_scale((own, other, slower) for slower in times.slowdowns)


def _product(rows: int, columns: int, one: Placement) -> tuple[Workload, Candidate]:
    workload = Workload(
        arguments=(
            Argument(type=TensorType((1, rows))),
            Argument(type=TensorType((rows, columns)), role="constant"),
        ),
        steps=(Step(operator="dense", inputs=(0, 1)),),
    )
    return workload, default_candidate(workload, (PLAIN,) * 3, one)[0]
