"""Noise of a network as an earlier run measured it, in files of the cache.

    noise/3f2a….json      the seal of the rest, and the noise

A file is named by all that noise comes from: weights and calls of the network, the inputs, the
machine that kernels are for where these round, the sources of the kernels, the names of those that
other packages bring, and the versions of this package and of what computes the noise. A file that
is torn or was changed counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilewright.core import codec
from tilewright.core.errors import OutputError
from tilewright.core.events import EventSink, Note
from tilewright.core.noise import RoundingNoise
from tilewright.core.output_files import write_text
from tilewright.core.settings import read_settings
from tilewright.deploy import hashes
from tilewright.graph.network import Array
from tilewright.hardware.environment import installed_versions
from tilewright.kernels.registry import implementations

_SOURCES = ("compiler", "core", "graph", "kernels", "measure", "models")
"""The rooms that say what is measured, and how."""
_COMPUTES = ("tilewright", "apache-tvm", "onnx", "onnxruntime", "numpy")


def kept_noise(
    what: str,
    sources: Sequence[object],
    inputs: Sequence[Mapping[str, Array]],
    measure: Callable[[], RoundingNoise],
    events: EventSink,
) -> RoundingNoise:
    """What `measure` gives, or gave an earlier run for the same `sources`, plain values that say
    what is measured, and `inputs`. A cache that cannot be written is none."""
    named = [hashes.weights_digest(each) for each in inputs]
    made = [
        installed_versions(_COMPUTES),
        hashes.sources_digest(_SOURCES),
        sorted(implementations()),
    ]
    text = codec.canonical_json([what, sources, named, made])
    path = read_settings().cache / "noise" / f"{codec.digest(text, length=32)}.json"
    known = _read(path)
    if known is not None:
        told = f"The noise of {what} was measured by an earlier run on the same inputs."
        events(Note(message=told))
        return known
    noise = measure()
    content = json.dumps(_plain(noise), separators=(",", ":"))
    with suppress(OutputError):
        write_text(path, f"{codec.digest(content, length=64)}\n{content}\n")
    return noise


def _read(path: Path) -> RoundingNoise | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        seal, content = path.read_text(encoding="utf-8").splitlines()
        if codec.digest(content, length=64) == seal:
            return _noise(json.loads(content))
    return None


def _plain(noise: RoundingNoise) -> dict[str, Any]:
    """The noise without pairs as keys, which JSON does not have."""
    return codec.to_builtins(
        {
            "outputs": noise.outputs,
            "signals": noise.signals,
            "largest": noise.largest,
            "elements": noise.elements,
            "tensors": dict(noise.tensors),
            "calls": dict(noise.calls),
            "algorithms": [[*names, powers] for names, powers in noise.algorithms.items()],
            "finer": {dtype: _plain(each) for dtype, each in noise.finer.items()},
        }
    )


def _noise(plain: Mapping[str, Any]) -> RoundingNoise:
    return RoundingNoise(
        outputs=tuple(plain["outputs"]),
        signals=tuple(plain["signals"]),
        largest=tuple(plain["largest"]),
        elements=tuple(plain["elements"]),
        tensors={name: tuple(powers) for name, powers in plain["tensors"].items()},
        calls={name: tuple(powers) for name, powers in plain["calls"].items()},
        algorithms={(call, name): tuple(p) for call, name, p in plain["algorithms"]},
        finer={dtype: _noise(each) for dtype, each in plain["finer"].items()},
    )
