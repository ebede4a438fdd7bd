"""What can be set on a GPU is told by NVML, with the reason where this process may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.fakes.machine_files import SERVER, tree
from helpers.fakes.settings_of_a_card import CardSettings
from tilewright.compiler.cuda import nvidia
from tilewright.core.errors import TargetError
from tilewright.core.results import ControlRow
from tilewright.hardware import gpu_controls as module
from tilewright.hardware.cards import Card
from tilewright.hardware.gpu_controls import gpu_control_rows, gpu_controls
from tilewright.measure.accesses.cuda import control_rows
from tilewright.testing.simulated_driver import H100

NAMES = [f"{what} of GPU 0, {H100.name}" for what in ("multiprocessors", "power cap", "clock")]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CardSettings:
    return CardSettings(H100, tmp_path / "card.json", monkeypatch)


def told(root: Path, *cards: Card, missing: str = "") -> dict[str, ControlRow]:
    return {row.name: row for row in gpu_control_rows(cards or (H100,), missing, root)}


@pytest.mark.usefixtures("settings")
def test_an_administrator_may_set_all(tmp_path: Path) -> None:
    found = told(tree(tmp_path / "root", SERVER))
    assert list(found) == NAMES
    assert [row.settable for row in found.values()] == [True] * 3
    assert [(row.value, row.range) for row in found.values()] == [
        ("132", "8 to 128, in steps of 8"),
        ("700 W", "200 to 700 W"),
        ("1.755 GHz", "0.21 to 1.98 GHz"),
    ]


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("capabilities", ["0000000000000000", "00000000a80425fb", ""])
def test_multiprocessors_take_no_rights(tmp_path: Path, capabilities: str) -> None:
    """Who is root in a container has not what the driver asks for."""
    status = f"CapInh:\t0\nCapEff:\t{capabilities}\n" if capabilities else "Name:\tpython\n"
    found = told(tree(tmp_path / "root", SERVER | {"proc/self/status": status}))
    assert [row.settable for row in found.values()] == [True, False, False]
    assert all("administrator" in found[name].reason for name in NAMES[1:])
    assert found[NAMES[1]].range == "200 to 700 W", "the range is told all the same"


def test_what_nvml_does_not_tell_is_a_reason(tmp_path: Path, settings: CardSettings) -> None:
    root = tree(tmp_path / "root", SERVER)
    settings.set(refused={"nvmlDeviceGetPowerManagementLimitConstraints": "Not Supported"})
    found = told(root)
    assert found[NAMES[1]].reason == "NVML does not tell it: Not Supported"
    assert (found[NAMES[1]].range, found[NAMES[1]].value) == ("", "")
    assert found[NAMES[2]].settable
    other = replace(H100, identity="ff" * 16)
    reasons = [row.reason for row in told(root, other).values()]
    assert reasons == ["", *["NVML does not tell it: Not Found"] * 2]
    settings.set(refused={"nvmlInit": "Driver Not Loaded"})
    assert "Driver Not Loaded" in told(root)[NAMES[2]].reason


def test_without_its_package_nothing_is_asked_of_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "nvml_library", lambda: None)
    reasons = [row.reason for row in told(tree(tmp_path, SERVER)).values()]
    assert reasons == ["", *["the Python package nvidia-ml-py is not installed"] * 2]


@pytest.mark.parametrize(
    ("capability", "count", "told_as"),
    [
        ((6, 1), 20, "1 to 19"),
        ((7, 5), 40, "2 to 38, in steps of 2"),
        ((8, 0), 108, "4 to 106, in steps of 2"),
        ((9, 0), 114, "8 to 112, in steps of 8"),
        ((10, 0), 148, "8 to 144, in steps of 8"),
    ],
)
def test_multiprocessors_come_in_groups(
    capability: tuple[int, int], count: int, told_as: str
) -> None:
    card = replace(H100, capability=capability, multiprocessors=count)
    first = gpu_controls(card, library=SimpleNamespace(NVMLError=AttributeError))[0]
    assert first.range == told_as


def test_a_machine_without_a_card_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[Card, ...]:
        raise TargetError("NVIDIA's driver is not installed on this machine")

    for find, said in ((missing, "driver is not installed"), (tuple, nvidia.NO_GPU)):
        monkeypatch.setattr(nvidia, "find_cards", find)
        rows = control_rows()
        assert [row.name for row in rows] == [
            f"{what} of a GPU" for what in ("multiprocessors", "power cap", "clock")
        ]
        assert not any(row.settable for row in rows)
        assert all(said in row.reason for row in rows)
