"""Candidates for GPUs that are only described, and their CUDA text."""

from __future__ import annotations

from functools import cache

from tilewright.core.forms import Form
from tilewright.core.records import Device, Placement, Settings
from tilewright.core.targets import threads_alone
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import KnobSpace, knob_space
from tilewright.testing.implementations import candidate_of, plain


@cache
def a_gpu(described: str = "-model=H100") -> Placement:
    """A GPU that nobody has: `-model=T4`, `-arch=sm_120`."""
    target = gpu_target(parse_gpu(f"cuda {described}"))
    device = Device(class_key=described, instance=described, target=target, access="described")
    return Placement(device=device, resources=threads_alone(target.cores))


def space_of(name: str, task: Workload, on: Placement, forms: tuple[Form, ...] = ()) -> KnobSpace:
    """The settings of an implementation."""
    return knob_space(implementation(name), task, on.target, on.resources, forms or plain(task))


def gpu_program(
    name: str, task: Workload, settings: Settings, on: Placement | None = None
) -> CudaProgram:
    """The text of an implementation's kernel, and its launches."""
    from tilewright.compiler.builders.cuda import program_of

    placement = on or a_gpu()
    candidate = candidate_of(implementation(name), settings, plain(task))
    return program_of(task, candidate, placement.target, placement.resources)
