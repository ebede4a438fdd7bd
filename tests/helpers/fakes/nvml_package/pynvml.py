"""nvidia-ml-py in miniature, of one card: its settings lie in the file that FAKE_NVML names, so
that all processes see the same. What the file has under `refused` fails with that reason. As with a
driver, processes that set something at the same moment do so one after the other."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

NVML_CLOCK_SM = 1


class NVMLError(Exception):
    pass


def _file() -> Path:
    return Path(os.environ["FAKE_NVML"])


def _state() -> dict:
    return json.loads(_file().read_text())


def _answer(name: str) -> dict:
    """The settings. Raises NVMLError where the function is refused."""
    state = _state()
    if name in state["refused"]:
        raise NVMLError(state["refused"][name])
    return state


def change(**values: object) -> None:
    """Change some settings, of which nobody sees a part, nor loses what others change meanwhile."""
    with _file().with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = _state() if _file().exists() else {}
        written = _file().with_suffix(".new")
        written.write_text(json.dumps(state | values))
        written.replace(_file())


def _set(name: str, **values: object) -> None:
    _answer(name)
    change(**values)


def nvmlInit() -> None:
    _answer("nvmlInit")


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
    if uuid != _state()["uuid"]:
        raise NVMLError("Not Found")
    return uuid


def nvmlDeviceGetPowerManagementLimitConstraints(_device: str) -> list[int]:
    _answer("nvmlDeviceGetPowerManagementLimitConstraints")
    return [200_000, 700_000]


def nvmlDeviceGetPowerManagementLimit(_device: str) -> int:
    return _state()["limit"]


def nvmlDeviceSetPowerManagementLimit(_device: str, limit: int) -> None:
    _set("nvmlDeviceSetPowerManagementLimit", limit=limit)


def nvmlDeviceGetSupportedMemoryClocks(_device: str) -> list[int]:
    return [1593, 2619]


def nvmlDeviceGetSupportedGraphicsClocks(_device: str, memory: int) -> list[int]:
    return list(range(1980, 200, -15)) if memory == 2619 else [345]


def nvmlDeviceGetClockInfo(_device: str, _kind: int) -> int:
    """It idles below the clock that it is locked at."""
    return _state()["clock"]


def nvmlDeviceSetGpuLockedClocks(_device: str, least: int, most: int) -> None:
    state = _state()
    clock = state["clock"] if state["stuck"] else min(state["clock"], most)
    _set("nvmlDeviceSetGpuLockedClocks", locked=[least, most], clock=clock)


def nvmlDeviceResetGpuLockedClocks(_device: str) -> None:
    _set("nvmlDeviceResetGpuLockedClocks", locked=None)
