"""The power cap and the clock of a GPU are held while a block runs, and given back whatever becomes
of the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.fakes.machine_files import SERVER, tree
from helpers.fakes.settings_of_a_card import CardSettings
from tilewright.core.errors import TargetError, UsageError
from tilewright.hardware import holding as module
from tilewright.hardware.holding import ControlName, Held, checked, holding, parse_held
from tilewright.hardware.settable import by_hand, read, setting_of, write
from tilewright.testing.simulated_driver import H100

CAP, CLOCK = setting_of(H100.identity, "power-cap"), setting_of(H100.identity, "clock")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CardSettings:
    return CardSettings(H100, tmp_path / "card.json", monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tree(tmp_path / "root", SERVER)


def of_card(*asked: tuple[ControlName, str]) -> Sequence[Held]:
    return [replace(parse_held(*each), gpu=H100) for each in asked]


BOTH = of_card(("power-cap", "350W"), ("clock", "1.5GHz"))


def test_power_and_clock_are_held_and_given_back(settings: CardSettings, root: Path) -> None:
    with holding(BOTH, (0, 1), root):
        assert (settings["limit"], settings["locked"]) == (350_000, [1500, 1500])
        settings.set(clock=210)  # it idles
    assert (settings["limit"], settings["locked"]) == (700_000, None)


def test_files_of_cpus_are_left_alone(settings: CardSettings, root: Path) -> None:
    """A GPU's clock is not the CPU's, though both are called so."""
    files = {path: path.read_text() for path in root.rglob("*") if path.is_file()}
    with holding(BOTH, (0, 1), root):
        assert {path: path.read_text() for path in files} == files
    assert settings["locked"] is None


def test_multiprocessors_write_nothing(root: Path, settings: CardSettings) -> None:
    """A process keeps to them by itself; nothing has to be given back."""
    before = settings.now
    (steps,) = checked(of_card(("multiprocessors", "64")), (0,), root).values()
    assert not (steps.write or steps.undo or steps.wanted)
    with holding(of_card(("multiprocessors", "64")), (0,), root):
        assert settings.now == before


@pytest.mark.usefixtures("settings")
def test_the_nearest_clock_is_taken(root: Path) -> None:
    (steps,) = checked(of_card(("clock", "1.004GHz")), (0,), root).values()
    assert steps.write == [(CLOCK, "1005")]


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("control", "text", "said"),
    [
        ("power-cap", "100W", "--power-cap 100 W is out of its range, 200 to 700 W"),
        ("clock", "2.5GHz", "--clock 2.5 GHz is out of its range, 0.21 to 1.98 GHz"),
        ("multiprocessors", "132", "--multiprocessors 132 is out of its range, 8 to 128"),
        ("multiprocessors", "66", "66 cannot be had: .* 8 to 128, in steps of 8, of its 132"),
    ],
)
def test_values_that_a_card_has_not(root: Path, control: ControlName, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        checked(of_card((control, text)), (0,), root)
    assert "targets --controls" in (caught.value.hint or "")


def test_a_clock_that_is_far_from_all_is_refused(
    root: Path, settings: CardSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings["clock"]
    monkeypatch.setattr("pynvml.nvmlDeviceGetSupportedGraphicsClocks", lambda *_: [1980, 210])
    with pytest.raises(UsageError, match="1 GHz cannot be had: the nearest .* is 210 MHz"):
        checked(of_card(("clock", "1GHz")), (0,), root)


def test_who_is_no_administrator_is_refused_before(settings: CardSettings, tmp_path: Path) -> None:
    root = tree(tmp_path / "other", SERVER | {"proc/self/status": "CapEff:\t0\n"})
    for one in BOTH:
        with pytest.raises(TargetError, match=f"{one.control} of the NVIDIA H100.*administrator"):
            checked([one], (0,), root)
    assert checked(of_card(("multiprocessors", "64")), (0,), root)
    assert settings["limit"] == 700_000


def test_what_nvml_refuses_is_told(settings: CardSettings, root: Path) -> None:
    settings.set(refused={"nvmlDeviceSetGpuLockedClocks": "Insufficient Permissions"})
    with (
        pytest.raises(TargetError, match="clock=1.5GHz was refused: NVML: Insufficient Perm"),
        holding(BOTH, (0,), root),
    ):
        pytest.fail("nothing is measured")
    assert settings["limit"] == 700_000, "what was set before is given back"


def test_a_clock_that_stays_above_is_told(
    settings: CardSettings, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SETTLE_S", 0.1)
    settings.set(stuck=True)
    with (
        pytest.raises(TargetError, match="clock=1.5GHz does not hold.*'1755'.*at most 1500"),
        holding(BOTH, (0,), root),
    ):
        pytest.fail("nothing is measured")
    assert (settings["limit"], settings["locked"]) == (700_000, None)


def test_a_limit_that_somebody_else_set_is_told(settings: CardSettings, root: Path) -> None:
    with (
        pytest.raises(TargetError, match="power-cap=350W does not hold"),
        holding(BOTH, (0,), root),
    ):
        settings.set(limit=500_000)
    assert settings["limit"] == 700_000


def test_what_cannot_be_given_back_is_told_with_the_command(
    settings: CardSettings, root: Path
) -> None:
    with (
        pytest.raises(TargetError, match="could not be restored: NVML: GPU is lost") as caught,
        holding(BOTH[1:], (0,), root),
    ):
        settings.set(refused={"nvmlDeviceResetGpuLockedClocks": "GPU is lost"})
    assert "nvidia-smi --id=GPU-01234567-89ab-cdef-0123-456789abcdef --reset-gpu-clocks" in (
        caught.value.hint or ""
    )


def test_commands_that_write_the_same() -> None:
    assert by_hand(CAP, "350000").endswith(" --power-limit=350")
    assert by_hand(CLOCK, "1500").endswith(" --lock-gpu-clocks=1500")
    assert by_hand("/sys/a/file", "3") == "/sys/a/file 3"
    assert by_hand("/sys/a/folder", "") == "/sys/a/folder"


def test_settings_that_cannot_be_read_are_none(settings: CardSettings) -> None:
    assert (read(CAP), read(CLOCK)) == ("700000", "1755")
    settings.set(refused={"nvmlInit": "Driver Not Loaded"})
    assert read(CAP) is None


def test_neither_of_two_settings_is_lost(settings: CardSettings) -> None:
    """What gives back the power cap and what gives back the clock are processes of their own."""

    def lost(name: str, key: str, values: Mapping[str, object]) -> Sequence[str]:
        found: list[str] = []
        for text, kept in values.items():
            write(setting_of(H100.identity, name), text)
            if settings[key] != kept:
                found.append(text)
        return found

    caps = {str(limit): limit for limit in range(200_000, 200_100)}
    clocks = {str(clock): [clock, clock] for clock in range(1000, 1100)}
    with ThreadPoolExecutor(2) as pool:
        capped = pool.submit(lost, "power-cap", "limit", caps)
        locked = pool.submit(lost, "clock", "locked", clocks)
        assert not capped.result() and not locked.result()


def test_a_killed_process_leaves_nothing_held(settings: CardSettings, root: Path) -> None:
    script = (
        "import sys, time\n"
        "from dataclasses import replace\n"
        "from pathlib import Path\n"
        "from tilewright.hardware.holding import holding, parse_held\n"
        "from tilewright.testing.simulated_driver import H100\n"
        "held = [replace(parse_held(*each.split('=')), gpu=H100) for each in sys.argv[2:]]\n"
        "with holding(held, (0, 1), Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(root), "power-cap=350W", "clock=1.5GHz"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert (settings["limit"], settings["locked"]) == (350_000, [1500, 1500])
        process.send_signal(signal.SIGKILL)
    ends_s = time.monotonic() + 20
    while (settings["limit"], settings["locked"]) != (700_000, None):
        assert time.monotonic() < ends_s
        time.sleep(0.02)
