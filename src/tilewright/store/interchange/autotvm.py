"""AutoTVM logs, format 0.1 (`i`, `r`) and 0.2 (`input`, `config`, `result`): reading them.

Direct convolutions of the x86 template NCHWc become settings of `conv2d_direct`:

    tile_ic [-1, b]  the data's channel block, and `in_block`
    tile_oc [-1, b]  the result's channel block, and `lanes`
    tile_ow [-1, b]  `tile_width`
    tile_oh b        `tile_height` (1×1 only)
    unroll_kw        `unroll` of kx, innermost as in the template

AutoTVM timed kernels on packed tensors, as we do. Lines that `autotvm_export` wrote hold
the record itself and come back exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.core.codec import to_builtins
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import (
    Candidate,
    Failure,
    FailureKind,
    Measurement,
    Placement,
    Protocol,
)
from tilewright.graph.workload import Workload
from tilewright.kernels.convolution import convolution
from tilewright.kernels.registry import implementation
from tilewright.store.interchange.devices import described_by, device_entry
from tilewright.store.interchange.fitting import fitted
from tilewright.store.interchange.lines import (
    IMPORTED,
    Json,
    Line,
    NotUnderstood,
    Source,
    finite,
    json_object,
    mapping,
    readable,
    seconds,
    sequence,
    whole,
)
from tilewright.store.interchange.tasks import Shape, convolution_task, text_entries, workload_entry

KEY = "tilewright"
KERNEL_HASH = f"{IMPORTED}autotvm"
PROTOCOL = Protocol(
    warmup=0, repeats=1, sample_s=0.0, rotation_bytes=0, activations="unknown", timeout_s=0.0
)
"""AutoTVM logs do not say how a kernel was timed; `repeats` is the number of samples."""

_DIRECT = ("topi_x86_conv2d_NCHWc", "conv2d_NCHWc.x86", "conv2d_NCHWc", "topi_nn_conv2d")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A line of either format. `knobs` are (name, value); a split's value is its list."""

    target: str
    task: str
    arguments: list[Any]
    knobs: Mapping[str, Any]
    result: list[Any]
    version: str


def read(source: Source) -> Iterator[Line]:
    """The records of a log, and the reason for each line that is none we understand."""
    with readable(source.path), source.path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            if text.strip():
                yield _line(number, text)


def _line(number: int, text: bytes) -> Line:
    try:
        given = json_object(text)
        if given is None:
            raise NotUnderstood("not a JSON object; is the file cut short?")
        if KEY in given:
            return restored(number, mapping(given[KEY], KEY))
        entry = _entry(given)
        placement = _placement(entry)
        workload, candidate = _meaning(entry, placement)
        return Line(
            number=number,
            record=_outcome(entry, workload, candidate, placement),
            support=(device_entry(placement.device), workload_entry(workload)),
            foreign=True,
        )
    except (NotUnderstood, TilewrightError) as error:
        reason = error.message if isinstance(error, TilewrightError) else str(error)
        return Line(number=number, reason=reason)


def restored(number: int, extra: Mapping[str, Any]) -> Line:
    """A record of ours that another program's format carries along under `KEY`."""
    record = mapping(extra.get("record"), "the record")
    device = extra.get("device")
    support: tuple[Json, ...] = text_entries(record.get("workload_key"), extra.get("workload"))
    if device is not None:
        support = ({**mapping(device, "the device"), "record": "device"}, *support)
    return Line(number=number, record=dict(record), support=support)


def _entry(given: Json) -> _Entry:
    if "input" in given:
        source, config = sequence(given["input"], "input"), given.get("config")
        result, entities = given.get("result"), "entity"
    elif "i" in given:
        source = sequence(given["i"], "i")
        config = source[-1] if source else None
        result, entities = given.get("r"), "e"
    else:
        raise NotUnderstood("neither AutoTVM's format 0.1 nor 0.2")
    if len(source) < 3 or not isinstance(source[0], str) or not isinstance(source[1], str):
        raise NotUnderstood("the line names no target and task")
    knobs: dict[str, Any] = {}
    for item in sequence(mapping(config, "the configuration").get(entities), "its knobs"):
        parts = sequence(item, "a knob")
        if len(parts) != 3 or not isinstance(parts[0], str):
            raise NotUnderstood(f"a knob reads {item!r:.60}")
        knobs[parts[0]] = parts[2]
    version = f"autotvm={given.get('version', given.get('v'))} tvm={given.get('tvm_version')}"
    return _Entry(
        target=source[0],
        task=source[1],
        arguments=sequence(source[2], "the arguments"),
        knobs=knobs,
        result=sequence(result, "the result"),
        version=version,
    )


