"""What is asked of a GPU's driver: NVIDIA's with a miniature of its module, and the simulated one
with kernels that are executed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.fakes.cuda_bindings import CudaBindings, Status
from tilewright.compiler.cuda.driver import (
    Driver,
    DriverError,
    Memory,
    OutOfDeviceMemory,
    StickyFault,
)
from tilewright.compiler.cuda.nvidia import NvidiaDriver, find_cards, number_of, started
from tilewright.core.errors import ProcessSpoilt, TargetError
from tilewright.hardware.cards import card_target
from tilewright.hardware.gpus import CudaLaunch, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.simulated_driver import H100, SimulatedDriver

executes = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "cuda"
TEXT = """
extern "C" __global__ void __launch_bounds__(32) twice(float* out, const float* in, int count) {
  int at = blockIdx.x * 32 + threadIdx.x;
  if (at < count) out[at] = 2.0f * in[at];
}
"""


def twice(first: str, second: str, count: int = 64, shared: int = 0) -> CudaLaunch:
    return CudaLaunch(
        kernel="twice",
        grid=(2, 1, 1),
        block=(32, 1, 1),
        arguments=(second, first, count),
        dynamic_shared_bytes=shared,
    )


def nvidia(library: CudaBindings) -> NvidiaDriver:
    return NvidiaDriver(find_cards(library)[0], 0, library)


def in_and_out(driver: Driver) -> tuple[Memory, dict[str, Memory]]:
    memory = driver.allocate(512)
    return memory, {"in": memory.part(0, 256), "out": memory.part(256, 256)}


@executes
def test_launches_are_executed_in_order_and_graphs_are_replayed() -> None:
    driver = SimulatedDriver()
    _, arrays = in_and_out(driver)
    given, result = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    driver.upload(arrays["in"], given)
    module = driver.load(TEXT, b"")
    driver.launch(module, twice("in", "out"), arrays)
    graph = driver.captured(lambda: driver.launch(module, twice("out", "in"), arrays))
    driver.download(arrays["out"], result)
    assert (result == 2 * given).all()
    driver.download(arrays["in"], result)
    assert (result == given).all(), "what is captured is not done"
    driver.replay(graph)
    driver.download(arrays["in"], result)
    assert (result == 4 * given).all()


@executes
def test_memory_that_nobody_wrote_is_no_number() -> None:
    driver = SimulatedDriver()
    _, arrays = in_and_out(driver)
    driver.launch(driver.load(TEXT, b""), twice("in", "out"), arrays)
    result = np.zeros(64, np.float32)
    driver.download(arrays["out"], result)
    assert np.isnan(result).all()


def test_simulated_time_is_that_of_launches() -> None:
    driver = SimulatedDriver(launch_s=1e-5)
    _, arrays = in_and_out(driver)
    module = driver.load(TEXT, b"")

    def work() -> None:
        for _ in range(10):
            driver.launch(module, twice("in", "out"), arrays)

    graph = driver.captured(work)
    first, second = driver.event(), driver.event()
    driver.record(first)
    driver.replay(graph)
    driver.replay(graph)
    driver.record(second)
    assert driver.elapsed_s(first, second) == pytest.approx(2e-4)


def test_simulated_memory_ends() -> None:
    driver = SimulatedDriver()
    memory = driver.allocate(1 << 20)
    assert driver.free_bytes() == H100.memory_bytes - (1 << 20)
    with pytest.raises(OutOfDeviceMemory, match="are free"):
        driver.allocate(H100.memory_bytes)
    driver.release(memory)
    assert driver.free_bytes() == H100.memory_bytes


def test_parts_of_memory_lie_within_it() -> None:
    memory = Memory(address=4096, bytes=100)
    assert memory.part(40, 60) == Memory(address=4136, bytes=60)
    for offset, size in ((-1, 5), (90, 11), (5, -1)):
        with pytest.raises(ValueError, match="not within"):
            memory.part(offset, size)


@pytest.mark.parametrize("driver", [SimulatedDriver(), nvidia(CudaBindings())])
def test_arrays_fit_their_memory(driver: Driver) -> None:
    memory = driver.allocate(64)
    with pytest.raises(ValueError, match="do not fit"):
        driver.upload(memory, np.zeros(17, np.float32))
    with pytest.raises(ValueError, match="do not fit"):
        driver.download(memory, np.zeros((4, 8), np.float32)[:, ::2])


def test_nvidia_says_what_a_card_is() -> None:
    (card,) = find_cards(CudaBindings())
    assert (card.name, card.model, card.arch) == ("NVIDIA H100 PCIe", "H100", "sm_90")
    assert card.multiprocessors == 114
    assert card.bytes_per_s == pytest.approx(2.04e12, rel=0.01)
    assert find_cards(CudaBindings(0)) == ()


def test_nvidia_copies() -> None:
    driver = nvidia(CudaBindings())
    memory, arrays = in_and_out(driver)
    given, result = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    driver.upload(arrays["out"], given)
    driver.download(memory.part(256, 256), result)
    assert (result == given).all()
    driver.fill(memory, 0)
    driver.download(arrays["out"], result)
    assert not result.any()
    driver.release(memory)


def test_nvidia_launches_with_addresses_and_numbers_of_the_sizes_that_kernels_take() -> None:
    library = CudaBindings()
    driver = nvidia(library)
    _, arrays = in_and_out(driver)
    module = driver.load(TEXT, b"a cubin")
    driver.launch(module, twice("in", "out"), arrays)
    driver.launch(module, twice("in", "out", shared=100_000), arrays)
    function, *shape, _stream, parameters, _extra = library.launched[0]
    assert (function, shape) == ("twice", [2, 1, 1, 32, 1, 1, 0])
    addresses = arrays["out"].address, arrays["in"].address
    assert parameters == ((*addresses, 64), (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32))
    opted = [given for name, given in library.calls if name == "cuFuncSetAttribute"]
    attribute = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert opted == [("twice", attribute, 100_000)], "beyond 48 KiB, shared memory is opted into"
    assert library.launched[1][7] == 100_000


def test_nvidia_captures_and_replays() -> None:
    library = CudaBindings()
    driver = nvidia(library)
    _, arrays = in_and_out(driver)
    module = driver.load(TEXT, b"a cubin")
    graph = driver.captured(lambda: driver.launch(module, twice("in", "out"), arrays))
    driver.replay(graph)
    names = [name for name, _ in library.calls]
    order = ("cuStreamBeginCapture", "cuLaunchKernel", "cuStreamEndCapture", "cuGraphInstantiate")
    assert sorted(order, key=names.index) == list(order)
    assert names[-1] == "cuGraphLaunch"
    assert driver.elapsed_s(driver.event(), driver.event()) == 2.5e-3


def test_nvidia_ends_a_capture_that_fails() -> None:
    library = CudaBindings()
    driver = nvidia(library)

    def work() -> None:
        raise KeyError("twice")

    with pytest.raises(KeyError):
        driver.captured(work)
    assert library.calls[-1][0] == "cuStreamEndCapture"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (Status.CUDA_ERROR_INVALID_VALUE, DriverError),
        (Status.CUDA_ERROR_OUT_OF_MEMORY, OutOfDeviceMemory),
        (Status.CUDA_ERROR_ILLEGAL_ADDRESS, StickyFault),
    ],
)
def test_nvidia_errors_have_their_names(status: Status, error: type[Exception]) -> None:
    library = CudaBindings()
    driver = nvidia(library)
    library.fails["cuMemAlloc"] = status
    with pytest.raises(error) as found:
        driver.allocate(4)
    assert isinstance(found.value, ProcessSpoilt) == (error is StickyFault)
    if isinstance(found.value, DriverError):
        assert found.value.name == status.name
    else:
        assert "1 GiB of 80 GiB are free" in str(found.value)


def test_no_driver_is_said() -> None:
    def missing(_flags: int) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    with pytest.raises(TargetError, match="not installed on this machine.*libcuda"):
        started(SimpleNamespace(cuInit=missing))


def test_a_driver_that_does_not_start_is_said() -> None:
    refused = SimpleNamespace(cuInit=lambda _flags: (Status.CUDA_ERROR_INVALID_VALUE,))
    with pytest.raises(TargetError, match="does not start: CUDA_ERROR_INVALID_VALUE"):
        started(refused)


def test_a_driver_without_a_card_has_none() -> None:
    library = CudaBindings(cards=0)
    library.cuInit = lambda _flags: (Status.CUDA_ERROR_NO_DEVICE,)
    library.fails["cuDeviceGetCount"] = Status.CUDA_ERROR_NO_DEVICE
    assert find_cards(started(library)) == ()


def test_the_card_of_a_target_is_found() -> None:
    cards = (H100, *find_cards(CudaBindings()))
    target = gpu_target(parse_gpu("cuda -model=H100"))
    assert number_of(cards, target) == 0
    assert number_of(cards[1:], card_target(cards[1])) == 0
    assert number_of(cards, gpu_target(parse_gpu("cuda -arch=sm_90"))) == 0
    with pytest.raises(TargetError, match="no T4 is in this machine, but NVIDIA H100"):
        number_of(cards, gpu_target(parse_gpu("cuda -model=T4")))
    with pytest.raises(TargetError, match="sees no GPU"):
        number_of((), target)
    old = find_cards(CudaBindings(COMPUTE_CAPABILITY_MAJOR=7, COMPUTE_CAPABILITY_MINOR=0))
    with pytest.raises(TargetError, match="too old"):
        number_of(old, gpu_target(parse_gpu("cuda -arch=sm_70")))


def some_multiprocessors(library: CudaBindings, count: int) -> NvidiaDriver:
    return NvidiaDriver(find_cards(library)[0], 0, library, count)


def test_kernels_keep_to_some_multiprocessors() -> None:
    """By streams of a green context; memory and modules are the primary context's, as ever."""
    library = CudaBindings()
    driver = some_multiprocessors(library, 64)
    _, arrays = in_and_out(driver)
    second = driver.stream()
    driver.launch(driver.load(TEXT, b""), twice("in", "out"), arrays)
    called = {name: given for name, given in library.calls}
    assert called["cuDevSmResourceSplitByCount"][3] == 64
    (group,), count = called["cuDevResourceGenerateDesc"]
    assert (group.sm.smCount, count) == (64, 1)
    assert called["cuGreenCtxCreate"][2] == "CU_GREEN_CTX_DEFAULT_STREAM"
    assert [name for name, _ in library.calls].count("cuGreenCtxStreamCreate") == 2
    assert "cuStreamCreate" not in called and second != driver._streams[0]
    assert library.launched[0][8] == driver._streams[0]
    entered = [given for name, given in library.calls if name == "cuCtxSetCurrent"]
    assert entered == [(driver._context,)], "no thread enters the green context"


