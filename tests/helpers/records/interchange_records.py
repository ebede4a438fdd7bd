"""Logs of other programs, and records of real tasks, for the tests of imports and exports."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tilewright.core.forms import PLAIN, blocked
from tilewright.core.records import Candidate, Failure, Measurement, Outcome, Protocol
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.store.interchange.autotvm import convolution_task, described_by

SHARED_LOG = "autotvm_v01_resnet18_skylake.log"
SKYLAKE = "llvm -mcpu=skylake-avx512"


def version_1(
    *,
    data: tuple[int, ...] = (1, 64, 56, 56),
    weight: tuple[int, ...] = (64, 64, 3, 3),
    strides: int = 1,
    padding: int = 1,
    knobs: tuple[tuple[str, str, object], ...] = (),
    result: tuple[object, ...] = ([0.0001027261465], 0, 1.166485071182251, 1535509104.953128),
) -> str:
    """A line as in `SHARED_LOG`; its numbers are those of the second line there."""
    entity = knobs or (
        ("tile_ic", "sp", [1, 64]),
        ("tile_oc", "sp", [2, 32]),
        ("tile_ow", "sp", [14, 4]),
        ("unroll_kw", "ot", True),
    )
    tensors = [["TENSOR", list(data), "float32"], ["TENSOR", list(weight), "float32"]]
    numbers = [weight[0], list(weight[2:]), [strides] * 2, [padding] * 2]
    workload = ["conv2d_NCHWc", [*data, "float32"], [*weight, "float32"], *numbers[2:], "NCHW"]
    config = {"i": 139, "c": None, "e": entity, "t": ""}
    arguments = [*tensors, *numbers, "NCHW", "NCHW", "float32"]
    source = [SKYLAKE, "topi_x86_conv2d_NCHWc", arguments, {}, workload, config]
    return json.dumps({"i": source, "r": list(result), "v": 0.1})


def version_2(
    *,
    target: str = SKYLAKE,
    task: str = "conv2d_NCHWc.x86",
    arguments: list[Any] | None = None,
    entity: list[Any] | None = None,
    result: list[Any] | None = None,
) -> str:
    """A line of format 0.2: conv2d 64 → 128, 3×3, stride 2 on 56×56."""
    if arguments is None:
        arguments = [
            ["TENSOR", [1, 64, 56, 56], "float32"],
            ["TENSOR", [128, 64, 3, 3], "float32"],
            [2, 2],
            [1, 1, 1, 1],
            [1, 1],
            "NCHW",
            "NCHW",
            "float32",
        ]
    line = {
        "input": [target, task, arguments, {}],
        "config": {
            "index": 4,
            "code_hash": None,
            "entity": entity
            or [
                ["tile_ic", "sp", [-1, 16]],
                ["tile_oc", "sp", [-1, 32]],
                ["tile_ow", "sp", [-1, 7]],
                ["unroll_kw", "ot", False],
            ],
        },
        "result": result or [[6.0e-5, 6.2e-5], 0, 0.77, 1535516294.5],
        "version": 0.2,
        "tvm_version": "0.8.0",
    }
    return json.dumps(line)


PLACEMENT = described_by(SKYLAKE)
CONVOLUTION: Workload = convolution_task(
    (1, 32, 14, 14), (32, 32, 3, 3), strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1)
)
FORMS = (blocked(16), PLAIN, blocked(16))
_KNOBS = implementation("conv2d_direct").knobs(
    CONVOLUTION, PLACEMENT.target, PLACEMENT.resources, FORMS
)
_SECONDS = st.floats(min_value=1e-9, max_value=1e3)


@st.composite
def convolution_outcomes(draw: st.DrawFn) -> Outcome:
    """A record of the direct convolution with real settings."""
    settings = {knob.name: draw(st.sampled_from(knob.values)) for knob in _KNOBS}
    shared: dict[str, Any] = {
        "workload_key": CONVOLUTION.key,
        "candidate": Candidate(
            implementation="conv2d_direct", settings=tuple(sorted(settings.items())), forms=FORMS
        ),
        "device_class": PLACEMENT.device.class_key,
        "resources": PLACEMENT.resources,
        "kernel_hash": draw(st.sampled_from(["", "a1", "b2"])),
        "versions": "tilewright=1 apache-tvm=0.27",
        "created_at": draw(_SECONDS),
        "instance": draw(st.sampled_from(["", "here"])),
    }
    if draw(st.booleans()):
        return Failure(kind="timeout", message="too\nlong", **shared)
    samples_s = tuple(draw(st.lists(_SECONDS, min_size=1, max_size=3)))
    return Measurement(protocol=Protocol(), samples_s=samples_s, build_s=0.25, **shared)
