"""AutoTVM logs: reading formats 0.1 (`i`, `r`) and 0.2 (`input`, `config`, `result`), writing 0.2.

Direct convolutions of the x86 template NCHWc become settings of `conv2d_direct`, and those lines of
the template `conv2d_NCHWc.x86`:

    tile_ic [-1, b]  the data's channel block, and `in_block`
    tile_oc [-1, b]  the result's channel block, and `lanes`
    tile_ow [-1, b]  `tile_width`
    tile_oh b        `tile_height` (1×1 only)
    unroll_kw        `unroll` of kx, innermost as in the template

AutoTVM timed kernels on packed tensors, as we do. What we write has knobs that AutoTVM does not
have as further entries, and everything but direct convolutions as a task `tilewright.NAME` with its
knobs as plain ones. The key `tilewright`, which AutoTVM ignores, holds the record itself, so that
it comes back exactly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from tilewright.core.codec import to_builtins
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN, Form, blocked, channel_block, in_channel_blocks
from tilewright.core.input_files import readable
from tilewright.core.records import (
    Candidate,
    Device,
    Failure,
    FailureKind,
    KnobValue,
    Outcome,
    Placement,
)
from tilewright.core.targets import Resources
from tilewright.graph.network import TensorType
from tilewright.graph.tasks import collapse_rows
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import described_placement
from tilewright.hardware.target import read_target
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.registry import implementation
from tilewright.store.interchange.foreign import (
    KEY,
    carried,
    fitted,
    foreign_line,
    readable_workloads,
    restored,
)
from tilewright.store.interchange.lines import (
    IMPORTED,
    Json,
    Line,
    NotUnderstood,
    Source,
    finite,
    json_lines,
    mapping,
    seconds,
    sequence,
    understood,
    whole,
    write_texts,
)
from tilewright.store.rows import device_facts, stream_outcomes, workload_texts

Shape = tuple[int, ...]
KERNEL_HASH = f"{IMPORTED}autotvm"

_IMPLEMENTATION = "conv2d_direct"
_FAILED_S = 1e9
_ERROR_NUMBERS: Mapping[FailureKind, int] = {
    "build": 2,
    "out of memory": 4,
    "device lost": 4,
    "crash": 4,
    "wrong result": 5,
    "timeout": 7,
}
_DIRECT = ("topi_x86_conv2d_NCHWc", "conv2d_NCHWc.x86", "conv2d_NCHWc", "topi_nn_conv2d")
_NAMES = (("input", "result", "entity"), ("i", "r", "e"))
"""How formats 0.2 and 0.1 call a task, a result, and the knobs of a configuration."""
_NEEDED = ("tile_ic", "tile_oc", "tile_ow")
_KNOWN = (*_NEEDED, "tile_oh", "unroll_kw")
_ERRORS: tuple[tuple[FailureKind, str], ...] = (
    ("build", "the template refused the settings"),
    ("build", "the host code did not compile"),
    ("build", "the device code did not compile"),
    ("crash", "the device reported an error"),
    ("wrong result", "wrong answer"),
    ("timeout", "building took too long"),
    ("timeout", "running took too long"),
    ("crash", "unknown error"),
)


def read(source: Source) -> Iterator[Line]:
    """The records of a log, and the reason for each line that is none we understand."""
    with readable(source.path), source.path.open("rb") as file:
        yield from understood(json_lines(file), _line)


def _line(number: int, given: Json) -> Line:
    if KEY in given:
        return restored(number, mapping(given[KEY], KEY))
    names = next((names for names in _NAMES if names[0] in given), None)
    if names is None:
        raise NotUnderstood("neither AutoTVM's format 0.1 nor 0.2")
    source = sequence(given[names[0]], names[0])
    config = given.get("config") if names[0] == "input" else (source or [None])[-1]
    if len(source) < 3 or not isinstance(source[0], str) or not isinstance(source[1], str):
        raise NotUnderstood("the line names no target and task")
    knobs = _knobs(mapping(config, "the configuration").get(names[2]))
    target, task, arguments = source[0], source[1], sequence(source[2], "the arguments")
    result = sequence(given.get(names[1]), "the result")
    kind = next(iter(target.split()), "llvm")
    if not kind.startswith("{") and kind != "llvm":
        raise NotUnderstood(f"task {task} is for {kind}, not for a CPU")
    placement = described_by(target)
    if task not in _DIRECT or not set(_NEEDED) <= knobs.keys() <= set(_KNOWN):
        named = ", ".join([name for name in knobs if name not in _KNOWN] or knobs) or "none"
        raise NotUnderstood(f"task {task} is not understood, with the knobs: {named}")
    workload = _workload(arguments)
    told = _told(result, _candidate(workload, knobs, placement))
    version = f"autotvm={given.get('version', given.get('v'))} tvm={given.get('tvm_version')}"
    return foreign_line(number, workload, placement, told | {"versions": version})


def _knobs(entity: object) -> dict[str, Any]:
    """The knobs of a configuration by name; a split's value is its list."""
    knobs: dict[str, Any] = {}
    for item in sequence(entity, "its knobs"):
        parts = sequence(item, "a knob")
        if len(parts) != 3 or not isinstance(parts[0], str):
            raise NotUnderstood(f"a knob reads {item!r:.60}")
        knobs[parts[0]] = parts[2]
    return knobs


