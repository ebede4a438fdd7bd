"""GPUs as targets: those that are here, those that are described, and what is said where something
is missing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewright.compiler.cuda import compilers, nvidia
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.events import Event, Note
from tilewright.core.records import Protocol
from tilewright.hardware import cards as cards_module
from tilewright.hardware.cards import Card, busy_share
from tilewright.hardware.device import local_placement
from tilewright.hardware.meters import KernelEnergy, MeterLost, NullMeter, registry
from tilewright.measure import kernels
from tilewright.measure.accesses import cuda
from tilewright.measure.accesses.cuda import CUDA, CudaMeasurer
from tilewright.measure.circumstances import Circumstances, kernel_protocol
from tilewright.measure.cuda_networks import CudaNetworks
from tilewright.measure.diagnosis import gpu_checks
from tilewright.measure.targeting import (
    open_measurer_under,
    placement_of,
    target_rows,
    usable_placement,
)
from tilewright.testing.simulated_driver import H100

T4 = replace(H100, name="Tesla T4", identity="ff" * 16, capability=(7, 5), multiprocessors=40)
OLD = replace(H100, name="Tesla V100-SXM2-16GB", capability=(7, 0), multiprocessors=80)


def here(monkeypatch: pytest.MonkeyPatch, *cards: Card) -> None:
    monkeypatch.setattr(nvidia, "find_cards", lambda: cards)


def without(monkeypatch: pytest.MonkeyPatch, message: str = "NVIDIA's driver is not installed"):
    def missing() -> tuple[Card, ...]:
        raise TargetError(message, hint="Install it.")

    monkeypatch.setattr(nvidia, "find_cards", missing)


def test_cuda_alone_is_the_first_gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100, T4)
    placement = placement_of("cuda", None, None)
    assert (placement.device.access, placement.target.model) == ("cuda", "H100")
    assert str(placement.resources) == "132t"
    assert placement.host_threads == 1
    assert usable_placement(placement) is placement


def test_a_model_that_is_here_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100, T4)
    for text in ("cuda -model=T4", "cuda -arch=sm_75", '{"kind": "cuda", "model": "T4"}'):
        placement = placement_of(text, None, None)
        assert (placement.device.access, placement.target.cores) == ("cuda", 40), text
    assert placement.device.instance != placement_of("cuda", None, None).device.instance


def test_what_is_described_has_the_class_of_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100)
    real = placement_of("cuda", None, None)
    without(monkeypatch)
    described = placement_of("cuda -model=H100", None, None)
    assert described.key == real.key
    assert described.device.class_key.startswith("h100-sm90-")
    assert (described.device.access, described.device.instance) == ("described", "")
    here(monkeypatch, replace(H100, multiprocessors=114))
    assert placement_of("cuda", None, None).key != real.key, "another size, another class"


@pytest.mark.parametrize(
    ("cards", "target", "said"),
    [
        ((), "cuda", "sees no GPU"),
        ((), "cuda -model=T4", "sees no GPU"),
        ((H100,), "cuda -model=T4", "no T4 is in this machine, but NVIDIA H100"),
        ((OLD,), "cuda", "V100-SXM2-16GB is too old: its architecture is sm_70"),
        ((OLD,), "cuda -model=V100", "is too old"),
    ],
)
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, cards: tuple[Card, ...], target: str, said: str
) -> None:
    here(monkeypatch, *cards)
    with pytest.raises(TargetError, match=said) as caught:
        usable_placement(placement_of(target, None, None))
    assert caught.value.exit_code == 3 and caught.value.hint


def test_no_driver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    for target in ("cuda", "cuda -model=H100"):
        with pytest.raises(TargetError, match="driver is not installed") as caught:
            usable_placement(placement_of(target, None, None))
        assert "Install it." in (caught.value.hint or "")


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100)
    monkeypatch.setattr(compilers, "missing_compiler", lambda: "nvcc is not there")
    with pytest.raises(TargetError, match="cannot be compiled: nvcc is not there"):
        CUDA.measurer(placement_of("cuda", None, None), seed=0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cuda -model", "'-model' cannot be read"),
        ("cuda H100", "'H100' cannot be read"),
        ("cuda -colour=red", "no option 'colour'"),
        ("cuda -model=H1000", "no datasheet of the GPU 'H1000'"),
        ("cuda -arch=sm_1", "sm_1 is too old"),
        ("cuda -arch=fast", "limits of 'fast' are not known"),
        ("cuda\t-model=H1000", "no datasheet of the GPU 'H1000'"),
        ("cuda -model=H100 -arch=sm_80", "the H100 is sm_90, not sm_80"),
        ('{"kind": "cuda", "model": 7}', "no datasheet of the GPU '7'"),
        ("cuda -model='H100", "cannot be read: No closing"),
    ],
)
def test_nonsense_is_refused(text: str, said: str) -> None:
    with pytest.raises(TargetError, match=said):
        placement_of(text, None, None)


def test_flags_of_other_targets_are_refused() -> None:
    with pytest.raises(UsageError, match="A tracker is for rpc"):
        placement_of("cuda", "localhost:9190", None)
    with pytest.raises(UsageError, match="--threads is for CPUs"):
        placement_of("cuda -model=H100", None, 4)


TWIN = replace(H100, identity="11" * 16)


def test_cards_of_one_model_have_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100, T4, TWIN)
    assert [row.name for row in CUDA.rows(None)] == ["cuda", "cuda -model=T4", "cuda -card=2"]
    placements = [placement_of(f"cuda -card={number}", None, None) for number in range(3)]
    assert placements[0] == placement_of("cuda", None, None)
    assert [each.device.instance for each in placements] == [
        card.instance for card in (H100, T4, TWIN)
    ]
    assert placements[2].key == placements[0].key, "what one of them took holds for the other"
    with pytest.raises(TargetError, match="no GPU 3 in this machine, but 0: NVIDIA H100 .*, 1: T"):
        placement_of("cuda -card=3", None, None)
    with pytest.raises(TargetError, match="'-card' cannot be read"):
        placement_of("cuda -card", None, None)


def test_processes_see_the_card_of_their_placement_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100, TWIN)
    placement = placement_of("cuda -card=1", None, None)
    wanted = {"CUDA_VISIBLE_DEVICES": "GPU-11111111-1111-1111-1111-111111111111"}
    assert nvidia.environment_of(placement) == wanted
    assert kernels.open_worker(placement).environment.items() >= wanted.items()
    assert CudaNetworks(placement).environment.items() >= wanted.items()
    here(monkeypatch, H100)
    assert nvidia.environment_of(placement_of("cuda", None, None)) == {}
    assert nvidia.environment_of(local_placement(1)) == {}
    without(monkeypatch)
    assert nvidia.environment_of(placement) == {}


def test_cards_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100, T4, OLD)
    rows = [row for row in target_rows(1) if row.name.startswith("cuda")]
    assert [(row.name, row.usable) for row in rows] == [
        ("cuda", True),
        ("cuda -model=T4", True),
        ("cuda -model=V100", False),
        ("cuda -model=H100", False),
    ]
    assert "132 multiprocessors, 80 GiB" in rows[0].detail
    assert "too old" in rows[2].detail
    without(monkeypatch)
    (row,) = CUDA.rows(None)
    assert not row.usable and "not installed" in row.detail
    here(monkeypatch)
    (row,) = CUDA.rows(None)
    assert not row.usable and "sees no GPU" in row.detail
    assert target_rows(1)[0].name == "llvm"


class Nvml:
    """nvidia-ml-py with a GPU that something uses."""

    class NVMLError(Exception):
        """The package's own."""

    def __init__(self, percent: int | None) -> None:
        self.percent = percent
        self.asked = ""

    def nvmlInit(self) -> None:
        if self.percent is None:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByUUID(self, identity: str) -> str:
        self.asked = identity
        return identity

    def nvmlDeviceGetUtilizationRates(self, _handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=self.percent)


