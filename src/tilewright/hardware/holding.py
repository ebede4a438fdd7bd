"""Controls of this machine that are held at a value while something is measured: SMT, the governor
of the clocks, turbo, the clock, the power cap, the ways of the last-level cache; of a GPU its clock
and its power cap. The multiprocessors that kernels of a GPU get are the driver's of each process
(`compiler.cuda.nvidia`), so that only their number is checked here.

    with holding([Held(control="clock", value=2e9)], cpus=(0, 1)):
        ...                                  both CPUs are kept at 2 GHz until the block ends

What was there before is written back by a process of its own (`hardware.restoring`), which begins
first and waits until this one says so or is gone, by `kill -9`, too. `Steps` say what is to be
done; they are found by reading, before anything is written.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Literal

from tilewright.core.errors import TargetError, UsageError
from tilewright.core.settings import child_environment
from tilewright.hardware.cards import Card
from tilewright.hardware.controls import controls, may_write
from tilewright.hardware.gpu_controls import MULTIPROCESSORS, gpu_controls
from tilewright.hardware.probe import core_groups, read_text
from tilewright.hardware.settable import POWER_CAP, UNLOCKED, by_hand, read, setting_of, write

ControlName = Literal[
    "smt", "governor", "turbo", "clock", "power-cap", "cache-ways", "multiprocessors"
]

CONTROLS: Mapping[str, ControlName] = {
    "smt": "smt",
    "governors": "governor",
    "turbo": "turbo",
    "clocks": "clock",
    "power_caps": "power-cap",
    "cache_ways": "cache-ways",
}
"""Controls by what designs call their values, in the order in which they are set: a CPU has no
files while SMT keeps it off, and a governor decides which clocks there are."""

GPU_CONTROLS: Mapping[str, ControlName] = {
    "clocks": "clock",
    "power_caps": "power-cap",
    "multiprocessors": "multiprocessors",
}
"""The same of GPUs."""

USUAL = "usual"
"""The text that leaves a control as it is."""

_MODULE = "tilewright.hardware.restoring"
_CPUS, _CAPS = "sys/devices/system/cpu", "sys/class/powercap"
_RESCTRL, _SMT = "sys/fs/resctrl", f"{_CPUS}/smt/control"
_NEAR = 0.02
"""A value that reads back so far from what was written counts as held: kernels round."""
_AT_MOST = "at most "
"""A clock that idles is below the one that it is locked at."""
_SETTLE_S, _POLL_S = 1.0, 0.02
"""How long a clock that was faster may take to come down, and how often it is looked at."""
_RESTORE_S = 10.0
_ADVICE = "`tilewright targets --controls` lists what can be set here, and in which range."


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Held:
    """A control and its value: the clock in hertz, the power cap of each package in watts, the
    number of ways of the last-level cache that programs on the measuring CPUs may fill, the number
    of multiprocessors, or a word: the governor, and whether turbo and SMT are `on` or `off`. It is
    this machine's CPU's where no `gpu` is named."""

    control: ControlName
    value: float | str
    gpu: Card | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """`clock=2GHz`, `power-cap=65W`, `cache-ways=4`, `turbo=off`."""
        if isinstance(self.value, str):
            return f"{self.control}={self.value}"
        scale, unit = _UNITS[self.control]
        return f"{self.control}={self.value / scale:g}{unit}"


_UNITS: Mapping[ControlName, tuple[float, str]] = {
    "clock": (1e9, "GHz"),
    "power-cap": (1.0, "W"),
    "cache-ways": (1.0, ""),
    "multiprocessors": (1.0, ""),
}
_KNOWN_AS: Mapping[ControlName, str] = {
    "clock": "clock",
    "power-cap": "power cap",
    "cache-ways": "cache ways",
    "governor": "frequency governor",
    "turbo": "turbo",
    "smt": "smt siblings",
}
"""What the rows of `controls` begin with."""
_GIVEN: Mapping[ControlName, tuple[str, str]] = {
    "clock": (r"(\d+(?:\.\d+)?) ?(GHz|MHz)", "1.5GHz"),
    "power-cap": (r"(\d+(?:\.\d+)?) ?(W)", "65W"),
    "cache-ways": (r"(\d+)()", "4"),
    "multiprocessors": (r"(\d+)()", "64"),
}
_WORDS: Mapping[ControlName, tuple[str, str]] = {
    "governor": (r"[a-z_]+", "performance"),
    "turbo": (r"on|off", "off"),
    "smt": (r"on|off", "off"),
}
"""What is a word of a control, and an example; a machine has its own governors."""
_FACTORS = {"ghz": 1e9, "mhz": 1e6, "w": 1.0, "": 1.0}


def parse_held(control: ControlName, text: str) -> Held:
    """`1.5GHz`, `65W`, `4`, `performance` or `off`, by the control. Raises UsageError for anything
    else."""
    if control in _WORDS:
        pattern, example = _WORDS[control]
        if re.fullmatch(pattern, text.strip()):
            return Held(control=control, value=text.strip())
        raise UsageError(f"--{control} {text!r} is no value of it.", hint=f"--{control} {example}")
    pattern, example = _GIVEN[control]
    found = re.fullmatch(pattern, text.strip(), re.IGNORECASE | re.ASCII)
    value = float(found[1]) * _FACTORS[found[2].lower()] if found else 0.0
    if not value:
        raise UsageError(f"--{control} {text!r} is no value of it.", hint=f"--{control} {example}")
    return Held(control=control, value=value)


def combinations(texts: Mapping[ControlName, Sequence[str]]) -> tuple[tuple[Held, ...], ...]:
    """Every combination of values of controls, `1.5GHz`; with `usual` one is left as it is, so that
    an empty combination leaves all. Raises UsageError for a text that is no value."""
    ways = [
        [() if text == USUAL else (parse_held(control, text),) for text in each]
        for control, each in texts.items()
    ]
    return tuple(tuple(chain(*each)) for each in product(*ways))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Files and settings to write, in order, (name, text); a name without text is a folder that is
    made. `undo` gives back what was there; a name without text there is a folder that is removed.
    `wanted` is what must be read back, numbers within 2 %, and not above what begins with
    `at most`."""

    write: Sequence[tuple[str, str | None]]
    undo: Sequence[tuple[str, str | None]]
    wanted: Mapping[str, str]


