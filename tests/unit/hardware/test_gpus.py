"""GPUs as targets describe them."""

from __future__ import annotations

import json

import pytest

from tilewright.core.errors import TargetError
from tilewright.hardware.datasheets import known_capability
from tilewright.hardware.gpus import gpu_of, gpu_of_target, gpu_target, is_cuda
from tilewright.hardware.target import parse_gpu, read_target


class FakeNvml:
    """nvidia-ml-py with one GPU, or none."""

    class NVMLError(Exception):
        """The package's own."""

    def __init__(self, name: str | None, capability: tuple[int, int] = (9, 0)) -> None:
        self.name, self.capability = name, capability

    def nvmlInit(self) -> None:
        if self.name is None:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _handle: int) -> str:
        return str(self.name)

    def nvmlDeviceGetCudaComputeCapability(self, _handle: int) -> tuple[int, int]:
        return self.capability


@pytest.mark.parametrize(
    "text", ["cuda", " cuda -arch=sm_80", "cuda -model=H100", '{"kind": "cuda", "arch": "sm_90"}']
)
def test_cuda_targets_are_known_as_such(text: str) -> None:
    assert is_cuda(text)


@pytest.mark.parametrize("text", ["llvm", "rpc:cuda", "cudas", "", "{", "[1]", '{"kind": "llvm"}'])
def test_others_are_not(text: str) -> None:
    assert not is_cuda(text)


def test_a_model_brings_its_datasheet() -> None:
    gpu = parse_gpu("cuda -model=H100")
    assert (gpu.arch, gpu.multiprocessors, gpu.most_threads) == ("sm_90", 132, 2048)
    assert gpu.bytes_per_s == 3350e9
    target = json.loads(gpu.target)
    assert (target["kind"], target["arch"]) == ("cuda", "sm_90")


def test_dot_products_of_bytes_have_the_rates_of_datasheets() -> None:
    """47 TOP/s of a P40; 64 instructions for each multiprocessor of an H100; none of a P100."""
    p40, h100, p100 = (gpu_target(parse_gpu(f"cuda -model={it}")) for it in ("P40", "H100", "P100"))
    dots = p40.unit("int8"), h100.unit("int8"), p100.unit("int8")
    assert dots[0] is not None and dots[1] is not None and dots[2] is None
    rate = dots[0].operations_per_cycle * p40.cores * p40.clock_hz
    assert rate == pytest.approx(47e12, rel=0.01)
    assert dots[1].operations_per_cycle == 512


def test_an_architecture_alone_has_limits_and_no_size() -> None:
    gpu = parse_gpu('{"kind": "cuda", "arch": "sm_86"}')
    assert (gpu.most_threads, gpu.most_blocks, gpu.shared_bytes) == (1536, 16, 100 << 10)
    assert gpu.multiprocessors is None
    assert gpu.flop_per_s is None


@pytest.mark.parametrize("text", ["cuda -model=H100", "cuda -arch=sm_86", "cuda -model=1080"])
def test_the_gpu_of_a_target_is_the_one_that_was_described(text: str) -> None:
    assert gpu_of_target(gpu_target(parse_gpu(text))) == parse_gpu(text)


def test_this_machines_gpu_is_found_by_its_name() -> None:
    gpu = gpu_of({"kind": "cuda"}, FakeNvml("NVIDIA H100 80GB HBM3"))
    assert (gpu.arch, gpu.multiprocessors) == ("sm_90", 132)


def test_a_gpu_without_known_datasheet_still_has_limits() -> None:
    gpu = gpu_of({"kind": "cuda"}, FakeNvml("NVIDIA Quadro Unheard", (7, 5)))
    assert (gpu.arch, gpu.multiprocessors, gpu.most_threads) == ("sm_75", None, 1024)


def test_without_a_gpu_the_error_says_how_to_describe_one() -> None:
    with pytest.raises(TargetError, match="Driver Not Loaded") as caught:
        gpu_of({"kind": "cuda"}, FakeNvml(None))
    assert "cuda -model=H100" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cuda -model=H1000", "no datasheet"),
        ("cuda -arch=sm_13", "too old"),
        ("cuda -model=A100 -arch=sm_90", "the A100 is sm_80, not sm_90"),
        ("cuda -libs=cudnn", "'libs'"),
    ],
)
def test_what_is_not_known_is_refused(text: str, said: str) -> None:
    with pytest.raises(TargetError, match=said) as caught:
        parse_gpu(text)
    assert caught.value.hint


def test_an_arch_of_its_own_features_fits_its_model() -> None:
    assert parse_gpu("cuda -model=H100 -arch=sm_90a").arch == "sm_90a"


def test_code_for_gpus_is_refused_with_what_can_be_asked() -> None:
    with pytest.raises(TargetError, match="where a CPU is described") as caught:
        read_target("cuda -model=H100")
    assert "targets of their own" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA A100-PCIE-40GB", 8.0),
        ("Tesla P40", 6.1),
        ("NVIDIA GeForce RTX 2080 Ti", 7.5),
        ("NVIDIA TITAN V", 7.0),
        ("AMD Instinct MI250X", 0),
    ],
)
def test_capabilities_by_name(name: str, capability: float) -> None:
    assert known_capability(name) == capability