@lru_cache(maxsize=64)
def described_by(target: str) -> Placement:
    """Where a log's target says that it was, somewhere else by definition.

    A log tells neither caches nor threads, so even where this machine has the instruction set the
    class is another one than this machine's: modest caches, and one thread unless the target says
    `num-cores`. Raises TargetError for targets that are no CPU.
    """
    given = read_target(target)
    return described_placement(given, given.get("num-cores"))


def _candidate(workload: Workload, knobs: Mapping[str, Any], placement: Placement) -> Candidate:
    """What our direct convolution would be. Raises `NotUnderstood`."""
    block_in, block_out, width = (_inner(knobs[name], name) for name in _NEEDED)
    height = whole(knobs.get("tile_oh", 1), "tile_oh", least=1)
    conv = convolution(workload)
    for name, block, channels in (
        ("tile_ic", block_in, conv.in_channels),
        ("tile_oc", block_out, conv.out_channels),
    ):
        if channels % block:
            raise NotUnderstood(f"{name}={block} does not divide {channels} channels")
    if height > 1 and conv.out_height == 1:
        width, height = width * height, 1
    unroll = bool(knobs.get("unroll_kw", False)) and conv.kernel[1] > 1
    return fitted(
        implementation(_IMPLEMENTATION),
        workload,
        placement,
        (_form(block_in), PLAIN, _form(block_out)),
        {
            "lanes": block_out,
            "tile_width": width,
            "tile_height": height,
            "tile_out": 1,
            "in_block": block_in,
            "unroll": "kx" if unroll else "none",
            "reduce_order": "chunk,ky,lane,kx" if unroll else "chunk,ky,kx,lane",
        },
    )


def _form(block: int) -> Form:
    return blocked(block) if block > 1 else PLAIN


def _inner(value: object, name: str) -> int:
    parts = sequence(value, name)
    if len(parts) != 2:
        raise NotUnderstood(f"{name} is split into {len(parts)} parts, not 2")
    return whole(parts[1], name, least=1)


def _workload(arguments: list[Any]) -> Workload:
    """The convolution of a task's arguments.

    0.1: data, weight, filters, kernel, strides, padding, layout, …; 0.2: data, weight, strides,
    padding, dilation, layout, …. Data and weight may be given packed, as [N, C/b, H, W, b] and
    [O/bo, I/bi, kh, kw, bi, bo].
    """
    if len(arguments) < 4:
        raise NotUnderstood("the task has too few arguments")
    data = _unpacked(_tensor(arguments[0]), packed=5)
    weight = _unpacked(_tensor(arguments[1]), packed=6)
    rest = arguments[4:] if isinstance(arguments[2], int) else arguments[2:]
    texts = [item for item in rest if isinstance(item, str)]
    strange = [t for t in texts if t != "float32" and not t.startswith(("NCHW", "OIHW"))]
    if strange:
        raise NotUnderstood(f"{', '.join(strange)} instead of float32 in NCHW")
    lists = [item for item in rest if not isinstance(item, str)]
    if len(lists) < 2:
        raise NotUnderstood("the task has no strides and padding")
    lists.append(None)
    return convolution_task(
        data,
        weight,
        strides=_counts(lists[0], "strides", 1, (2,)),
        padding=(_counts(lists[1], "padding", 0, (2, 4)) * 2)[:4],
        dilation=_counts(lists[2] or [1, 1], "dilation", 1, (2,)),
    )


def convolution_task(
    data: Shape, weight: Shape, *, strides: Shape, padding: Shape, dilation: Shape
) -> Workload:
    """The bare convolution as our networks have it: constant weights, one group.

    A 1×1 convolution with stride 1 has its rows collapsed, as everywhere in a network. Raises an
    error of ours for shapes that fit no convolution.
    """
    workload = Workload(
        arguments=(
            Argument(type=TensorType(data)),
            Argument(type=TensorType(weight), role="constant"),
        ),
        steps=(
            Step(
                operator="conv2d",
                inputs=(0, 1),
                attributes=(
                    ("dilation", dilation),
                    ("groups", 1),
                    ("padding", padding),
                    ("strides", strides),
                ),
            ),
        ),
    )
    collapsed = collapse_rows(workload)
    return collapsed if collapsed.result.elements else workload


def _tensor(value: object) -> Shape:
    parts = sequence(value, "a tensor")
    if len(parts) != 3 or parts[0] != "TENSOR" or parts[2] != "float32":
        raise NotUnderstood(f"{value!r:.60} is no float32 tensor")
    return tuple(whole(extent, "an extent", least=1) for extent in sequence(parts[1], "a shape"))


def _unpacked(shape: Shape, *, packed: int) -> Shape:
    if len(shape) not in (4, packed):
        raise NotUnderstood(f"a tensor has {len(shape)} axes")
    blocks = {4: (1, 1), 5: (1, shape[-1]), 6: (shape[-1], shape[-2])}[len(shape)]
    return (shape[0] * blocks[0], shape[1] * blocks[1], *shape[2:4])


