"""Controls are held while a block runs, and given back whatever becomes of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.fakes.machine_files import CPUS, RAPL, SERVER, tree
from tilewright.core.errors import TargetError, UsageError
from tilewright.hardware import holding as module
from tilewright.hardware import restoring
from tilewright.hardware.holding import (
    ControlName,
    Held,
    checked,
    holding,
    parse_held,
    usable_cpus,
)

CAP = f"{RAPL}/constraint_0_power_limit_uw"
SCALING = tuple(
    f"{CPUS}/cpu{cpu}/cpufreq/scaling_{end}_freq" for cpu in (0, 1) for end in ("min", "max")
)


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.hardware.probe.process_affinity", lambda: frozenset(range(4)))


def values(root: Path, *names: str) -> list[str]:
    return [(root / name).read_text() for name in names]


@pytest.mark.parametrize(
    ("control", "text", "told"),
    [
        ("clock", "1.5GHz", "clock=1.5GHz"),
        ("clock", "1500 mhz", "clock=1.5GHz"),
        ("power-cap", "65W", "power-cap=65W"),
        ("cache-ways", "4", "cache-ways=4"),
        ("governor", "performance", "governor=performance"),
        ("turbo", "off", "turbo=off"),
        ("smt", "on", "smt=on"),
        ("multiprocessors", "64", "multiprocessors=64"),
    ],
)
def test_values_of_controls(control: ControlName, text: str, told: str) -> None:
    assert parse_held(control, text).text == told


@pytest.mark.parametrize(
    ("control", "text"),
    [
        ("clock", "2"),
        ("clock", "0GHz"),
        ("power-cap", "65"),
        ("cache-ways", "4.5"),
        ("clock", ""),
        ("multiprocessors", "50%"),
        ("multiprocessors", "0"),
        ("governor", "3"),
        ("governor", ""),
        ("turbo", "1"),
        ("smt", "ON"),
    ],
)
def test_texts_that_are_no_values(control: ControlName, text: str) -> None:
    with pytest.raises(UsageError, match=f"--{control}") as caught:
        parse_held(control, text)
    assert f"--{control} " in (caught.value.hint or "")


def test_clocks_and_power_are_held_and_given_back(tmp_path: Path) -> None:
    root = tree(tmp_path, SERVER)
    before = values(root, *SCALING, CAP)
    with holding([parse_held("clock", "2GHz"), parse_held("power-cap", "65W")], (0, 1), root):
        assert values(root, *SCALING) == ["2000000"] * 4
        assert values(root, CAP) == ["65000000"]
    assert values(root, *SCALING, CAP) == before


WORDS = [
    parse_held("smt", "off"),
    parse_held("governor", "performance"),
    parse_held("turbo", "off"),
]
SMT, TURBO = f"{CPUS}/smt/control", f"{CPUS}/intel_pstate/no_turbo"
GOVERNORS = tuple(f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor" for cpu in (0, 1))


def test_governor_turbo_and_smt_are_held_and_given_back(tmp_path: Path) -> None:
    """CPUs that SMT keeps off have no files of their own meanwhile, and are left out."""
    root = tree(tmp_path, SERVER)
    before = values(root, SMT, *GOVERNORS, TURBO, *SCALING)
    with holding([*WORDS, parse_held("clock", "2GHz")], (0, 1, 2, 3), root):
        assert values(root, SMT, *GOVERNORS, TURBO) == ["off", "performance", "performance", "1"]
        assert values(root, *SCALING) == ["2000000"] * 4
    assert values(root, SMT, *GOVERNORS, TURBO, *SCALING) == before


def test_turbo_of_processors_that_call_it_boost(tmp_path: Path) -> None:
    boost = f"{CPUS}/cpufreq/boost"
    files = {name: text for name, text in SERVER.items() if name != TURBO}
    root = tree(tmp_path, files | {boost: "1\n"})
    with holding([parse_held("turbo", "off")], (0,), root):
        assert values(root, boost) == ["0"]
    assert values(root, boost) == ["1"]


@pytest.mark.parametrize(
    ("files", "held", "error", "said"),
    [
        ({SMT: "notsupported"}, ("smt", "off"), TargetError, "each core has one thread"),
        ({SMT: "forceoff"}, ("smt", "on"), TargetError, "off until the next start"),
        ({}, ("governor", "ondemand"), UsageError, "performance, powersave"),
        ({TURBO: ""}, ("turbo", "off"), TargetError, "the turbo cannot be set"),
        ({}, ("governor", "performance"), TargetError, "cpu2/cpufreq/scaling_governor is missing"),
    ],
)
def test_words_that_a_machine_does_not_take(
    tmp_path: Path,
    files: dict[str, str],
    held: tuple[ControlName, str],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        checked([parse_held(*held)], (0, 1, 2), tree(tmp_path, SERVER | files))


def test_without_smt_the_first_cpu_of_each_core_is_left(tmp_path: Path) -> None:
    root = tree(tmp_path, SERVER)
    assert usable_cpus(WORDS, (0, 1, 2, 3), root) == (0, 1)
    assert usable_cpus(WORDS[1:], (2, 3), root) == (2, 3)
    with pytest.raises(TargetError, match="turns off all CPUs that this process may use, 2, 3"):
        checked(WORDS, (2, 3), root)


def test_ways_of_the_cache_are_those_of_a_group(tmp_path: Path) -> None:
    """Which the kernel removes with what is in it; an ordinary folder stays, and that is told."""
    root = tree(tmp_path, SERVER)
    group = root / f"sys/fs/resctrl/tilewright-{os.getpid()}"
    with (
        pytest.raises(TargetError, match="could not be restored.*not empty") as caught,
        holding([parse_held("cache-ways", "4")], (0, 1), root),
    ):
        assert (group / "schemata").read_text() == "L3:0=f\n"
        assert (group / "cpus_list").read_text() == "0,1\n"
    assert str(group) in (caught.value.hint or "")
    for path in group.iterdir():
        path.unlink()
    (steps,) = checked([parse_held("cache-ways", "4")], (0, 1), root).values()
    assert [restoring._restore(path, text) for path, text in steps.undo] == [""]
    assert not group.exists()


def test_the_lowest_clock_is_never_above_the_highest(tmp_path: Path) -> None:
    """Else the kernel refuses the write: each list is gone through as the kernel would."""
    root = tree(tmp_path, SERVER)
    for hertz in (0.5e9, 3.6e9):
        (steps,) = checked([Held(control="clock", value=hertz)], (0,), root).values()
        now = {name: int((root / name).read_text()) for name in SCALING[:2]}
        for path, text in (*steps.write, *steps.undo):
            now[str(Path(path).relative_to(root))] = int(text or "")
            least, most = (now[name] for name in SCALING[:2])
            assert least <= most
        assert list(now.values()) == [800000, 3500000]


def test_an_error_in_the_block_gives_back_too(tmp_path: Path) -> None:
    root = tree(tmp_path, SERVER)
    held = [parse_held("power-cap", "65W")]
    with pytest.raises(ValueError, match="inside"), holding(held, (0,), root):
        raise ValueError("inside")
    assert values(root, CAP) == [SERVER[CAP]]


def test_an_error_in_the_block_says_what_could_not_be_given_back(tmp_path: Path) -> None:
    root = tree(tmp_path, SERVER)
    cap = root / CAP
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        holding([parse_held("power-cap", "65W")], (0,), root),
    ):
        cap.unlink()
        cap.mkdir()
        raise KeyboardInterrupt
    (note,) = caught.value.__notes__
    assert "could not be restored" in note and f"{cap} 205000000" in note


def test_what_somebody_else_set_meanwhile_is_told(tmp_path: Path) -> None:
    root = tree(tmp_path, SERVER)
    with (
        pytest.raises(TargetError, match="power-cap=65W does not hold"),
        holding([parse_held("power-cap", "65W")], (0,), root),
    ):
        (root / CAP).write_text("90000000")
    assert values(root, CAP) == [SERVER[CAP]]


def test_packages_alone_have_a_power_cap(tmp_path: Path) -> None:
    """The platform's domain has files like theirs; some kernels do not know the most."""
    platform = "sys/class/powercap/intel-rapl:1"
    files = {f"{platform}/name": "psys", f"{platform}/constraint_0_power_limit_uw": "1"}
    root = tree(tmp_path, SERVER | files | {f"{RAPL}/constraint_0_max_power_uw": "0"})
    (steps,) = checked([parse_held("power-cap", "500W")], (0,), root).values()
    assert steps.write == [(str(root / CAP), "500000000")]


