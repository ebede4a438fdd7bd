"""Meters against made-up sysfs trees, a made-up NVML, small commands and a made-up clock."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakes.nvml import Clock, FakeNvml
from tilewright.core.errors import InternalError, UsageError
from tilewright.hardware.meters import (
    Meter,
    MeterLost,
    NullMeter,
    find_cpu_meter,
    named_meter,
    nvml_meter,
)
from tilewright.hardware.meters.base import (
    Counter,
    CountingMeter,
    PollingMeter,
    integrated_j,
)
from tilewright.hardware.meters.command import command_meter
from tilewright.hardware.meters.sysfs import board_meter, rapl_meter

VIRTUAL = "processor : 0\nflags : fpu sse2 hypervisor\n\n"


def reason(meter: Meter) -> str:
    lost = meter.unavailable()
    return "" if lost is None else lost.reason


def domain(root: Path, folder: str, name: str, energy_uj: int, largest_uj: int = 10**9) -> Path:
    path = root / "sys/class/powercap" / folder
    path.mkdir(parents=True)
    (path / "name").write_text(name + "\n")
    (path / "energy_uj").write_text(f"{energy_uj}\n")
    (path / "max_energy_range_uj").write_text(f"{largest_uj}\n")
    return path


def test_rapl_adds_up_packages_and_their_memory_but_nothing_twice(tmp_path: Path) -> None:
    clock = Clock()
    first = domain(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    cores = domain(tmp_path, "intel-rapl:0:0", "core", 1_000_000)
    memory = domain(tmp_path, "intel-rapl:0:1", "dram", 7_000_000)
    second = domain(tmp_path, "intel-rapl:1", "package-1", 999_999_990)
    domain(tmp_path, "intel-rapl:2", "psys", 0)
    domain(tmp_path, "intel-rapl-mmio:0", "package-0", 0)
    meter = rapl_meter(tmp_path, clock)
    assert meter.unavailable() is None
    assert meter.method == "powercap: package-0, package-1, dram"
    meter.start()
    (first / "energy_uj").write_text("25000000")
    (cores / "energy_uj").write_text("9000000")
    (memory / "energy_uj").write_text("9000000")
    (second / "energy_uj").write_text("7999989")  # wrapped: 10 µJ up to its end, 0, and on
    clock.now_s += 2.0
    reading = meter.stop()
    assert reading.energy_j == pytest.approx(20 + 2 + 8)
    assert reading.power_w == pytest.approx(15)
    assert reading.reason == ""


def test_rapl_without_permission_says_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0", 1)
    usual = Path.read_text

    def refuse(path: Path, *given: Any, **named: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, *given, **named)

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(MeterLost, match="may not be read"):
        rapl_meter(tmp_path).start()
    found = find_cpu_meter(tmp_path)
    assert isinstance(found, NullMeter)
    assert "may not be read" in found.lost.message and "chmod a+r" in (found.lost.hint or "")


@pytest.mark.parametrize("said", ["", "abc", "-5", "1.5", "1000000001"])
def test_a_counter_that_says_nonsense_gives_no_energy(tmp_path: Path, said: str) -> None:
    path = domain(tmp_path, "intel-rapl:0", "package-0", 5)
    clock = Clock()
    meter = rapl_meter(tmp_path, clock)
    meter.start()
    clock.now_s += 1
    (path / "energy_uj").write_text(said)
    reading = meter.stop()
    assert reading.energy_j is None and reading.power_w is None
    assert str(path) in reading.reason


def test_a_counter_that_vanishes_or_stands_still_or_runs_away(tmp_path: Path) -> None:
    clock = Clock()
    path = domain(tmp_path, "intel-rapl:0", "package-0", 5, 10**12)
    other = domain(tmp_path, "intel-rapl:1", "package-1", 5, 10**12)
    meter = rapl_meter(tmp_path, clock)
    meter.start()
    clock.now_s += 1
    assert "stood still" in meter.stop().reason
    meter.start()
    clock.now_s += 1
    (path / "energy_uj").write_text(str(10**11))
    assert "cannot be" in meter.stop().reason, "100 kW"
    meter.start()
    (path / "energy_uj").write_text(str(10**11 + 10**6))
    (other / "energy_uj").unlink()
    reading = meter.stop()
    assert reading.energy_j is None and "cannot be read" in reading.reason
    assert "cannot be read" in reason(meter)
    with pytest.raises(MeterLost):
        meter.start()


def test_no_rapl_says_why(tmp_path: Path) -> None:
    assert "driver" in reason(rapl_meter(tmp_path)) and "modprobe" in reason(rapl_meter(tmp_path))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(VIRTUAL)
    assert "virtual machine" in reason(rapl_meter(tmp_path))
    tree = tmp_path / "sys/class/powercap"
    tree.mkdir(parents=True)
    (tree / "intel-rapl:0").symlink_to(tmp_path / "masked")
    assert "containers hide them" in reason(rapl_meter(tmp_path))


def test_no_sensor_at_all_says_why(tmp_path: Path) -> None:
    meter = find_cpu_meter(tmp_path)
    assert "sys/class/powercap" in reason(meter) and "sys/class/hwmon" in reason(meter)
    meter.start()
    reading = meter.stop()
    assert reading.energy_j is None and reading.power_w is None
    assert reading.reason == reason(meter)


@given(st.floats(0, 1e6), st.floats(0, 1e5), st.floats(1e5, 1e6))
def test_a_counter_that_wraps_once_counts_right(start: float, used: float, span: float) -> None:
    values, clock = iter((start % span, (start + used) % span)), Clock()
    counter = Counter(lambda: next(values), span)
    meter = CountingMeter(method="one", update_s=0.0, counters=[counter], clock=clock)
    meter.start()
    clock.now_s += 1e6
    counted = meter.stop().energy_j or 0.0
    # a whole turn looks like none
    assert min(abs(counted - used), abs(counted + span - used)) <= 1e-6 * span


def test_nvml_falls_back_to_polling_power() -> None:
    clock, library = Clock(), FakeNvml(counter=False)
    meter = nvml_meter(0, library, clock)
    assert isinstance(meter, PollingMeter) and "polled" in meter.method
    meter.start()
    with pytest.raises(InternalError, match="already"):
        meter.start()
    clock.now_s += 2
    assert meter.stop().energy_j == pytest.approx(300)


@pytest.mark.parametrize(
    ("milliwatts", "said"), [(-1, "GPU is lost"), (2**32 - 1, "cannot be"), (float("nan"), "nan W")]
)
def test_a_gpu_that_is_lost_on_the_way_gives_no_energy(milliwatts: int, said: str) -> None:
    clock, library = Clock(), FakeNvml(counter=False)
    meter = nvml_meter(0, library, clock)
    meter.start()
    clock.now_s += 2
    library.milliwatts = milliwatts
    reading = meter.stop()
    assert reading.energy_j is None and said in reading.reason
    assert reading.window_s == 2
    assert said in reason(meter)


@pytest.mark.parametrize("gpus", [0, -1])
def test_nvml_without_a_gpu_says_so(gpus: int) -> None:
    assert "NVML gives no GPU 0" in reason(nvml_meter(0, FakeNvml(gpus=gpus)))


def test_nvml_that_answers_nothing_says_so() -> None:
    library = FakeNvml(counter=False)
    library.milliwatts = -1
    assert "GPU is lost" in reason(nvml_meter(0, library))


def test_nvml_that_is_not_installed_says_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.hardware.gpus.find_spec", lambda _name: None)
    assert "pip install 'tilewright[nvml]'" in reason(nvml_meter())


def channel(folder: Path, number: int, label: str, millivolts: int, milliamperes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text("ina3221\n")
    (folder / f"in{number}_label").write_text(label + "\n")
    (folder / f"in{number}_input").write_text(f"{millivolts}\n")
    (folder / f"curr{number}_input").write_text(f"{milliamperes}\n")


def test_a_board_is_measured_where_its_supply_comes_in(tmp_path: Path) -> None:
    clock, folder = Clock(), tmp_path / "sys/class/hwmon/hwmon3"
    channel(folder, 1, "VDD_IN", 5000, 2000)
    channel(folder, 2, "VDD_CPU_GPU_CV", 900, 1000)
    meter = board_meter(tmp_path, clock)
    assert meter.method == "hwmon: VDD_IN"
    meter.start()
    clock.now_s += 3
    assert meter.stop().energy_j == pytest.approx(30)


def test_rails_are_added_up_where_none_feeds_the_board(tmp_path: Path) -> None:
    clock, tree = Clock(), tmp_path / "sys/class/hwmon"
    channel(tree / "hwmon0", 1, "VDD_CPU", 1000, 3000)
    channel(tree / "hwmon0", 2, "NC", 1000, 500)
    (tree / "hwmon0/in2_enable").write_text("0")
    channel(tree / "hwmon0", 4, "sum of shunt voltages", 7, 3500)
    (tree / "hwmon0/curr3_input").write_text("100")  # a current without a voltage
    for name, chip in (("hwmon1", "ina226"), ("hwmon2", "corsairpsu")):
        (tree / name).mkdir()
        (tree / name / "name").write_text(chip)
        (tree / name / "power1_input").write_text("4000000")
    (tree / "hwmon9").write_text("no folder")
    assert find_cpu_meter(tmp_path).method == "hwmon: VDD_CPU + ina226 1"
    meter = board_meter(tmp_path, clock)
    meter.start()
    clock.now_s += 2
    assert meter.stop().energy_j == pytest.approx(14)


@pytest.mark.parametrize(("said", "why"), [("abc", "no number"), (None, "cannot be read")])
def test_a_board_that_stops_telling_gives_no_energy(
    tmp_path: Path, said: str | None, why: str
) -> None:
    clock, folder = Clock(), tmp_path / "sys/class/hwmon/hwmon0"
    channel(folder, 1, "VDD_IN", 5000, 2000)
    meter = board_meter(tmp_path, clock)
    meter.start()
    clock.now_s += 3
    path = folder / "curr1_input"
    path.unlink()
    if said is not None:
        path.write_text(said)
    reading = meter.stop()
    assert reading.energy_j is None and why in reading.reason and str(path) in reading.reason


def test_a_sensor_without_power_is_none(tmp_path: Path) -> None:
    clock = Clock()
    channel(tmp_path / "sys/class/hwmon/hwmon0", 1, "VDD_IN", 0, 0)
    meter = board_meter(tmp_path, clock)
    meter.start()
    clock.now_s += 3
    assert "no power" in meter.stop().reason


def test_no_board_says_why(tmp_path: Path) -> None:
    assert "no " in reason(board_meter(tmp_path))
    (tmp_path / "sys/class/hwmon").mkdir(parents=True)
    assert "no INA sensor" in reason(board_meter(tmp_path))


@given(st.lists(st.floats(0, 500), min_size=2, max_size=20), st.floats(0.01, 10))
def test_polled_power_adds_up_between_its_least_and_most(watts: list[float], step: float) -> None:
    samples = [(index * step, power) for index, power in enumerate(watts)]
    window = step * (len(watts) - 1)
    total = integrated_j(samples)
    assert min(watts) * window <= total * (1 + 1e-9) + 1e-9
    assert total <= max(watts) * window * (1 + 1e-9) + 1e-9


def test_what_a_slow_sensor_takes_is_not_part_of_the_window() -> None:
    clock = Clock()

    def slow_w() -> float:
        clock.now_s += 0.5
        return 10.0

    meter = PollingMeter(method="slow", update_s=60.0, power_w=slow_w, clock=clock)
    meter.start()
    clock.now_s += 2
    reading = meter.stop()
    assert reading.window_s == 2 and reading.energy_j == pytest.approx(20)


def test_a_sensor_is_asked_again_and_again() -> None:
    asked = threading.Event()
    watts = iter([10.0, 20.0])

    def power_w() -> float:
        power = next(watts, None)
        if power is None:
            asked.set()
            raise MeterLost("It went away.")
        return power

    meter = PollingMeter(method="polled", update_s=0.001, power_w=power_w)
    meter.start()
    assert asked.wait(10), "by the thread, before the window ends"
    assert meter.stop().reason == "It went away."


def script(folder: Path, *lines: str) -> str:
    """A command line that runs a shell script, which prints what it is told."""
    path = folder / "meter.sh"
    path.write_text("\n".join(lines) + "\n")
    return f"sh '{path}'"


def test_a_command_prints_watts(tmp_path: Path) -> None:
    clock = Clock()
    meter = command_meter(script(tmp_path, "echo 12.5 W 60"), clock)
    assert isinstance(meter, PollingMeter) and meter.method == "command: sh"
    assert meter.update_s == 60
    meter.start()
    clock.now_s += 4
    assert meter.stop().energy_j == pytest.approx(50)
    usual = command_meter(script(tmp_path, "echo 12.5"), clock)
    assert isinstance(usual, PollingMeter) and usual.update_s == 1


def test_a_command_prints_joules(tmp_path: Path) -> None:
    clock = Clock()
    line = script(tmp_path, f"cat '{tmp_path}/counter'")
    (tmp_path / "counter").write_text("1000.5 J 0.01")
    meter = command_meter(line, clock)
    assert isinstance(meter, CountingMeter) and meter.update_s == 0.01
    meter.start()
    clock.now_s += 2
    (tmp_path / "counter").write_text("1030.5 J 0.01")
    assert meter.stop().energy_j == pytest.approx(30)
    meter.start()
    clock.now_s += 2
    (tmp_path / "counter").write_text("1030.5 W")
    assert "printed W after J" in meter.stop().reason
    (tmp_path / "counter").unlink()
    assert "ended with 1" in reason(meter)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("echo warm", "'warm', which is no reading"),
        ("echo", "no reading"),
        ("echo 12 kW", "'12 kW', which is no reading"),
        ("echo inf W", "no reading"),
        ("echo 12 W 0", "no reading"),
        ("echo 12 W soon", "no reading"),
        ("echo -3", "cannot be"),
        (r"printf '\377\376'", "no reading"),
        ("echo no sensor >&2; exit 3", "ended with 3: no sensor"),
    ],
)
def test_a_command_that_is_no_meter_says_why(tmp_path: Path, line: str, said: str) -> None:
    assert said in reason(command_meter(script(tmp_path, line)))


def test_a_command_that_is_not_there_or_hangs_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot be run: No such file" in reason(command_meter("no-such-power-meter"))
    monkeypatch.setattr("tilewright.hardware.meters.command._TIMEOUT_S", 0.05)
    assert "did not answer" in reason(command_meter("sleep 5"))


@pytest.mark.parametrize("line", ["", " ", "'open", "''"])
def test_a_command_line_that_is_none(line: str) -> None:
    with pytest.raises(UsageError):
        command_meter(line)


def test_meters_have_names(tmp_path: Path) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0", 1)
    channel(tmp_path / "sys/class/hwmon/hwmon0", 1, "VDD_IN", 5000, 2000)
    methods = {name: named_meter(name, tmp_path).method for name in ("auto", "powercap", "hwmon")}
    assert methods == {
        "auto": "powercap: package-0",
        "powercap": "powercap: package-0",
        "hwmon": "hwmon: VDD_IN",
    }
    assert "No meter" in reason(named_meter("none"))
    assert named_meter(f"command:{script(tmp_path, 'echo 5 J')}").method == "command: sh"
    for wrong in ("rapl", "powercap:0", "nvml:", "nvml:one", "command", "", "Auto"):
        with pytest.raises(UsageError, match="power meter"):
            named_meter(wrong, tmp_path)


def test_nvml_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def made(index: int) -> Meter:
        asked.append(index)
        return nvml_meter(index, FakeNvml(gpus=3))

    monkeypatch.setattr("tilewright.hardware.meters.registry.nvml_meter", made)
    assert named_meter("nvml").method.endswith("GPU 0")
    assert named_meter("nvml:2").method.endswith("GPU 2")
    assert asked == [0, 2]
