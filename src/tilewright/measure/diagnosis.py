"""`doctor`: is everything here that the other verbs need."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from tilewright.compiler.cuda import compilers
from tilewright.core import errors, plugins, processes, records, settings, units
from tilewright.core.results import Check, DoctorResult
from tilewright.hardware.device import local_placement
from tilewright.hardware.environment import environment_card, noise_warnings, read_environment
from tilewright.hardware.meters import Meter, find_cpu_meter, nvml_meter
from tilewright.measure import base, kernels
from tilewright.measure.accesses import cuda
from tilewright.measure.peers.base import PEERS, make_peer
from tilewright.models.exported.conversion import broken_packages
from tilewright.store import open_store, registry
from tilewright.store.base import Archive

_IN_WORKERS = ("tilewright.lowerings", "tilewright.builders")
"""Groups of what only worker processes import."""
_LITTLE_DISK_BYTES = 2 << 30
_TIMEOUT_S = 120.0
_COMPILERS = ("g++", "c++", "clang++")
_NVIDIA_DRIVER = Path("proc/driver/nvidia")
_OTHER_METER = "profile --power --meter command:CMD takes any program that prints watts or joules."


def examine(database: str) -> DoctorResult:
    """Run all checks; `database` is a path or `SCHEME:REST`."""
    environment, placement = read_environment(), local_placement(None)
    return DoctorResult(
        checks=(
            _compiler(),
            _tvm(placement),
            _database(database),
            _disk(registry.database_file(database) or settings.read_settings().cache),
            *map(_peer, PEERS.names()),
            exporting_check(),
            *meter_checks(),
            *gpu_checks(),
            *plugin_checks(),
            *(
                Check(name="noise", status="warning", detail=text, advice="Close what else runs.")
                for text in noise_warnings(environment)
            ),
        ),
        environment=environment_card(environment, placement),
    )


def _compiler() -> Check:
    found = next(filter(shutil.which, _COMPILERS), None)
    missing = "Install one (Debian: apt-get install g++); it links compiled networks."
    return Check(
        name="C++ compiler",
        status="ok" if found else "problem",
        detail=found or f"none of {', '.join(_COMPILERS)} is on PATH",
        advice="" if found else missing,
    )


def _tvm(placement: records.Placement) -> Check:
    with base.Worker(kernels.WORKER, placement) as worker:
        try:
            worker.request(("target", placement.tvm_target), _TIMEOUT_S)
        except (processes.ChildError, processes.RemoteError) as error:
            return Check(
                name="TVM",
                status="problem",
                detail=str(error).splitlines()[0],
                advice="Reinstall: pip install --force-reinstall tilewright",
            )
    return Check(name="TVM", status="ok", detail=f"takes {placement.tvm_target}")


def _database(location: str) -> Check:
    try:
        with open_store(location) as store:
            known = isinstance(store, Archive)
            held = f": {store.info().measurements} measurements" if known else ""
    except errors.StoreError as error:
        return Check(
            name="database", status="problem", detail=error.message, advice=error.hint or ""
        )
    return Check(name="database", status="ok", detail=f"{location}{held}")


def _disk(path: Path) -> Check:
    folder = next(parent for parent in [path.parent, *path.parents] if parent.exists())
    free = shutil.disk_usage(folder).free
    enough = free > _LITTLE_DISK_BYTES and os.access(folder, os.W_OK)
    return Check(
        name="disk",
        status="ok" if enough else "warning",
        detail=f"{units.format_bytes(free)} free at {folder}",
        advice="" if enough else "Large networks need twice their weights.",
    )


def _peer(name: str) -> Check:
    try:
        peer = make_peer(name)
    except plugins.PluginError as error:
        return _fault(f"peer {name}", error.message)
    reason = peer.available()
    if reason is None:
        return Check(name=f"peer {name}", status="ok", detail="installed")
    needed = name == "onnxruntime"
    missing = find_spec(peer.package.partition(".")[0]) is None
    extra = peer.package if name in PEERS.others() else f"tilewright[{peer.package}]"
    return Check(
        name=f"peer {name}",
        status="problem" if needed else "ok",
        detail=reason,
        advice="Reinstall tilewright." if needed else f"pip install '{extra}' adds it." * missing,
    )


def exporting_check() -> Check:
    """Whether the packages that export PyTorch's models load, where they are installed."""
    broken = broken_packages()
    if broken:
        name, fault = next(iter(broken.items()))
        return Check(
            name="PyTorch models",
            status="warning",
            detail=f"{name} does not load: {fault}",
            advice=f"hf:, torch: and .pt2 may need it. Reinstall {name}, or: pip uninstall {name}",
        )
    absent = [name for name in ("torch", "onnxscript", "transformers") if not find_spec(name)]
    detail = f"not installed: {', '.join(absent)}" if absent else "torch, transformers load"
    return Check(name="PyTorch models", status="ok", detail=detail)


def meter_checks(root: Path = Path("/")) -> list[Check]:
    """The power meter of the CPU, and that of the GPU where NVIDIA's driver is, or why not.

    `root` holds `sys` and `proc`. None of them is needed, so nothing found here is a problem.
    """
    there = (root / _NVIDIA_DRIVER).is_dir()
    cpu = _meter("power meter", find_cpu_meter(root))
    return [cpu, _meter("GPU power meter", nvml_meter())] if there else [cpu]


def gpu_checks() -> list[Check]:
    """The GPUs of NVIDIA's that kernels can run on, and what compiles for them, or why not. None of
    them is needed."""
    rows = cuda.CUDA.rows(None)
    missing = compilers.missing_compiler()
    there = any(row.usable for row in rows)
    advice = "pip install 'tilewright[cuda]' adds what is not the driver's."
    compiler = Check(
        name="CUDA compiler",
        status="warning" if there and missing else "ok",
        detail=f"none: {missing}" if missing else "compiles kernels for GPUs",
        advice=advice if there and missing else "",
    )
    return [
        *(
            Check(
                name="GPU",
                status="ok",
                detail=row.detail if row.usable else f"none: {row.detail}",
                advice="" if row.usable else advice,
            )
            for row in rows
        ),
        compiler,
    ]


def plugin_checks() -> list[Check]:
    """What other packages add, and why some of it cannot be used.

    Lowerings import TVM, so they are not tried in this process.
    """
    checks: list[Check] = []
    for plugin in plugins.installed_plugins(_IN_WORKERS):
        name = f"{plugin.group.removeprefix(plugins.PREFIX)}: {plugin.name}"
        fine = Check(name=name, status="ok", detail=f"package {plugin.package}")
        checks.append(fine if plugin.fault is None else _fault(name, plugin.fault))
    return checks


def _fault(name: str, reason: str) -> Check:
    return Check(
        name=name,
        status="warning",
        detail=reason,
        advice="Update that package or remove it; all else works without it.",
    )


def _meter(name: str, meter: Meter) -> Check:
    """A warning where something would help."""
    lost = meter.unavailable()
    if lost is None:
        return Check(name=name, status="ok", detail=meter.method)
    return Check(
        name=name,
        status="warning" if lost.hint else "ok",
        detail=f"none: {lost.message}",
        advice=lost.hint or _OTHER_METER,
    )