def test_all_multiprocessors_take_no_green_context() -> None:
    library = CudaBindings()
    nvidia(library)
    assert not [name for name, _ in library.calls if "Green" in name or "Resource" in name]


def test_another_number_of_multiprocessors_is_an_error() -> None:
    with pytest.raises(TargetError, match="gives 72 multiprocessors where 66 were") as caught:
        some_multiprocessors(CudaBindings(), 66)
    assert caught.value.hint == "Ask for 72."


@pytest.mark.parametrize("raised", [RuntimeError("cuGreenCtxCreate not found"), AttributeError()])
def test_a_driver_without_green_contexts_is_said(raised: Exception) -> None:
    library = CudaBindings()

    def missing(*_: Any) -> None:
        raise raised

    library.cuGreenCtxCreate = missing
    with pytest.raises(TargetError, match="cannot keep to 64 multiprocessors") as caught:
        some_multiprocessors(library, 64)
    assert "CUDA 12.5" in (caught.value.hint or "")


def test_a_card_that_has_no_green_contexts_says_so() -> None:
    library = CudaBindings()
    library.fails["cuGreenCtxCreate"] = Status.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DriverError, match="cuGreenCtxCreate"):
        some_multiprocessors(library, 64)


USES = """
import numpy as np
from tilewright.compiler.cuda.driver import OutOfDeviceMemory, StickyFault
from tilewright.compiler.cuda.nvidia import find_cards, open_driver
from tilewright.core.targets import threads_alone
from tilewright.hardware.cards import card_target
from tilewright.hardware.gpus import CudaLaunch

(card,) = find_cards()
assert (card.model, card.arch, card.multiprocessors) == ("H100", "sm_90", 132), card
assert card.identity == "000102030405060708090a0b0c0d0e0f"
driver = open_driver(card_target(card))
memory = driver.allocate(512)
arrays = {"in": memory.part(0, 256), "out": memory.part(256, 256)}
given, result = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
driver.upload(arrays["in"], given)
module = driver.load("", b"cubin")
launch = CudaLaunch(kernel="twice", grid=(2, 1, 1), block=(32, 1, 1), arguments=("out", "in", 64),
                    dynamic_shared_bytes=100_000)
driver.launch(module, launch, arrays)
driver.download(arrays["out"], result)
assert (result == 2 * given).all()
driver.fill(memory, 0)
driver.download(arrays["out"], result)
assert not result.any()
first, second = driver.event(), driver.event()
driver.record(first)
driver.wait(first, driver.stream())
assert driver.elapsed_s(first, second) == 2.5e-3
graph = driver.captured(lambda: driver.launch(module, launch, arrays))
for wrong, error in ((lambda: driver.allocate(1 << 40), OutOfDeviceMemory),
                     (lambda: driver.replay(graph), StickyFault)):
    try:
        wrong()
    except error as found:
        print(found)
driver.synchronise()
driver.release(memory)
half = open_driver(card_target(card), threads_alone(64))
memory = half.allocate(512)
arrays = {"in": memory.part(0, 256), "out": memory.part(256, 256)}
half.launch(half.load("", b"cubin"), launch, arrays)
"""
ARRIVED = """context 0x10
stream, flags 1
image cubin
function twice of 0x30
attribute 8 of 0x40 is 100000
launch 0x40, grid 2 1 1, block 32 1 1, shared 100000, stream 0x20, count 64
stream, flags 1
capture 0x20, mode 2
launch 0x40, grid 2 1 1, block 32 1 1, shared 100000, stream 0x20, count 64
instantiate 0x60, flags 0
replay 0x70 on 0x20
resource of kind 1
split 132 in 1 of 64
describe 1 of 64
green context by 0x80 of 0, flags 1
stream of 0x90, flags 1, priority 0
launch 0x40, grid 2 1 1, block 32 1 1, shared 100000, stream 0xa0, count 64
"""


@pytest.mark.skipif(
    not (find_spec("cuda") and find_spec("cuda.bindings") and compiler()),
    reason="needs cuda-bindings and a C++ compiler",
)
def test_what_arrives_through_nvidias_package(tmp_path: Path) -> None:
    """With a library in place of the driver's, everything else is NVIDIA's own."""
    library = tmp_path / "libcuda.so.1"
    made = [str(compiler()), "-shared", "-fPIC", "-o", str(library), str(FIXTURES / "driver.cpp")]
    subprocess.run(made, check=True)  # noqa: S603
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", USES],
        env={**os.environ, "PYTHONPATH": path, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert [line for line in ARRIVED.splitlines() if line not in said] == []
    assert any("1 GiB of 80 GiB are free (cuMemAlloc)" in line for line in said)
    assert any(line.startswith("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory") for line in said)
