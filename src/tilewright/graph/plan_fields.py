"""Plans as JSON: what manifests and databases keep of them.

    {"inputs": ["image"], "outputs": ["out"],
     "lanes": {"main": {"device": "intel-…", "resources": "2t"}},
     "tensors": {"image": {"dtype": "int8", "shape": [1, 3, 8, 8], "device": "intel-…"}, …},
     "workloads": [{"arguments": …, "steps": …}],
     "kernels": [{"workload": 0, "implementation": "conv2d_direct", "settings": {…}, "layouts": …}],
     "calls": [{"name": "conv", "kernel": 0, "inputs": ["image", "w"], "output": "out",
                "constants": {"1": "w_41c0…"}}],
     "constants": [{"name": "w_41c0…", "shape": [1, 3, 3, 3, 8], "call": "conv", "index": 1}]}

What has its usual value is left out.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from tilewright.core.codec import FILE_NAMES, canonical_json, convert, to_builtins
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, KnobValue
from tilewright.core.targets import parse_resources
from tilewright.graph.fuse import CallKind
from tilewright.graph.network import UNKNOWN, TensorType
from tilewright.graph.plan import (
    MAIN,
    Lane,
    NetworkPlan,
    PackedConstant,
    PlannedCall,
    PlannedTensor,
)
from tilewright.graph.workload import parse_workload

_Index = Annotated[int, msgspec.Meta(ge=0)]
_Extent = Annotated[int, msgspec.Meta(ge=UNKNOWN)]


class _Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=FILE_NAMES):
    pass


class _Lane(_Struct, frozen=True):
    device: str
    resources: str


class _Tensor(_Struct, frozen=True):
    dtype: str
    shape: tuple[_Extent, ...]
    device: str
    layout: Form = PLAIN
    root: str = ""
    """Empty for a tensor with memory of its own."""
    offset_bytes: _Index = 0


class _Kernel(_Struct, frozen=True):
    workload: _Index
    implementation: str
    settings: dict[str, KnobValue]
    forms: tuple[Form, ...]


class _Call(_Struct, frozen=True):
    name: str
    kernel: _Index
    inputs: tuple[str, ...]
    output: str
    nodes: tuple[str, ...] = ()
    kind: CallKind = "kernel"
    lane: str = MAIN
    after: tuple[str, ...] = ()
    constants: dict[str, str] = {}
    overwritable: tuple[_Index, ...] = ()


class _Constant(_Struct, frozen=True):
    """`dtype` is empty where it is that of the argument."""

    name: str
    shape: tuple[_Index, ...]
    call: str
    index: _Index
    dtype: str = ""


class _Plan(_Struct, frozen=True):
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lanes: dict[str, _Lane]
    tensors: dict[str, _Tensor]
    workloads: tuple[dict[str, Any], ...]
    kernels: tuple[_Kernel, ...]
    calls: tuple[_Call, ...]
    constants: tuple[_Constant, ...] = ()


def plan_fields(plan: NetworkPlan) -> dict[str, Any]:
    """A plan as dictionaries, lists and scalars."""
    workloads = {call.workload.key: call.workload for call in plan.calls}
    order = {key: number for number, key in enumerate(workloads)}
    kernels = dict.fromkeys((call.workload.key, call.candidate) for call in plan.calls)
    numbers = {kernel: number for number, kernel in enumerate(kernels)}
    return to_builtins(
        _Plan(
            inputs=plan.inputs,
            outputs=plan.outputs,
            lanes={
                name: _Lane(device=lane.device, resources=str(lane.resources))
                for name, lane in plan.lanes.items()
            },
            tensors={name: _tensor(name, tensor) for name, tensor in plan.tensors.items()},
            workloads=tuple(json.loads(workload.text) for workload in workloads.values()),
            kernels=tuple(
                _Kernel(
                    workload=order[key],
                    implementation=candidate.implementation,
                    settings=dict(candidate.settings),
                    forms=candidate.forms,
                )
                for key, candidate in kernels
            ),
            calls=tuple(_call(c, numbers[c.workload.key, c.candidate]) for c in plan.calls),
            constants=_constants(plan),
        )
    )


def read_plan(fields: object) -> NetworkPlan:
    """The plan that was written so. Raises ValueError for anything else."""
    try:
        return _read(convert(fields, _Plan))
    except (TilewrightError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from error
    except (KeyError, IndexError) as error:
        raise ValueError(f"it names what is not there: {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"it holds something else than was written: {error}") from error


def _read(written: _Plan) -> NetworkPlan:
    workloads = [parse_workload(canonical_json(fields)) for fields in written.workloads]
    candidates = [
        Candidate(
            implementation=kernel.implementation,
            settings=tuple(sorted(kernel.settings.items())),
            forms=kernel.forms,
        )
        for kernel in written.kernels
    ]
    calls = tuple(
        PlannedCall(
            name=call.name,
            workload=workloads[written.kernels[call.kernel].workload],
            candidate=candidates[call.kernel],
            inputs=call.inputs,
            output=call.output,
            nodes=call.nodes,
            kind=call.kind,
            lane=call.lane,
            after=call.after,
            constants={int(index): name for index, name in call.constants.items()},
            overwritable=call.overwritable,
        )
        for call in written.calls
    )
    named = {call.name: call for call in calls}
    return NetworkPlan(
        inputs=written.inputs,
        outputs=written.outputs,
        tensors={
            name: PlannedTensor(
                type=TensorType(tensor.shape, tensor.dtype),
                root=tensor.root or name,
                device=tensor.device,
                form=tensor.layout,
                offset_bytes=tensor.offset_bytes,
            )
            for name, tensor in written.tensors.items()
        },
        calls=calls,
        lanes={
            name: Lane(device=lane.device, resources=parse_resources(lane.resources))
            for name, lane in written.lanes.items()
        },
        constants=tuple(
            PackedConstant(
                name=constant.name,
                shape=constant.shape,
                dtype=constant.dtype or call.workload.arguments[constant.index].type.dtype,
                workload=call.workload,
                candidate=call.candidate,
                index=constant.index,
                sources={index: call.inputs[index] for index in call.constants},
            )
            for constant in written.constants
            for call in (named[constant.call],)
        ),
    )


def _tensor(name: str, tensor: PlannedTensor) -> _Tensor:
    return _Tensor(
        dtype=tensor.type.dtype,
        shape=tensor.type.shape,
        device=tensor.device,
        layout=tensor.form,
        root="" if tensor.root == name else tensor.root,
        offset_bytes=tensor.offset_bytes,
    )


def _call(call: PlannedCall, kernel: int) -> _Call:
    return _Call(
        name=call.name,
        kernel=kernel,
        inputs=call.inputs,
        output=call.output,
        nodes=call.nodes,
        kind=call.kind,
        lane=call.lane,
        after=call.after,
        constants={str(index): name for index, name in call.constants.items()},
        overwritable=call.overwritable,
    )


def _constants(plan: NetworkPlan) -> tuple[_Constant, ...]:
    """Each packed constant by the first call that takes it."""
    takers: dict[str, tuple[str, int]] = {}
    for call in plan.calls:
        for index, name in call.constants.items():
            takers.setdefault(name, (call.name, index))
    return tuple(
        _Constant(
            name=c.name,
            shape=c.shape,
            call=takers[c.name][0],
            index=takers[c.name][1],
            dtype="" if c.dtype == c.workload.arguments[c.index].type.dtype else c.dtype,
        )
        for c in plan.constants
    )
