"""What doctor says of power meters, on made-up trees of /sys and /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.hardware.meters import Meter, MeterLost, NullMeter
from tilewright.measure import diagnosis
from tilewright.measure.diagnosis import meter_checks


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_meter_is_named(tmp_path: Path) -> None:
    package = tmp_path / "sys/class/powercap/intel-rapl:0"
    write(package / "name", "package-0")
    write(package / "energy_uj", "12")
    (check,) = meter_checks(tmp_path)
    assert (check.name, check.status, check.advice) == ("power meter", "ok", "")
    assert check.detail == "powercap: package-0"


def test_a_virtual_machine_has_none_and_other_ways_are_told(tmp_path: Path) -> None:
    write(tmp_path / "proc/cpuinfo", "processor : 0\nflags : fpu hypervisor\n\n")
    (check,) = meter_checks(tmp_path)
    assert check.status == "ok"
    assert check.detail.startswith("none: ") and "virtual machine" in check.detail
    assert "sys/class/powercap" in check.detail and "command:CMD" in check.advice


def test_what_would_help_is_told(tmp_path: Path) -> None:
    (check,) = meter_checks(tmp_path)
    assert check.status == "warning" and "modprobe" in check.advice


def test_a_gpu_has_a_meter_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "proc/driver/nvidia/version", "NVRM")

    def lost() -> Meter:
        return NullMeter(lost=MeterLost("NVML is not installed.", hint="Install it."))

    monkeypatch.setattr(diagnosis, "nvml_meter", lost)
    _, check = meter_checks(tmp_path)
    assert (check.name, check.status) == ("GPU power meter", "warning")
    assert (check.detail, check.advice) == ("none: NVML is not installed.", "Install it.")


@pytest.mark.parametrize(
    ("there", "detail"),
    [
        (("torch", "onnxscript", "transformers"), "torch, transformers load"),
        (("torch",), "not installed: onnxscript, transformers"),
        ((), "not installed: torch, onnxscript, transformers"),
    ],
)
def test_packages_for_exports_that_are_absent_are_no_fault(
    there: tuple[str, ...], detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "broken_packages", dict)
    monkeypatch.setattr(diagnosis, "find_spec", lambda name: object() if name in there else None)
    check = diagnosis.exporting_check()
    assert (check.status, check.detail, check.advice) == ("ok", detail, "")


@pytest.mark.parametrize(
    ("broken", "status", "words"),
    [({"torchvision": "no nms"}, "warning", "torchvision does not load: no nms"), ({}, "ok", "")],
)
def test_packages_for_exports(
    broken: dict[str, str], status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "broken_packages", lambda: broken)
    check = diagnosis.exporting_check()
    assert (check.name, check.status) == ("PyTorch models", status)
    assert words in check.detail