def test_cpus_of_another_group_of_resctrl_are_left_there(tmp_path: Path) -> None:
    root = tree(tmp_path, SERVER | {"sys/fs/resctrl/mine/cpus_list": "0-1\n"})
    with pytest.raises(TargetError, match="in a group of resctrl already"):
        checked([parse_held("cache-ways", "4")], (0, 1), root)


def test_a_value_that_does_not_hold_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path, SERVER)
    monkeypatch.setattr(module, "_NEAR", -1.0)  # as if the kernel had taken another value
    with (
        pytest.raises(TargetError, match="clock=2GHz does not hold"),
        holding([parse_held("clock", "2GHz")], (0, 1), root),
    ):
        pytest.fail("nothing is measured")
    assert values(root, *SCALING) == [SERVER[name] for name in SCALING]


def test_what_the_kernel_refuses_is_told(tmp_path: Path) -> None:
    root = tree(tmp_path, SERVER)
    (root / f"sys/fs/resctrl/tilewright-{os.getpid()}").touch()
    with (
        pytest.raises(TargetError, match="cache-ways=4 was refused"),
        holding([parse_held("cache-ways", "4")], (0,), root),
    ):
        pytest.fail("nothing is measured")


def test_what_cannot_be_given_back_is_told_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_compare", lambda *_: None)
    root = tree(tmp_path, SERVER)
    cap = root / CAP
    with (
        pytest.raises(TargetError, match="could not be restored") as caught,
        holding([parse_held("power-cap", "65W")], (0,), root),
    ):
        cap.unlink()
        cap.mkdir()
    assert f"{cap} 205000000" in (caught.value.hint or "")