def test_another_process_on_the_card_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100)
    nvml = Nvml(87)
    monkeypatch.setattr(cards_module, "nvml_library", lambda: nvml)
    told: list[Event] = []
    usable_placement(placement_of("cuda", None, None), told.append)
    (note,) = told
    assert isinstance(note, Note)
    assert "Another process uses the NVIDIA H100 80GB HBM3 (87% of the time" in note.message
    assert nvml.asked == "GPU-01234567-89ab-cdef-0123-456789abcdef"
    nvml.percent = 0
    usable_placement(placement_of("cuda", None, None), told.append)
    assert len(told) == 1


def test_how_busy_a_card_is_may_not_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy_share(H100.identity, Nvml(None)) is None
    monkeypatch.setattr(cards_module, "nvml_library", lambda: None)
    assert busy_share(H100.identity) is None
    here(monkeypatch, H100)
    assert cuda.busy(placement_of("cuda", None, None)) == ""


def test_weights_leave_the_cache_that_all_multiprocessors_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here(monkeypatch, H100)
    assert kernel_protocol(placement_of("cuda", None, None)) == Protocol(
        rotation_bytes=100 << 20, activations="warm"
    )


def test_peaks_are_those_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100)
    with CudaMeasurer(placement_of("cuda", None, None)) as measurer:
        peaks = measurer.peaks()
    assert peaks["flop_per_s"] == pytest.approx(66.9e12, rel=0.01)
    assert peaks["bytes_per_s"] == H100.bytes_per_s
    assert peaks["cache_bytes_per_s"] > peaks["bytes_per_s"]


def test_copies_beside_a_kernel_are_of_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100)
    crowded = Circumstances(usual=placement_of("cuda", None, None), neighbours=2)
    with pytest.raises(UsageError, match="of a CPU"):
        open_measurer_under(crowded, 0)


def test_energy_is_measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100)
    monkeypatch.setattr(compilers, "missing_compiler", lambda: "")
    energy = KernelEnergy(meter=NullMeter(lost=MeterLost("no counter")))
    with CUDA.measurer(placement_of("cuda", None, None), seed=0, energy=energy) as measurer:
        assert isinstance(measurer, CudaMeasurer)


def test_doctor_names_cards_and_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100)
    monkeypatch.setattr(compilers, "missing_compiler", lambda: "nvcc is not there")
    card, compiler = gpu_checks()
    assert (card.name, card.status) == ("GPU", "ok")
    assert "132 multiprocessors" in card.detail
    assert (compiler.status, compiler.detail) == ("warning", "none: nvcc is not there")
    without(monkeypatch)
    card, compiler = gpu_checks()
    assert (card.status, compiler.status) == ("ok", "ok"), "neither is needed"
    assert "not installed" in card.detail and "pip install" in card.advice


def test_the_best_meter_of_a_gpu_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, H100)
    made: list[str] = []
    monkeypatch.setattr(registry, "named_meter", made.append)
    target = placement_of("cuda", None, None).target
    for name in ("auto", "nvml:1"):
        registry.meter_of(name, target)
    registry.meter_of("auto", local_placement(1).target)
    assert made == ["nvml", "nvml:1", "auto"]
