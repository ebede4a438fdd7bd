"""Kernels for GPUs, built and run with a driver that executes them on the CPU."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.builders.cuda import CudaBuilder
from tilewright.compiler.cuda.compilers import Compiled
from tilewright.compiler.cuda.driver import OutOfDeviceMemory, StickyFault
from tilewright.compiler.cuda.kernels import CudaKernel
from tilewright.core.errors import ModelError, ProcessSpoilt, TargetError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Binding, Candidate, Device, Placement, Protocol
from tilewright.core.targets import threads_alone
from tilewright.graph.network import TensorType
from tilewright.hardware.cards import card_target
from tilewright.hardware.gpus import CompilerReport
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import sample_arguments
from tilewright.testing.builders import BuilderConformance
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.implementations import single
from tilewright.testing.simulated_driver import H100, SimulatedDriver

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

TARGET = card_target(H100)
PLACEMENT = Placement(
    device=Device(class_key="h100", instance="one", target=TARGET, access="cuda"),
    resources=threads_alone(TARGET.cores),
    binding=Binding(cpus=(0,)),
)
DENSE = single("dense", (4, 64), (64, 32), constants=[1])
SHORT = Protocol(warmup=1, repeats=3, sample_s=1e-4, rotation_bytes=1 << 16)


def cubin(_source: str, _arch: str, _form: str = "cubin") -> Compiled:
    """No compiler is needed where the text is executed."""
    return Compiled(binary=b"a cubin")


def built(driver: SimulatedDriver, task=DENSE) -> CudaKernel:
    builder = CudaBuilder(lambda *_: driver, cubin)
    candidate = default_candidate(task, (PLAIN,) * (len(task.arguments) + 1), PLACEMENT)[0]
    return builder.build(task, candidate, PLACEMENT.target, PLACEMENT.resources)


class TestCuda(BuilderConformance):
    builder = CudaBuilder(lambda *_: SimulatedDriver(), cubin)
    placement = PLACEMENT
    workloads = (
        single("relu", (1, 16, 8, 8)),
        DENSE,
        workload([(3, 21)], step("softmax", 0, axis=1)),
    )


def test_weights_rotate_through_copies_and_activations_stay() -> None:
    driver = SimulatedDriver()
    kernel = built(driver)
    seen: list[tuple[int, ...]] = []
    launch = driver.launch

    def watched(module, what, arrays, stream=None) -> None:
        seen.append(tuple(arrays[f"argument{place}"].address for place in range(2)))
        launch(module, what, arrays, stream)

    driver.launch = watched
    kernel.time(SHORT, 0, inf)
    in_graph = seen[1:]
    assert len({activation for activation, _ in seen}) == 1
    assert len({weight for _, weight in in_graph}) == SHORT.rotation_bytes // (64 * 32 * 4)
    assert in_graph[0][1] != in_graph[1][1]
    assert driver.free_bytes() == H100.memory_bytes, "memory is given back"


def test_times_are_those_of_replayed_graphs() -> None:
    """A launch takes 10 µs here, and the kernel is one."""
    driver = SimulatedDriver(launch_s=1e-5)
    samples = built(driver).time(SHORT, 0, inf)
    assert samples == pytest.approx([1e-5] * 3)
    assert driver.launches <= 300, "a graph is asked for once"


def test_a_slow_kernel_is_sampled_once() -> None:
    assert len(built(SimulatedDriver()).time(SHORT, 0, 1e-6)) == 1


def test_windows_of_a_meter_hold_nothing_but_calls() -> None:
    driver = SimulatedDriver()
    kernel = built(driver)
    assert kernel.repeat(SHORT, 0, 0.05) > 1000
    asked = driver.launches
    assert kernel.repeat(SHORT, 0, 0.0) > 0
    assert driver.launches == asked, "what was prepared is used again"
    assert driver.free_bytes() < H100.memory_bytes
    kernel.time(SHORT, 0, inf)
    assert driver.free_bytes() == H100.memory_bytes, "it is given back when something else runs"


def test_memory_that_does_not_suffice_is_told() -> None:
    driver = SimulatedDriver(faults={"allocate": OutOfDeviceMemory("4 of 80 GiB are free")})
    with pytest.raises(MemoryError, match="4 of 80 GiB are free"):
        built(driver).time(SHORT, 0, inf)


def test_a_fault_gives_memory_back_if_it_can() -> None:
    driver = SimulatedDriver(faults={"replay": StickyFault("CUDA_ERROR_LAUNCH_FAILED", "no")})
    with pytest.raises(ProcessSpoilt):
        built(driver).time(SHORT, 0, inf)


def test_launches_that_would_be_refused_become_others() -> None:
    """70,000 matrices lie along y by TVM's schedule, where 65,535 blocks can be had: they are
    launched along x."""
    kinds = [TensorType(shape, "float64") for shape in ((70_000, 2, 3), (70_000, 3, 2))]
    task = workload(kinds, step("batch_matmul", 0, 1, transpose_b=False))
    candidate = Candidate(implementation="cuda_default", settings=(), forms=(PLAIN,) * 3)
    builder = CudaBuilder(lambda *_: SimulatedDriver(), cubin)
    made = builder.build(task, candidate, PLACEMENT.target, PLACEMENT.resources)
    assert [launch.grid for launch in made.program.launches] == [(70_000, 1, 1)]


def test_a_compiler_that_exceeds_the_bounds_of_the_text_is_not_believed() -> None:
    """The text says how many threads a block has, by which compilers keep registers few enough."""

    def greedy(source: str, _arch: str, _form: str = "cubin") -> Compiled:
        assert "__launch_bounds__(1024)" in source
        report = CompilerReport(
            registers=255,
            spill_store_bytes=0,
            spill_load_bytes=0,
            stack_bytes=0,
            shared_bytes=0,
        )
        return Compiled(binary=b"a cubin", reports={"main_kernel": report})

    task = single("relu", (1, 1024, 8, 8))
    candidate = Candidate(implementation="cuda_default", settings=(), forms=(PLAIN, PLAIN))
    builder = CudaBuilder(lambda *_: SimulatedDriver(), greedy)
    with pytest.raises(ModelError, match="registers of a block"):
        builder.build(task, candidate, PLACEMENT.target, PLACEMENT.resources)


def test_without_a_compiler_nothing_is_built() -> None:
    builder = CudaBuilder(
        lambda *_: SimulatedDriver(), lambda *_: Compiled(reason="nvcc is not there")
    )
    candidate = default_candidate(DENSE, (PLAIN,) * 3, PLACEMENT)[0]
    with pytest.raises(TargetError, match="no cubin was made: nvcc is not there"):
        builder.build(DENSE, candidate, PLACEMENT.target, PLACEMENT.resources)


def test_halves_have_their_own_bytes() -> None:
    task = single("cast", (3, 5), dtype="float16")
    kernel = built(SimulatedDriver(), task)
    (given,) = sample_arguments(task, 0)
    assert np.array_equal(kernel.run([given]), given.astype(np.float16))