def checked(
    held: Iterable[Held],
    cpus: Sequence[int],
    root: Path = Path("/"),
    writable: Callable[[Path], bool] = may_write,
) -> dict[Held, Steps]:
    """What holding each takes; nothing is written.

    Raises TargetError for a control that this process cannot set, with the reason, UsageError for a
    value out of the control's range.
    """
    found: dict[Held, Steps] = {}
    held = tuple(held)
    cpus = usable_cpus(held, cpus, root)
    for one in held:
        if one.gpu is not None:
            found[one] = _of_gpu(one, one.gpu, root)
            continue
        name = _KNOWN_AS[one.control]
        for row in (row for row in controls(root, writable) if row.name.startswith(name)):
            if not row.settable:
                raise TargetError(f"the {row.name} cannot be set: {row.reason}", hint=_ADVICE)
        found[one] = _STEPS[one.control](one, cpus, root)
    return found


def usable_cpus(
    held: Iterable[Held], cpus: Sequence[int], root: Path = Path("/")
) -> tuple[int, ...]:
    """Which of some CPUs are there while controls are held: with SMT off the first one of each
    core. Raises TargetError where none is."""
    if Held(control="smt", value="off") not in held:
        return tuple(cpus)
    first = {group[0] for group in core_groups(root)}
    left = tuple(cpu for cpu in cpus if cpu in first)
    if not left:
        named = ", ".join(map(str, cpus))
        raise TargetError(
            f"smt=off turns off all CPUs that this process may use, {named}: none is the first of "
            "its core",
            hint=f"Let it use some of these: {', '.join(map(str, sorted(first)))}.",
        )
    return left


