"""Settings from all over an implementation's space for GPUs: executed, and compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from shutil import which

import numpy as np
import pytest

from helpers.kernels.cuda_kernels import check_cuda_kernel, executed
from tilewright.core.records import Device, Placement, Settings
from tilewright.core.targets import threads_alone
from tilewright.cost.demand import Column
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.kernels.estimates import facts
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault
from tilewright.testing.implementations import candidate_of, plain, some_settings


@cache
def gpu(options: str = "-model=H100") -> Placement:
    """A GPU that a datasheet describes: `-model=T4`, `-arch=sm_80`."""
    target = gpu_target(parse_gpu(f"cuda {options}"))
    device = Device(class_key="gpu", instance="gpu", target=target, access="described")
    return Placement(device=device, resources=threads_alone(target.cores))


def listed(task: Workload, name: str, options: str = "-model=H100") -> list[Settings]:
    """Valid settings, the best estimate first."""
    on, spec, ports = gpu(options), implementation(name), plain(task)
    assert spec.applies(task, on.target, on.resources), f"{name} does not apply"
    space = knob_space(spec, task, on.target, on.resources, ports)
    found = some_settings(space, 500)
    columns = facts(spec, task, on.target, on.resources, ports, found)
    order = np.argsort(columns["estimate_s"], kind="stable")
    return [found[int(place)] for place in order]


def facts_on(
    task: Workload, name: str, settings: Sequence[Settings], options: str = "-model=H100"
) -> dict[str, Column]:
    """What is known of settings."""
    on = gpu(options)
    spec = implementation(name)
    return facts(spec, task, on.target, on.resources, plain(task), settings)


def program(
    task: Workload, name: str, settings: Settings, options: str = "-model=H100"
) -> CudaProgram:
    """The CUDA text of one setting."""
    from tilewright.compiler.builders.cuda import program_of

    on = gpu(options)
    candidate = candidate_of(implementation(name), settings, plain(task))
    return program_of(task, candidate, on.target, on.resources)


def check_settings(task: Workload, name: str, count: int = 3) -> None:
    """Of all settings, the default one and some up to the worst, executed in three orders."""
    settings = listed(task, name)
    for place in dict.fromkeys(np.linspace(0, len(settings) - 1, count).astype(int)):
        check_cuda_kernel(program(task, name, settings[place]), task)


def faults_without(
    task: Workload, name: str, settings: Settings, text: str, instead: str = ""
) -> int:
    """How often a text is there; it is missed wherever it is replaced, in one place at a time."""
    built, arrays = program(task, name, settings), sample_arguments(task, 0)
    places = [found.start() for found in re.finditer(re.escape(text), built.source)]
    for place in places:
        source = built.source[:place] + instead + built.source[place + len(text) :]
        with pytest.raises(KernelFault):
            executed(replace(built, source=source), task, arrays, seed=place)
    return len(places)


def check_compiled(tasks: Sequence[tuple[Workload, str]], arch: str) -> None:
    """The default setting and the most registers of each compile for an architecture without
    spills; all go through the compiler in one text, which includes what any of them does."""
    from tilewright.compiler.cuda.compilers import compiled_source, nvrtc

    if nvrtc() is None and which("nvcc") is None:
        pytest.skip("neither nvcc nor NVRTC is installed")
    headers, texts, options = list[str](), list[str](), f"-arch={arch}"
    for task, name in tasks:
        settings = listed(task, name, options)
        held = facts_on(task, name, settings, options)["blocks_per_multiprocessor"]
        for chosen in (settings[0], settings[int(np.argmin(held))]):
            source = program(task, name, chosen, options).source
            begin = source.index('extern "C" __global__')
            headers.append(source[:begin])
            texts.append(source[begin:].replace("main_kernel", f"kernel{len(texts)}_"))
    longest = max(headers, key=len)
    lines = {line for header in headers for line in header.splitlines()}
    included = sorted(line for line in lines if line.startswith("#include"))
    found = compiled_source("\n".join([longest, *included, *texts]), arch)
    assert len(found.reports) >= len(texts), found.reason
    for name, report in found.reports.items():
        assert (report.spill_store_bytes, report.spill_load_bytes) == (0, 0), f"{name}: {report}"