def test_controls_that_cannot_be_set(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="the clock cannot be set: the kernel tells") as caught:
        checked([parse_held("clock", "2GHz")], (0,), tmp_path)
    assert "targets --controls" in (caught.value.hint or "")
    root = tree(tmp_path, SERVER)
    for control, text, span in (
        ("clock", "5GHz", "0.4 to 3.7 GHz"),
        ("power-cap", "500W", "0 to 413 W"),
        ("cache-ways", "12", "1 to 11 ways"),
    ):
        with pytest.raises(UsageError, match=f"--{control} .* out of its range, {span}"):
            checked([parse_held(control, text)], (0, 1), root)  # pyright: ignore[reportArgumentType]


def test_a_killed_process_leaves_nothing_held(tmp_path: Path) -> None:
    root = tree(tmp_path, SERVER)
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tilewright.hardware import holding\n"
        "holding.controls = lambda *_: ()\n"
        "held = [holding.parse_held(*each.split('=')) for each in sys.argv[2:]]\n"
        "with holding.holding(held, (0, 1), Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    words = ("smt=off", "governor=performance", "turbo=off", "clock=2GHz")
    command = [sys.executable, "-c", script, str(root), *words]
    names = (SMT, *GOVERNORS, TURBO, *SCALING)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert values(root, *names[:4]) == ["off", "performance", "performance", "1"]
        assert values(root, *SCALING) == ["2000000"] * 4
        process.send_signal(signal.SIGKILL)
    ends_s = time.monotonic() + 20
    while values(root, *names) != [SERVER[name] for name in names]:
        assert time.monotonic() < ends_s
        time.sleep(0.02)