def _smt(held: Held, _cpus: Sequence[int], root: Path) -> Steps:
    """Whether cores have their second threads."""
    return _of_files([root / _SMT], str(held.value))


def _governor(held: Held, cpus: Sequence[int], root: Path) -> Steps:
    """What decides about the clock of each CPU."""
    folders = [root / _CPUS / f"cpu{cpu}/cpufreq" for cpu in cpus]
    for folder in folders:
        known = (read_text(folder / "scaling_available_governors") or "").split()
        if known and held.value not in known:
            raise UsageError(
                f"--governor {held.value} is none of this machine's: {', '.join(known)}.",
                hint=_ADVICE,
            )
    return _of_files([folder / "scaling_governor" for folder in folders], str(held.value))


def _turbo(held: Held, _cpus: Sequence[int], root: Path) -> Steps:
    """Whether clocks may be above the nominal one; one of the two files says that they may not."""
    forbids, allows = (root / _CPUS / name for name in ("intel_pstate/no_turbo", "cpufreq/boost"))
    if read_text(forbids) is not None:
        return _of_files([forbids], "0" if held.value == "on" else "1")
    return _of_files([allows], "1" if held.value == "on" else "0")


def _of_files(files: Sequence[Path], text: str) -> Steps:
    """The same text in all of them, then what was there. Raises TargetError for a missing one."""
    for path in files:
        if read_text(path) is None:
            raise TargetError(f"{path} is missing, or cannot be read", hint=_ADVICE)
    return Steps(
        write=[(str(path), text) for path in files],
        undo=[(str(path), (read_text(path) or "").strip()) for path in files],
        wanted={str(path): text for path in files},
    )


def _clock(held: Held, cpus: Sequence[int], root: Path) -> Steps:
    """The lowest and the highest clock of each CPU; the lowest is never above the highest."""
    wanted = round(float(held.value) / 1e3)
    write: list[tuple[str, str | None]] = []
    undo: list[tuple[str, str | None]] = []
    for cpu in cpus:
        folder = root / _CPUS / f"cpu{cpu}/cpufreq"
        least, most = (_number(folder / f"cpuinfo_{end}_freq") for end in ("min", "max"))
        _within(held, (least / 1e6, most / 1e6), wanted / 1e6, "GHz")
        low, high = (str(folder / f"scaling_{end}_freq") for end in ("min", "max"))
        write += [(low, str(least)), (high, str(wanted)), (low, str(wanted))]
        before = [str(_number(Path(name))) for name in (low, high)]
        undo += [(low, str(least)), (high, before[1]), (low, before[0])]
    ends = [str(root / _CPUS / f"cpu{n}/cpufreq/scaling_{e}_freq") for n in cpus for e in _ENDS]
    return Steps(write=write, undo=undo, wanted=dict.fromkeys(ends, str(wanted)))


_ENDS = ("min", "max")


def _power_cap(held: Held, _cpus: Sequence[int], root: Path) -> Steps:
    """The long-term limit of every package."""
    watts = float(held.value)
    text = str(round(watts * 1e6))
    names: list[str] = []
    for package in sorted((root / _CAPS).glob("intel-rapl:?")):
        if not (read_text(package / "name") or "").startswith("package"):
            continue  # such as the whole platform, `psys`
        most = int(read_text(package / "constraint_0_max_power_uw") or "0")
        if most:  # some kernels say 0 where they do not know
            _within(held, (0.0, most / 1e6), watts, "W")
        names.append(str(package / "constraint_0_power_limit_uw"))
    return Steps(
        write=[(name, text) for name in names],
        undo=[(name, str(_number(Path(name)))) for name in names],
        wanted=dict.fromkeys(names, text),
    )


