"""Measuring on a GPU: the suite for accesses, with workers whose driver executes on the CPU, and
what becomes of faults."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from helpers.processes import simulated_gpu, simulated_gpu_networks
from tilewright.compiler.cuda import compilers, nvidia
from tilewright.core.forms import PLAIN
from tilewright.core.records import Failure, FailureKind, Measurement, Outcome, Protocol
from tilewright.hardware.holding import Held
from tilewright.kernels.spaces import default_candidate
from tilewright.measure import cuda_networks, kernels
from tilewright.measure.accesses.cuda import CUDA
from tilewright.measure.circumstances import Circumstances
from tilewright.measure.targeting import open_measurer_under, placement_of
from tilewright.testing.accesses import AccessConformance
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.implementations import single
from tilewright.testing.simulated_driver import H100

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

RELU = single("relu", (1, 16, 8, 8))
SHORT = Protocol(warmup=1, repeats=3, sample_s=1e-4, rotation_bytes=1 << 16, timeout_s=2.0)


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvidia, "find_cards", lambda: (H100,))
    monkeypatch.setattr(compilers, "missing_compiler", lambda: "")
    monkeypatch.setattr(kernels, "WORKER", simulated_gpu.__name__)
    monkeypatch.setattr(cuda_networks, "WORKER", simulated_gpu_networks.__name__)
    monkeypatch.setenv(simulated_gpu.FOLDER, str(tmp_path))


class TestCudaHere(AccessConformance):
    access = CUDA
    target = "cuda"
    workloads = (RELU,)
    model = "op:dense[k=24,n=6]"


FAULTS: dict[str, tuple[FailureKind, str]] = {
    "sticky": ("crash", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "memory": ("out of memory", "1 MiB of 80 GiB are free"),
    "hang": ("timeout", "no answer within 2 s"),
}


@pytest.mark.parametrize("faults", [["sticky", "memory"], ["hang"]])
def test_each_fault_costs_one_failure_and_one_worker(tmp_path: Path, faults: list[str]) -> None:
    placement = placement_of("cuda", None, None)
    candidate = default_candidate(RELU, (PLAIN, PLAIN), placement)[0]
    left = iter(faults)

    def next_fault(_outcome: Outcome | None = None) -> None:
        for fault in islice(left, 1):
            (tmp_path / simulated_gpu.FAULT).write_text(fault)

    next_fault()
    with kernels.KernelMeasurer(placement, builders=1, memory_limit_bytes=0) as measurer:
        asked = [candidate] * (len(faults) + 1)
        *failed, last = measurer.measure(RELU, asked, SHORT, finished=next_fault)
    for fault, outcome in zip(faults, failed, strict=True):
        assert isinstance(outcome, Failure), outcome
        kind, said = FAULTS[fault]
        assert outcome.kind == kind
        assert said in outcome.message
    assert isinstance(last, Measurement), last
    assert last.samples_s == pytest.approx((1e-5,) * 3)


def test_the_multiprocessors_that_are_held_reach_the_driver() -> None:
    """Of the process that runs the kernels; simulated launches take the longer the fewer."""
    placement = placement_of("cuda", None, None)
    candidate = default_candidate(RELU, (PLAIN, PLAIN), placement)[0]
    held = (Held(control="multiprocessors", value=64, gpu=H100),)
    place = Circumstances(usual=placement, held=held)
    with open_measurer_under(place, 0) as measurer:
        (found,) = measurer.measure(RELU, [candidate], SHORT)
    assert isinstance(found, Measurement), found
    assert found.samples_s == pytest.approx((1e-5 * 132 / 64,) * 3)
    assert (str(found.resources), found.device_class) == (
        "64t",
        f"{placement.key.device_class}+multiprocessors=64",
    )
