"""Compiling a whole network and writing it as a library plus a file of weights."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import tvm
from tvm import relax

from tilewright.compiler.build import kernel_module
from tilewright.compiler.glue import network_module
from tilewright.compiler.pipeline import WorkspaceReader, registered
from tilewright.compiler.prefetch import with_prefetches
from tilewright.core.targets import Target
from tilewright.graph.array_files import map_array
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.base import Workspaces

LIBRARY = "model.so"
WEIGHTS = "weights.params"


def compile_network(
    plan: NetworkPlan, target: Target, *, timed: bool = False
) -> tuple[relax.VMExecutable, dict[str, Workspaces]]:
    """Build all kernels and the glue of a plan with one lane; returns the executable and the
    kernels' workspaces by symbol. `timed` as in `glue.network_module`."""
    resources = plan.only_lane.resources
    kernels = {plan.symbol(call): call for call in reversed(plan.calls)}
    instructed = {}
    for symbol in plan.symbols.values():
        call = kernels[symbol]
        module = kernel_module(call.workload, call.candidate, target, resources)
        instructed[symbol] = with_prefetches(module)["main"]
    module = network_module(plan, instructed, timed=timed)
    reader = WorkspaceReader()
    with tvm.transform.PassContext(instruments=[reader]):
        executable = relax.build(
            module,
            target=tvm.target.Target(target.tvm_target(resources)),
            relax_pipeline=tvm.transform.Sequential([]),
            tir_pipeline=registered(),
            exec_mode="bytecode",
        )
    return executable, {symbol: reader.found[symbol] for symbol in instructed}


def write_library(executable: relax.VMExecutable, path: Path) -> None:
    """Link a network's library with this machine's compiler."""
    executable.export_library(str(path))


def write_weights(folder: Path, plan: NetworkPlan, packed: Path) -> None:
    """Write the weights file from packed arrays stored as `.npy` files in `packed`."""
    tensors, size_bytes = {}, 0
    for stored in plan.constants:
        array = map_array(packed / f"{stored.name}.npy", stored.dtype)
        tensors[stored.name] = tvm.runtime.tensor(array)
        size_bytes += array.nbytes
    path = folder / WEIGHTS
    tvm.runtime.save_param_dict_to_file(tensors, str(path))
    if path.stat().st_size < size_bytes:  # TVM does not say when writing failed
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
