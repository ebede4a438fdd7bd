"""Inputs on which the noise of a network is measured, or its codes are calibrated, and others on
which it is judged: given in a file, or drawn.

    np.savez("inputs.npz", image=images)      images[16,3,224,224]: 16 inputs [1,3,224,224]
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.core.arguments import Text, path_of
from tilewright.core.errors import UsageError, close_matches, quoted
from tilewright.core.input_files import readable
from tilewright.graph.inputs import input_ranges, random_inputs
from tilewright.graph.network import Array, Graph, TensorType

_FITTED, _JUDGED = 2, 2
"""Inputs that are drawn to measure noise cause by cause, and to judge a compiled network."""
_MOST = 4
"""So many of a file for each of both."""
_HINT = "numpy.savez(FILE, NAME=array, …), with as many inputs along the first axis as there are."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseInputs:
    """Inputs by name on which noise is `fitted`, and others on which it is `judged`; `given` says
    whether people brought them."""

    fitted: tuple[Mapping[str, Array], ...]
    judged: tuple[Mapping[str, Array], ...]
    given: bool


def noise_inputs(
    graph: Graph,
    calibration: Text | None,
    seed: int,
    fitted: tuple[int, int] = (_FITTED, _MOST),
    judged: int = _JUDGED,
) -> NoiseInputs:
    """Those of a file, every other one for each purpose, else drawn ones. `fitted` is how many are
    drawn to fit, and how many of a file do at most; `judged` how many are drawn to judge.

    Raises UsageError where a file does not have the network's inputs: other names, shapes or types,
    numbers that are not finite, all the same or all denormal, indices that are outside a table.
    """
    if calibration is None:
        drawn = [random_inputs(graph, seed + place) for place in range(judged + fitted[0])]
        return NoiseInputs(fitted=tuple(drawn[judged:]), judged=tuple(drawn[:judged]), given=False)
    path = path_of(calibration, "calibration")
    samples = _samples(graph, _arrays(path), path)
    others = samples[1::2] or samples
    return NoiseInputs(fitted=samples[0::2][: fitted[1]], judged=others[:_MOST], given=True)


def _arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name; nothing in it is executed."""
    with readable(path):
        try:
            found = np.load(path, allow_pickle=False)
            if isinstance(found, np.ndarray):
                raise UsageError(f"{str(path)!r} holds one array without a name", hint=_HINT)
            with found:
                return {name: found[name] for name in found.files}
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise UsageError(f"{str(path)!r} holds no arrays: {error}", hint=_HINT) from error


def _samples(
    graph: Graph, arrays: Mapping[str, Array], path: Path
) -> tuple[Mapping[str, Array], ...]:
    for name in arrays:
        if name not in graph.inputs:
            raise UsageError(
                f"{str(path)!r} has {quoted(name)}, which is no input of the network",
                hint=close_matches(name, graph.inputs),
            )
    missing = [name for name in graph.inputs if name not in arrays]
    if missing:
        raise UsageError(f"{str(path)!r} lacks the input {quoted(missing[0])}", hint=_HINT)
    parts = {name: _parts(name, graph.types[name], arrays[name]) for name in graph.inputs}
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} of {quoted(name)}" for name, count in counts.items())
        raise UsageError(f"{str(path)!r} has different numbers of inputs: {told}")
    for name, ranges in input_ranges(graph).items():
        low, high = min(r.lowest for r in ranges), max(r.highest for r in ranges)
        least, most = int(parts[name].min()), int(parts[name].max())
        if least < low or most > high:
            raise UsageError(
                f"{quoted(name)} of {str(path)!r} has values from {least} to {most}; the network "
                f"takes {low} to {high}"
            )
    return tuple(
        {name: parts[name][place] for name in graph.inputs} for place in range(min(counts.values()))
    )


def _parts(name: str, kind: TensorType, array: Array) -> Array:
    """The inputs of one name in an array, [inputs, …]."""
    shape, rest = kind.shape, kind.shape[1:]
    whole = shape and array.ndim == len(shape) and array.shape[1:] == rest
    if array.shape[1:] == shape and array.shape[:1] != (0,):
        found = array
    elif whole and array.size and array.shape[0] % shape[0] == 0:
        found = array.reshape(-1, *shape)
    else:
        raise UsageError(
            f"calibration inputs {quoted(name)} have the shape {list(array.shape)}; an input has "
            f"{list(shape)}",
            hint="Give several along the first axis.",
        )
    if not np.can_cast(array.dtype, kind.dtype, "same_kind"):
        raise UsageError(
            f"calibration inputs {quoted(name)} are {array.dtype}, the network takes {kind.dtype}"
        )
    if not np.isfinite(found).all():
        raise UsageError(f"calibration inputs {quoted(name)} have numbers that are not finite")
    if np.issubdtype(found.dtype, np.floating) and found.size > 1 and found.min() == found.max():
        raise UsageError(
            f"calibration inputs {quoted(name)} are all {found.flat[0]}: noise cannot be measured "
            "on them"
        )
    if np.issubdtype(found.dtype, np.floating) and np.abs(found).max() < np.finfo(np.float32).tiny:
        raise UsageError(
            f"calibration inputs {quoted(name)} have only numbers that are not normal in float32, "
            f"up to {np.abs(found).max():.1g}: processors may take them for 0",
            hint="Give inputs as the network gets them, not scaled down.",
        )
    return np.ascontiguousarray(found, dtype=kind.dtype)
