"""Checks before anything is believed: kernels against numpy, the network against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Failure, KernelCheck, NetworkCheck
from tilewright.graph import evaluate, inputs
from tilewright.graph.arrays import rounded_to, rounded_to_codes
from tilewright.graph.network import Array
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Coarse
from tilewright.kernels.registry import implementation
from tilewright.measure import telling
from tilewright.measure.base import Measurer

Floats = npt.NDArray[np.floating[Any]]
_NO_MEMORY = "out of memory"
_MOST_DB = 300.0
"""The ratio of signal to noise where there is no noise."""


def sample_arguments(workload: Workload, seed: int) -> list[Array]:
    """Random logical arguments of a workload.

    Bytes take their whole range, and scales behind integer sums and those within attention on codes
    bring results into that of a byte; recurrent layers get weights of which they are not chaotic.
    """
    rng = np.random.default_rng(seed)
    usual, scales = (0, inputs.argument_limit(workload)), inputs.argument_scales(workload)
    ranges = {"bool": (0, 2)}
    if not inputs.argument_uses(workload):
        ranges |= {"int8": (-128, 128), "uint8": (0, 256)}
    arrays: list[Array] = []
    for index, argument in enumerate(workload.arguments):
        kind = argument.type
        if kind.dtype in ranges or "int" in kind.dtype:
            values = rng.integers(*ranges.get(kind.dtype, usual), kind.shape)
        else:
            values = rng.standard_normal(kind.shape, dtype=np.float32)
            values *= np.float32(scales.get(index, 1.0))
        arrays.append(values.astype(kind.dtype))
    for index, rows in inputs.argument_codings(workload).items():
        arrays[index] = rows
    return arrays


def check_kernel(
    measurer: Measurer, workload: Workload, candidate: Candidate, seed: int
) -> KernelCheck:
    """Run a candidate on random data and compare it with the reference, which numpy computes
    meanwhile."""
    spec = implementation(candidate.implementation)
    bound = spec.error_bound(workload) + rounding_of(candidate.forms[-1])
    coarse = bound if isinstance(spec, Coarse) else 0.0
    if any(step.operator == "opaque" for step in workload.steps):
        return KernelCheck(error=None, bound=bound)
    arrays = [
        stored_as(array, form)
        for array, form in zip(sample_arguments(workload, seed), candidate.forms, strict=False)
    ]
    with ThreadPoolExecutor(1) as thread:
        expected = thread.submit(numpy_reference, workload, arrays, coarse)
        result = measurer.evaluate(workload, candidate, arrays)
        if isinstance(result, Failure) and result.kind == _NO_MEMORY:
            result = measurer.evaluate(workload, candidate, arrays)
        if isinstance(result, Failure):
            # nothing is known against the kernel where a worker, fresh by then, is too small for it
            failure = result if result.kind != _NO_MEMORY else None
            return KernelCheck(error=None, bound=bound, failure=failure)
        with np.errstate(all="ignore"):
            least = least_of(workload, candidate.forms[-1])
            error = relative_error(result, *expected.result(), least)
    failure = None
    if not error <= bound:
        failure = measurer.failure(
            workload,
            candidate,
            "wrong result",
            f"error {error:.3g} relative to sum |w||x| exceeds the bound {bound:.3g}",
        )
    return KernelCheck(error=error, bound=bound, failure=failure)


def rounding_of(form: Form) -> float:
    """Largest relative error of what is stored in a form, where that is a coarser type."""
    return (form.dtype and element_type(form.dtype).unit_roundoff) or 0.0


def least_of(workload: Workload, form: Form) -> float:
    """The least size to which errors of a result are relative that is stored in a form: where its
    type has no bits left for smaller numbers, rounding takes as much from them."""
    return element_type(form.element(workload.result.dtype)).least


def stored_as(array: Array, form: Form) -> Array:
    """The numbers that are left of an array which lies in memory in a form."""
    if form.dtype is None:
        return array
    if form.encoding is not None and form.encoding.axis is not None:
        return rounded_to_codes(array, form.encoding.axis)
    return rounded_to(array, form.dtype)


def check_kernels(
    measurer: Measurer, kernels: Sequence[tuple[Workload, Candidate]], seed: int
) -> list[KernelCheck]:
    """The check of each, as many at a time as the measurer can serve."""
    return measurer.side_by_side(lambda kernel: check_kernel(measurer, *kernel, seed), kernels)


def numpy_reference(
    workload: Workload, arrays: Sequence[Array], coarse: float = 0.0
) -> tuple[Array, Array]:
    """What numpy computes, and sum |w||x|, with errors that are `coarse` before a step that jumps;
    halves in single precision, rounded at the end, unless a step jumps: then what it reads has to
    be rounded as the kernel does."""
    dtype = np.dtype(workload.result.dtype)
    if not any(OPERATORS[step.operator].jumps for step in workload.steps):
        workload = evaluate.in_single(workload)
        wide = [argument.type.dtype for argument in workload.arguments]
        arrays = [a.astype(kind, copy=False) for a, kind in zip(arrays, wide, strict=True)]
    with np.errstate(all="ignore"):
        return evaluate.run_workload(workload, arrays).astype(
            dtype, copy=False
        ), evaluate.magnitude(workload, arrays, coarse)


def relative_error(result: Array, reference: Array, scale: Array, least: float = 0.0) -> float:
    """Largest |result - reference| / scale, where nothing is smaller than `least`; infinite where
    NaN or infinities differ."""
    left, right = result.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(right)
    same = left.shape == right.shape and np.array_equal(
        left[~finite], right[~finite], equal_nan=True
    )
    if not (same and np.isfinite(left[finite]).all()):
        return float("inf")
    if not finite.any():
        return 0.0
    size = np.broadcast_to(np.asarray(scale, np.float64), right.shape)[finite]
    size = np.maximum(np.where(np.isfinite(size), size, 0.0), max(least, 1e-30))
    left, right = left[finite], right[finite]
    return float(np.max(np.abs(left - right) / np.maximum(size, np.abs(right))))


def compare_outputs(
    ours: Sequence[Array], theirs: Sequence[Array], names: Sequence[str]
) -> NetworkCheck:
    """Errors over all outputs, of which there must be as many as names; infinite where shapes,
    types, NaN or infinities differ."""
    return compare_runs([ours], [theirs], names)


def compare_runs(
    ours: Sequence[Sequence[Array]], theirs: Sequence[Sequence[Array]], names: Sequence[str]
) -> NetworkCheck:
    """The same over the outputs of several runs, each of other inputs."""
    absolute, relative, worst, ratios = 0.0, 0.0, "", [(_MOST_DB, _MOST_DB)]
    by_output = list(zip(*theirs, strict=True))
    every = list(zip(zip(*ours, strict=True), by_output, strict=True))
    for name, (lefts, rights) in zip(names, every, strict=True):
        scales = [_largest(right) for right in rights]
        errors = [_output_error(*each) for each in zip(lefts, rights, scales, strict=True)]
        absolute = max(absolute, *(e * scale for e, scale in zip(errors, scales, strict=True)))
        if max(errors) > relative:
            relative, worst = max(errors), name
        if max(errors) < inf and not _whole(rights[0]):
            ratios.append(_ratios_db(lefts, rights))
        elif max(errors) > 0.0:
            ratios.append((-_MOST_DB, -_MOST_DB))
    raw, centred = (min(found) for found in zip(*ratios, strict=True))
    counts = [(right, rows) for right, rows in (telling.top1(*each) for each in every) if rows]
    right, rows = min(counts, key=lambda count: count[0] / count[1], default=(0, 0))
    return NetworkCheck(
        max_abs_error=absolute,
        max_rel_error=relative,
        output=worst,
        sqnr_db=raw,
        centred_sqnr_db=centred if len(theirs) > 1 else None,
        top1_agreement=right / rows if rows else None,
        top1_rows=rows,
        untold=telling.untold(by_output, names),
    )


def worst_run(
    ours: Sequence[Sequence[Array]], theirs: Sequence[Sequence[Array]], names: Sequence[str]
) -> int:
    """The run whose outputs are off the most."""
    errors = [
        compare_outputs(*each, names).max_rel_error for each in zip(ours, theirs, strict=True)
    ]
    return errors.index(max(errors))


def _ratios_db(ours: Sequence[Array], theirs: Sequence[Array]) -> tuple[float, float]:
    """The ratio of signal to noise of an output, and that of what differs between inputs; of what
    is finite."""
    signal, found = np.stack([each.astype(np.float64) for each in theirs]), np.stack(ours)
    finite = np.isfinite(signal)
    noise = power(np.where(finite, found.astype(np.float64) - signal, 0.0))
    signal = np.where(finite, signal, 0.0)
    return ratio_db(power(signal), noise), ratio_db(power(signal - signal.mean(axis=0)), noise)


def power(array: Floats) -> float:
    """The sum of squares."""
    return float(np.sum(np.square(array)))


def ratio_db(signal: float, noise: float) -> float:
    """The ratio of two powers in decibels, from -300 to 300."""
    if noise <= 0.0 or signal <= 0.0:
        return -_MOST_DB if noise > 0.0 else _MOST_DB
    return float(np.clip(10.0 * np.log10(signal / noise), -_MOST_DB, _MOST_DB))


def _largest(array: Array) -> float:
    """The largest absolute value that is finite; 1 where that is 0, or nothing is."""
    values = np.abs(array.astype(np.float64))
    return float(np.max(values[np.isfinite(values)], initial=0.0)) or 1.0


def _output_error(left: Array, right: Array, scale: float) -> float:
    """The error relative to `scale`. Numbers such as positions are right or not: what is off by one
    of many thousands names another thing, and counts as wholly wrong."""
    if left.dtype != right.dtype:
        return float("inf")
    error = relative_error(left, right, np.full(right.shape, scale))
    return max(error, 1.0) if _whole(right) and not np.array_equal(left, right) else error


def _whole(array: Array) -> bool:
    """Whether an output holds numbers such as positions."""
    return array.dtype.kind in "iu" and array.dtype.itemsize > 1
