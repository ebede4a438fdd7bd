"""Writing records as lines of AutoTVM's log format 0.2.

A direct convolution becomes a line of the template `conv2d_NCHWc.x86`; knobs that AutoTVM does not
have follow as further entries. Everything else becomes a task `tilewright.NAME` with its knobs as
plain ones. The key `tilewright`, which AutoTVM ignores, holds the record itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tilewright.core.codec import to_builtins
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN, Form, channel_block
from tilewright.core.records import Candidate, Device, Failure, FailureKind, KnobValue, Outcome
from tilewright.core.targets import Resources
from tilewright.graph.workload import Workload
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.store.interchange.foreign import KEY, carried
from tilewright.store.interchange.lines import Json
from tilewright.store.interchange.tasks import readable_workloads

_DIRECT = "conv2d_direct"
_FAILED_S = 1e9
_ERROR_NUMBERS: Mapping[FailureKind, int] = {
    "build": 2,
    "out of memory": 4,
    "device lost": 4,
    "crash": 4,
    "wrong result": 5,
    "timeout": 7,
}


def log_line(outcome: Outcome, texts: Mapping[str, str], devices: Mapping[str, Device]) -> Json:
    """One line of a log; `texts` are the workloads' texts by key, `devices` known ones by class."""
    text, device = texts.get(outcome.workload_key), devices.get(outcome.device_class)
    found = readable_workloads([] if text is None else [text])
    task, arguments, entity = _task(outcome.candidate, found[0] if found else None)
    return {
        "input": [_target_words(device, outcome.resources), task, arguments, {}],
        "config": {"index": -1, "code_hash": None, "entity": entity},
        "result": _result(outcome),
        "version": 0.2,
        "tvm_version": _tvm_version(outcome.versions),
        KEY: carried(outcome) | {"workload": text, "device": to_builtins(device)},
    }


def _target_words(device: Device | None, resources: Resources) -> str:
    """A device's target in the older form that AutoTVM logs use; `llvm` for no device."""
    if device is None:
        return "llvm"
    given: dict[str, Any] = json.loads(device.target.tvm_target(resources))
    words = [str(given.pop("kind", "llvm"))]
    for name, value in given.items():
        words.append(f"-{name}={','.join(value) if isinstance(value, list) else value}")  # pyright: ignore[reportUnknownArgumentType]
    return " ".join(words)


def _task(candidate: Candidate, workload: Workload | None) -> tuple[str, list[Any], list[Any]]:
    """Task name, arguments and knobs."""
    if workload is not None and candidate.implementation == _DIRECT:
        conv = _convolution(workload)
        if conv is not None:
            return "conv2d_NCHWc.x86", _convolution_arguments(conv), _template(conv, candidate)
    arguments = [] if workload is None else [_tensor(a.type.shape, a.type.dtype)
                                             for a in workload.arguments]  # fmt: skip
    return f"tilewright.{candidate.implementation}", arguments, _plain(candidate.settings)


def _convolution(workload: Workload) -> Convolution | None:
    """The geometry where AutoTVM's template could compute it."""
    try:
        conv = convolution(workload)
    except TilewrightError:
        return None
    plain = workload.types[conv.data].dtype == "float32" and conv.groups == 1
    return conv if plain else None


def _convolution_arguments(conv: Convolution) -> list[Any]:
    return [
        _tensor((conv.batch, conv.in_channels, conv.in_height, conv.in_width), "float32"),
        _tensor((conv.out_channels, conv.in_channels, *conv.kernel), "float32"),
        list(conv.strides),
        list(conv.padding),
        list(conv.dilation),
        "NCHW",
        "NCHW",
        "float32",
    ]


def _template(conv: Convolution, candidate: Candidate) -> list[Any]:
    settings = dict(candidate.settings)
    data = candidate.forms[conv.data] if conv.data < len(candidate.forms) - 1 else PLAIN
    block_in = settings.pop("in_block", None) or max(1, _block(data))
    block_out = settings.get("lanes") or max(1, _block(candidate.forms[-1]))
    entity: list[Any] = [
        ["tile_ic", "sp", [-1, block_in]],
        ["tile_oc", "sp", [-1, block_out]],
        ["tile_ow", "sp", [-1, settings.get("tile_width", 1)]],
    ]
    if conv.kernel == (1, 1):
        entity.append(["tile_oh", "ot", settings.pop("tile_height", 1)])
    else:
        entity.append(["unroll_kw", "ot", settings.pop("unroll", "none") == "kx"])
    settings.pop("lanes", None)
    settings.pop("tile_width", None)
    return entity + _plain(tuple(settings.items()))


def _block(form: Form) -> int:
    try:
        return channel_block(form)
    except TilewrightError:
        return 0


def _plain(settings: tuple[tuple[str, KnobValue], ...]) -> list[Any]:
    return [[name, "ot", value] for name, value in settings]


def _tensor(shape: tuple[int, ...], dtype: str) -> list[Any]:
    return ["TENSOR", list(shape), dtype]


def _result(outcome: Outcome) -> list[Any]:
    """Costs, error number, seconds spent in all, time stamp."""
    if isinstance(outcome, Failure):
        return [[_FAILED_S], _ERROR_NUMBERS.get(outcome.kind, 8), 0.0, outcome.created_at]
    return [list(outcome.samples_s), 0, outcome.build_s, outcome.created_at]


def _tvm_version(versions: str) -> str:
    found = re.search(r"(?:^|\s)apache-tvm=(\S*)", versions)
    return "" if found is None else found[1]