def _counts(value: object, what: str, least: int, lengths: tuple[int, ...]) -> Shape:
    found = tuple(whole(item, what, least=least) for item in sequence(value, what))
    if len(found) not in lengths:
        raise NotUnderstood(
            f"{what} has {len(found)} entries, not {' or '.join(map(str, lengths))}"
        )
    return found


def _told(result: list[Any], candidate: Candidate) -> Json:
    """What a line says of a candidate: its times, or why there are none."""
    if len(result) < 4:
        raise NotUnderstood("the result has fewer than 4 entries")
    costs, error = result[0], whole(result[1], "the error number")
    told: Json = {
        "candidate": candidate,
        "kernel_hash": KERNEL_HASH,
        "created_at": finite(result[3], "the time stamp"),
    }
    if not error:
        return told | {"samples_s": seconds(costs, "the costs"), "build_s": 0.0}
    kind, message = _ERRORS[min(error, len(_ERRORS)) - 1]
    texts = [text for text in sequence(costs, "the costs") if isinstance(text, str)]
    return told | {"kind": kind, "message": "\n".join(texts) or message}


def write(connection: Connection, path: Path) -> int:
    """Write all outcomes of a database; returns how many."""
    texts, devices = workload_texts(connection), device_facts(connection)
    lines = (_log_line(outcome, texts, devices) for outcome in stream_outcomes(connection))
    return write_texts(path, map(json.dumps, lines))


def _log_line(outcome: Outcome, texts: Mapping[str, str], devices: Mapping[str, Device]) -> Json:
    """One line of a log; `texts` are the workloads' texts by key, `devices` known ones by class."""
    text, device = texts.get(outcome.workload_key), devices.get(outcome.device_class)
    found = readable_workloads([] if text is None else [text])
    task, arguments, entity = _task(outcome.candidate, next(iter(found), None))
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
    kind = given.pop("kind", "llvm")
    texts = {name: ",".join(v) if isinstance(v, list) else v for name, v in given.items()}  # pyright: ignore[reportUnknownArgumentType]
    return " ".join([kind, *(f"-{name}={text}" for name, text in texts.items())])


def _task(candidate: Candidate, workload: Workload | None) -> tuple[str, list[Any], list[Any]]:
    """Task name, arguments and knobs: those of AutoTVM's template where that could compute it."""
    if workload is not None and candidate.implementation == _IMPLEMENTATION:
        with suppress(TilewrightError):
            conv = convolution(workload)
            if workload.types[conv.data].dtype == "float32" and conv.groups == 1:
                return "conv2d_NCHWc.x86", _template_arguments(conv), _template(conv, candidate)
    types = [] if workload is None else [argument.type for argument in workload.arguments]
    arguments = [["TENSOR", list(each.shape), each.dtype] for each in types]
    return f"tilewright.{candidate.implementation}", arguments, _entries(candidate.settings)


def _template_arguments(conv: Convolution) -> list[Any]:
    data = [conv.batch, conv.in_channels, conv.in_height, conv.in_width]
    weight = [conv.out_channels, conv.in_channels, *conv.kernel]
    return [
        *(["TENSOR", shape, "float32"] for shape in (data, weight)),
        *map(list, (conv.strides, conv.padding, conv.dilation)),
        *("NCHW", "NCHW", "float32"),
    ]


def _template(conv: Convolution, candidate: Candidate) -> list[Any]:
    settings = dict(candidate.settings)
    data = candidate.forms[conv.data] if conv.data < len(candidate.forms) - 1 else PLAIN
    return [
        ["tile_ic", "sp", [-1, settings.pop("in_block", None) or _lanes(data)]],
        ["tile_oc", "sp", [-1, settings.pop("lanes", None) or _lanes(candidate.forms[-1])]],
        ["tile_ow", "sp", [-1, settings.pop("tile_width", 1)]],
        ["tile_oh", "ot", settings.pop("tile_height", 1)]
        if conv.kernel == (1, 1)
        else ["unroll_kw", "ot", settings.pop("unroll", "none") == "kx"],
        *_entries(settings.items()),  # those that AutoTVM's template does not have
    ]


def _lanes(form: Form) -> int:
    """Channels that lie together; 1 where nothing says that some do."""
    return max(1, channel_block(form)) if in_channel_blocks(form) else 1


def _entries(settings: Iterable[tuple[str, KnobValue]]) -> list[Any]:
    return [[name, "ot", value] for name, value in settings]


def _result(outcome: Outcome) -> list[Any]:
    """Costs, error number, seconds spent in all, time stamp."""
    if isinstance(outcome, Failure):
        return [[_FAILED_S], _ERROR_NUMBERS.get(outcome.kind, 8), 0.0, outcome.created_at]
    return [list(outcome.samples_s), 0, outcome.build_s, outcome.created_at]


def _tvm_version(versions: str) -> str:
    found = re.search(r"(?:^|\s)apache-tvm=(\S*)", versions)
    return "" if found is None else found[1]
