"""What every builder of kernels must keep, as checks that another package can run on its own.

    from tilewright.testing.builders import BuilderConformance
    from tilewright.testing.implementations import single

    class TestMine(BuilderConformance):
        builder = BUILDER
        placement = PLACEMENT
        workloads = (single("relu", (1, 16, 8, 8)),)

Kernels are those of the implementations that apply to the workloads on the placement, in their
default settings. They are built and called in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isfinite
from typing import ClassVar

import numpy as np
from msgspec import structs

from tilewright.compiler.builders.base import FAULTS, Builder, Kernel
from tilewright.core.errors import TargetError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Placement, Protocol
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import builder_of, implementation
from tilewright.kernels.spaces import ranked_defaults
from tilewright.measure.checking import (
    least_of,
    numpy_reference,
    relative_error,
    sample_arguments,
)

_SEED = 0
_SHORT = Protocol(warmup=1, repeats=3, sample_s=1e-4, rotation_bytes=1 << 16)
_MOMENT_S = 0.01
_VIEWS = ("tir", "asm")


def candidates_of(builder: Builder, workload: Workload, placement: Placement) -> list[Candidate]:
    """The default candidates of a workload in plain forms whose implementations name the builder,
    or all of them for one that no implementation names."""
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    every = [candidate for candidate, _ in ranked_defaults(workload, forms, placement)]
    named = [candidate for candidate in every if builder_of(candidate) == builder.name]
    assert every, f"no implementation applies to {workload.key}"
    return named or every


def check_identity(builder: Builder, workload: Workload, placement: Placement) -> None:
    """A kernel's hash is the same whenever it is asked for, and that of the built kernel."""
    on = placement.target, placement.resources
    for candidate in candidates_of(builder, workload, placement):
        told = builder.identify(workload, candidate, *on)
        assert isinstance(told, str) and told, "a hash is no text"
        assert builder.identify(workload, candidate, *on) == told, "asked twice, hashes differ"
        kernel = builder.build(workload, candidate, *on)
        assert kernel.kernel_hash == told, "the built kernel has another hash"
        assert kernel.build_s >= 0.0


def check_results(builder: Builder, workload: Workload, placement: Placement) -> None:
    """Kernels give numpy's numbers within the bound that their implementation promises, called once
    and again, and leave their operands alone."""
    arrays = sample_arguments(workload, _SEED)
    kept = [array.copy() for array in arrays]
    expected, scale = numpy_reference(workload, arrays)
    for candidate, kernel in _kernels(builder, workload, placement):
        for _ in range(2):
            result = np.asarray(kernel.run(arrays))
            assert result.shape == workload.result.shape, f"a result of shape {result.shape}"
            least = least_of(workload, candidate.forms[-1])
            error = relative_error(result, expected, scale, least)
            bound = implementation(candidate.implementation).error_bound(workload)
            assert error <= bound, (
                f"{candidate.implementation}: error {error:.3g} above {bound:.3g}"
            )
        for array, before in zip(arrays, kept, strict=True):
            np.testing.assert_array_equal(array, before, "an operand was changed")


def check_times(builder: Builder, workload: Workload, placement: Placement) -> None:
    """As many samples as the protocol wants, all of them positive seconds, and at least one of a
    kernel that is given up; it can be kept busy for a while."""
    for _, kernel in _kernels(builder, workload, placement):
        samples = kernel.time(_SHORT, _SEED, inf)
        assert len(samples) == _SHORT.repeats, f"{len(samples)} samples for {_SHORT.repeats}"
        assert all(isfinite(s) and s > 0.0 for s in samples), f"no times: {samples}"
        assert kernel.time(_SHORT, _SEED, 0.0), "no sample of a kernel that is too slow"
        assert kernel.repeat(_SHORT, _SEED, _MOMENT_S) >= 1
        _check_keeping(kernel)


def _check_keeping(kernel: Kernel) -> None:
    wanted, begun = iter([True, False]), list[bool]()
    watch = (lambda: next(wanted, False), lambda: begun.append(True))
    bursts = kernel.keep_running(_SHORT, _SEED, watch)
    assert sum(burst.calls for burst in bursts) >= 1
    for burst in bursts:
        assert burst.begin_s < burst.end_s and burst.busy_s > 0.0, f"no time passed: {burst}"
    assert begun == [True], "nobody was told that the first calls are done"


def check_refusals(builder: Builder, workload: Workload, placement: Placement) -> None:
    """A candidate that cannot be built raises, and the next one is built all the same."""
    candidate = candidates_of(builder, workload, placement)[0]
    broken = structs.replace(candidate, implementation="no such implementation")
    try:
        builder.build(workload, broken, placement.target, placement.resources)
    except FAULTS:
        pass
    else:
        raise AssertionError("a candidate of an unknown implementation was built")
    builder.build(workload, candidate, placement.target, placement.resources)


def check_views(builder: Builder, workload: Workload, placement: Placement) -> None:
    """Each view of a kernel is a text, or refused with a TargetError."""
    candidate = candidates_of(builder, workload, placement)[0]
    for view in _VIEWS:
        try:
            text = builder.render(workload, candidate, placement.target, placement.resources, view)
        except TargetError as error:
            assert view in error.message, "the refusal does not name the view"
        else:
            assert isinstance(text, str) and text, f"the view {view} is empty"


def _kernels(
    builder: Builder, workload: Workload, placement: Placement
) -> Iterator[tuple[Candidate, Kernel]]:
    for candidate in candidates_of(builder, workload, placement):
        on = placement.target, placement.resources
        yield candidate, builder.build(workload, candidate, *on)


class BuilderConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets the three attributes."""

    builder: ClassVar[Builder]
    placement: ClassVar[Placement]
    workloads: ClassVar[Sequence[Workload]]

    def test_identity(self) -> None:
        for workload in self.workloads:
            check_identity(self.builder, workload, self.placement)

    def test_results(self) -> None:
        for workload in self.workloads:
            check_results(self.builder, workload, self.placement)

    def test_times(self) -> None:
        for workload in self.workloads:
            check_times(self.builder, workload, self.placement)

    def test_refusals(self) -> None:
        for workload in self.workloads:
            check_refusals(self.builder, workload, self.placement)

    def test_views(self) -> None:
        for workload in self.workloads:
            check_views(self.builder, workload, self.placement)
