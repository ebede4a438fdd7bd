"""Kernels of images for GPUs in the forms that an implementation offers for its ports."""

from __future__ import annotations

import numpy as np

from helpers.kernels.cuda_kernels import check_cuda_kernel
from helpers.kernels.gpu_kernels import a_gpu, space_of
from helpers.kernels.one_kernel import step
from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.gpus import CudaProgram
from tilewright.kernels.estimates import facts
from tilewright.kernels.ports import Ports
from tilewright.kernels.registry import implementation
from tilewright.testing.implementations import candidate_of, some_settings

Shape = tuple[int, ...]
_PLAINEST = dict(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)


def network_task(shapes: list[Shape], constants: tuple[int, ...], *steps: Step) -> Workload:
    """A workload as networks have it: weights are constants."""
    return Workload(
        arguments=tuple(
            Argument(type=TensorType(shape), role="constant" if i in constants else "data")
            for i, shape in enumerate(shapes)
        ),
        steps=steps,
    )


def image_convolution(
    x: Shape, out: int, kernel: tuple[int, int] = (3, 3), *, packed: bool = True, **named
) -> Workload:
    """With a bias, a residual and a relu; filters are known ahead where they may be `packed`."""
    conv = step("conv2d", 0, 1, **(_PLAINEST | named))
    filters = (out, x[1] // dict(conv.attributes)["groups"], *kernel)
    return _with_residual(conv, x, out, filters, packed=packed)


def image_transposed(
    x: Shape, out: int, kernel: tuple[int, int] = (3, 3), *, packed: bool = True, **named
) -> Workload:
    """A transposed convolution with the same behind it."""
    conv = step("conv2d_transpose", 0, 1, **(_PLAINEST | {"output_padding": (0, 0)} | named))
    filters = (x[1], out // dict(conv.attributes)["groups"], *kernel)
    return _with_residual(conv, x, out, filters, packed=packed)


def _with_residual(conv: Step, x: Shape, out: int, filters: Shape, *, packed: bool) -> Workload:
    result = network_task([x, filters], (), conv).result.shape
    behind = (step("add", 4, 2), step("add", 5, 3), step("relu", 6))
    constants = (1, 2) if packed else (2,)
    return network_task([x, filters, (out, 1, 1), result], constants, conv, *behind)


def offered(name: str, task: Workload) -> tuple[Ports, ...]:
    """The forms of ports that an implementation offers."""
    on, spec = a_gpu(), implementation(name)
    assert spec.applies(task, on.target, on.resources), f"{name} does not apply"
    return spec.port_forms(task, on.target, on.resources)


def image_settings(name: str, task: Workload, forms: tuple[Form, ...]) -> list[Settings]:
    """Some valid settings in those forms, the best estimate first."""
    on, spec = a_gpu(), implementation(name)
    found = some_settings(space_of(name, task, on, forms), 60)
    estimates = facts(spec, task, on.target, on.resources, forms, found)["estimate_s"]
    return [found[int(place)] for place in np.argsort(estimates, kind="stable")]


def image_program(
    name: str, task: Workload, forms: tuple[Form, ...], settings: Settings
) -> CudaProgram:
    """The text of a setting in those forms."""
    from tilewright.compiler.builders.cuda import program_of

    on, candidate = a_gpu(), candidate_of(implementation(name), settings, forms)
    return program_of(task, candidate, on.target, on.resources)


def check_image_kernel(
    name: str,
    task: Workload,
    forms: tuple[Form, ...],
    settings: Settings,
    bound: str = "generic",
) -> None:
    """It gives numpy's numbers in three orders, within the `bound` of an implementation."""
    candidate = candidate_of(implementation(name), settings, forms)
    program = image_program(name, task, forms, settings)
    check_cuda_kernel(program, task, name=bound, candidate=candidate)