def _placement(entry: _Entry) -> Placement:
    kind = entry.target.split()[:1]
    if kind and not entry.target.startswith("{") and kind[0] != "llvm":
        raise NotUnderstood(f"task {entry.task} is for {kind[0]}, not for a CPU")
    return described_by(entry.target)


def _meaning(entry: _Entry, placement: Placement) -> tuple[Workload, Candidate]:
    """What our direct convolution would be. Raises `NotUnderstood`."""
    strange = [name for name in entry.knobs if name not in _KNOWN]
    if entry.task not in _DIRECT or strange or any(n not in entry.knobs for n in _NEEDED):
        named = ", ".join(strange or entry.knobs) or "none"
        raise NotUnderstood(f"task {entry.task} is not understood, with the knobs: {named}")
    workload = _workload(entry.arguments)
    block_in, block_out, width = (_inner(entry.knobs[name], name) for name in _NEEDED)
    height = whole(entry.knobs.get("tile_oh", 1), "tile_oh", least=1)
    conv = convolution(workload)
    for name, block, channels in (
        ("tile_ic", block_in, conv.in_channels),
        ("tile_oc", block_out, conv.out_channels),
    ):
        if channels % block:
            raise NotUnderstood(f"{name}={block} does not divide {channels} channels")
    if height > 1 and conv.out_height == 1:
        width, height = width * height, 1
    unroll = bool(entry.knobs.get("unroll_kw", False)) and conv.kernel[1] > 1
    candidate = fitted(
        implementation("conv2d_direct"),
        workload,
        placement,
        (_form(block_in), PLAIN, _form(block_out)),
        {
            "lanes": (block_out,),
            "tile_width": (width,),
            "tile_height": (height,),
            "tile_out": (1,),
            "in_block": (block_in,),
            "unroll": ("kx",) if unroll else ("none",),
            "reduce_order": ("chunk,ky,lane,kx",) if unroll else ("chunk,ky,kx,lane",),
        },
    )
    return workload, candidate


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
    return convolution_task(
        data,
        weight,
        strides=_pair(lists[0], "strides"),
        padding=_padding(lists[1]),
        dilation=_pair(lists[2], "dilation") if len(lists) > 2 and lists[2] else (1, 1),
    )


def _tensor(value: object) -> Shape:
    parts = sequence(value, "a tensor")
    if len(parts) != 3 or parts[0] != "TENSOR" or parts[2] != "float32":
        raise NotUnderstood(f"{value!r:.60} is no float32 tensor")
    return tuple(whole(extent, "an extent", least=1) for extent in sequence(parts[1], "a shape"))


def _unpacked(shape: Shape, *, packed: int) -> Shape:
    if len(shape) == 4:
        return shape
    if len(shape) != packed:
        raise NotUnderstood(f"a tensor has {len(shape)} axes")
    if packed == 5:
        return (shape[0], shape[1] * shape[4], *shape[2:4])
    return (shape[0] * shape[5], shape[1] * shape[4], *shape[2:4])


def _pair(value: object, what: str) -> Shape:
    found = tuple(whole(item, what, least=1) for item in sequence(value, what))
    if len(found) != 2:
        raise NotUnderstood(f"{what} has {len(found)} entries, not 2")
    return found


def _padding(value: object) -> Shape:
    found = tuple(whole(item, "padding") for item in sequence(value, "padding"))
    if len(found) not in (2, 4):
        raise NotUnderstood(f"padding has {len(found)} entries, not 2 or 4")
    return found * 2 if len(found) == 2 else found


def _outcome(entry: _Entry, workload: Workload, candidate: Candidate, placement: Placement) -> Json:
    if len(entry.result) < 4:
        raise NotUnderstood("the result has fewer than 4 entries")
    costs, error = entry.result[0], whole(entry.result[1], "the error number")
    shared: dict[str, Any] = {
        "workload_key": workload.key,
        "candidate": candidate,
        "device_class": placement.device.class_key,
        "resources": placement.resources,
        "kernel_hash": KERNEL_HASH,
        "versions": entry.version,
        "created_at": finite(entry.result[3], "the time stamp"),
    }
    if error:
        kind, message = _ERRORS[min(error, len(_ERRORS)) - 1]
        texts = [text for text in sequence(costs, "the costs") if isinstance(text, str)]
        failure = Failure(kind=kind, message="\n".join(texts) or message, **shared)
        return {"record": "failure", **to_builtins(failure)}
    samples_s = seconds(costs, "the costs")
    protocol = replace(PROTOCOL, repeats=len(samples_s))
    measurement = Measurement(protocol=protocol, samples_s=samples_s, build_s=0.0, **shared)
    return {"record": "measurement", **to_builtins(measurement)}
