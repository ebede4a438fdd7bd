"""Candidates for GPUs that are only described, and their CUDA text."""

from __future__ import annotations

from functools import cache

import pytest

from tilewright.core.forms import Form
from tilewright.core.records import Device, Placement, Settings
from tilewright.core.targets import threads_alone
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.kernels.estimates import facts
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


def check_facts_of_code(name: str, task: Workload, chosen: Settings, *, sectors: float) -> None:
    """That the lowered code of an H100's kernel has the threads, blocks, shared memory and sectors
    of a load that facts tell; the last within this share, since there those of the epilogue count
    as well."""
    import tvm

    from tilewright.compiler.build import kernel_module
    from tilewright.compiler.cuda.code import read_launch
    from tilewright.compiler.cuda.launches import split

    on, spec = a_gpu(), implementation(name)
    module = kernel_module(task, candidate_of(spec, chosen, plain(task)), on.target, on.resources)
    target = tvm.target.Target(on.target.tvm_target(on.resources))
    (function,) = split(module, target)[1].functions.values()
    read = read_launch("kernel", function)
    told = facts(spec, task, on.target, on.resources, plain(task), [chosen])
    assert read.threads == told["threads"][0]
    assert read.blocks == told["parallel_extent"][0]
    assert 0.95 * told["shared_bytes"][0] <= read.shared_bytes <= told["shared_bytes"][0]
    assert read.sectors == pytest.approx(told["coalesced"][0], rel=sectors), chosen