def _cache_ways(held: Held, cpus: Sequence[int], root: Path) -> Steps:
    """A group of its own for what runs on these CPUs, with the lowest ways of each cache."""
    folder = root / _RESCTRL
    masks = (read_text(folder / "schemata") or "").splitlines()
    caches = next((line.strip()[3:] for line in masks if line.strip().startswith("L3:")), "")
    domains = [each.partition("=")[0] for each in caches.split(";") if each]
    if not domains:
        raise TargetError(f"/{_RESCTRL}/schemata tells no ways of an L3 cache", hint=_ADVICE)
    all_ways = int(read_text(folder / "info/L3/cbm_mask") or "0", 16).bit_count()
    least = int(read_text(folder / "info/L3/min_cbm_bits") or "1")
    ways = int(held.value)
    _within(held, (least, all_ways), ways, "ways")
    mask = f"{(1 << ways) - 1:x}"
    group = folder / f"tilewright-{os.getpid()}"
    line = "L3:" + ";".join(f"{domain}={mask}" for domain in domains)
    others = [path for path in folder.glob("*/cpus_list") if (read_text(path) or "").strip()]
    if others:
        raise TargetError(
            f"CPUs are in a group of resctrl already, {others[0].parent}, which they could not be "
            "given back to",
            hint=f"Remove it: rmdir {others[0].parent}",
        )
    return Steps(
        write=[
            (str(group), None),
            (str(group / "schemata"), f"{line}\n"),
            (str(group / "cpus_list"), ",".join(map(str, sorted(cpus))) + "\n"),
        ],
        undo=[(str(group), None)],
        wanted={str(group / "schemata"): line},
    )


_STEPS: Mapping[ControlName, Callable[[Held, Sequence[int], Path], Steps]] = {
    "smt": _smt,
    "governor": _governor,
    "turbo": _turbo,
    "clock": _clock,
    "power-cap": _power_cap,
    "cache-ways": _cache_ways,
}


def _of_gpu(held: Held, card: Card, root: Path) -> Steps:
    """The power limit of a card's board, or the clock of its multiprocessors, the nearest that it
    has. A clock that was locked before is not told by NVML, so that it is unlocked afterwards."""
    control = next(each for each in gpu_controls(card, root) if each.name == held.control)
    if control.reason:
        raise TargetError(
            f"the {held.control} of the {card.name} cannot be set: {control.reason}", hint=_ADVICE
        )
    value = float(held.value) / _UNITS[held.control][0]
    _within(held, (control.least, control.most), value, control.unit)
    if held.control == MULTIPROCESSORS:
        if value % control.step:
            raise UsageError(
                f"--{held.control} {value:g} cannot be had: the {card.name} gives {control.range}, "
                f"of its {card.multiprocessors}.",
                hint=_ADVICE,
            )
        return Steps(write=(), undo=(), wanted={})
    name = setting_of(card.identity, held.control)
    if held.control == POWER_CAP:
        text, before = (str(round(watts * 1e3)) for watts in (value, control.now))
        return Steps(write=[(name, text)], undo=[(name, before)], wanted={name: text})
    nearest = min(control.choices, key=lambda choice: abs(choice - value * 1e3))
    if abs(nearest - value * 1e3) > _NEAR * nearest:
        raise UsageError(
            f"--{held.control} {value:g} GHz cannot be had: the nearest of the {card.name} is "
            f"{nearest} MHz.",
            hint=_ADVICE,
        )
    return Steps(
        write=[(name, str(nearest))],
        undo=[(name, UNLOCKED)],
        wanted={name: f"{_AT_MOST}{nearest}"},
    )


def _number(path: Path) -> int:
    text = (read_text(path) or "").strip()
    if not text.isdecimal():
        raise TargetError(f"{path} has no number, {text!r}", hint=_ADVICE)
    return int(text)


def _within(held: Held, span: tuple[float, float], value: float, unit: str) -> None:
    least, most = span
    of = f" {unit}" if unit else ""
    if not least <= value <= most:
        raise UsageError(
            f"--{held.control} {value:g}{of} is out of its range, {least:g} to {most:g}{of}.",
            hint=_ADVICE,
        )


@contextmanager
def holding(held: Iterable[Held], cpus: Sequence[int], root: Path = Path("/")) -> Generator[None]:
    """While the block runs, each control has its value on these CPUs; afterwards, and when this
    process ends in any way, what was there before.

    Raises what `checked` raises, and TargetError where a value cannot be written, is not what is
    read back at the begin or at the end, or cannot be restored; where something else was raised
    meanwhile, that is a note to it.
    """
    with ExitStack() as stack:
        found = checked(held, cpus, root)
        for one, steps in found.items():
            if steps.write:
                stack.enter_context(_restored(one, steps))
                _set(one, steps)
        yield
        for one, steps in found.items():
            _compare(one, steps)


def _set(held: Held, steps: Steps) -> None:
    try:
        for path, text in steps.write:
            if text is None:
                Path(path).mkdir()
            else:
                write(path, text)
    except OSError as error:
        raise TargetError(f"{held.text} was refused: {error}", hint=_ADVICE) from error
    _compare(held, steps)


def _compare(held: Held, steps: Steps) -> None:
    """Raise TargetError where something is not as it was written."""
    for path, wanted in steps.wanted.items():
        ends_s = time.monotonic() + _SETTLE_S
        while not (alike := _alike(got := (read(path) or "").strip(), wanted)):
            if not wanted.startswith(_AT_MOST) or time.monotonic() > ends_s:
                break
            time.sleep(_POLL_S)
        if not alike:
            raise TargetError(
                f"{held.text} does not hold: {path} is {got!r} where {wanted!r} was written",
                hint=_ADVICE,
            )


def _alike(got: str, wanted: str) -> bool:
    """Whether what was read is what was wanted."""
    most = wanted.removeprefix(_AT_MOST)
    if got.isdecimal() and most.isdecimal():
        off = int(got) - int(most)
        return (off if most != wanted else abs(off)) <= _NEAR * int(most)
    return wanted in [line.strip() for line in got.splitlines()]


@contextmanager
def _restored(held: Held, steps: Steps) -> Generator[None]:
    """Start the process that gives back what was there; it is waited for when the block ends."""
    restorer = subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        start_new_session=True,
        text=True,
    )
    _begun(restorer, held, steps)
    try:
        yield
    except BaseException as error:
        fault = _ended(restorer, held, steps)
        if fault is not None:
            error.add_note(f"{fault} {fault.hint}")
        raise
    fault = _ended(restorer, held, steps)
    if fault is not None:
        raise fault


def _begun(restorer: subprocess.Popen[str], held: Held, steps: Steps) -> None:
    """Tell it what was there. Raises TargetError where it does not answer; nothing was written."""
    assert restorer.stdin is not None and restorer.stdout is not None
    with suppress(BrokenPipeError):
        restorer.stdin.write(json.dumps(list(steps.undo)) + "\n")
        restorer.stdin.flush()
        if restorer.stdout.readline():
            return
    restorer.kill()
    raise TargetError(
        f"{held.text}: the process that gives back what was there did not begin",
        hint="Is there memory for another process?",
    )


def _ended(restorer: subprocess.Popen[str], held: Held, steps: Steps) -> TargetError | None:
    """Have it restore, and wait for it; what went wrong, None where nothing did."""
    try:
        _, told = restorer.communicate(timeout=_RESTORE_S)
        if not restorer.returncode:
            return None
    except (subprocess.TimeoutExpired, OSError) as error:
        told = str(error)
    return TargetError(
        f"{held.text}: what was there before could not be restored: {told.strip()[-500:]}",
        hint="Write it back by hand: "
        + "; ".join(by_hand(path, text or "") for path, text in steps.undo),
    )
