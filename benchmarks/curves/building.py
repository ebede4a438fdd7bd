"""Kernels of a task in one library, and TVM without its compiler: what is made beforehand."""

from __future__ import annotations

import shutil
from pathlib import Path

import tvm

from curves.archive import CurveTask, Kernel
from curves.wishes import Wish, placed
from tilewright.compiler.build import argument_types, compiled, kernel_hash_of, kernel_module
from tilewright.compiler.builders.registry import builder_for
from tilewright.compiler.kernel_runs import copy_module
from tilewright.core.records import Candidate, Placement

_RUNTIME = "libtvm_runtime.so"


def built(wish: Wish, placement: Placement, path: Path) -> CurveTask | None:
    """The task of a workload, its kernels compiled into a library; None where TVM compiles none of
    them. Numbers of cores whose scheduled kernels are the same share one."""
    functions: dict[str, tvm.tirx.PrimFunc] = {}
    kernels: dict[str, Kernel] = {}
    for cores, candidate in sorted(wish.candidates.items()):
        if builder_for(candidate).name != "llvm":
            return None
        own = placed(placement, cores)
        module = kernel_module(wish.workload, candidate, own.target, own.resources)
        kernel = _kernel(module["main"], candidate, cores)
        functions[kernel.symbol] = module["main"].with_attr("global_symbol", kernel.symbol)
        known = kernels.get(kernel.key)
        made_for = (*known.made_for, cores) if known else (cores,)
        kernels[kernel.key] = Kernel(**{**vars(known or kernel), "made_for": made_for})
    most = placed(placement, max(wish.candidates))
    library = compiled(tvm.IRModule(functions), most.target, most.resources)
    library.export_library(str(path))
    return CurveTask(
        text=wish.workload.text,
        family=wish.family,
        source=wish.source,
        kernels=tuple(kernels.values()),
    )


def _kernel(function: tvm.tirx.PrimFunc, candidate: Candidate, cores: int) -> Kernel:
    return Kernel(
        key=kernel_hash_of(function),
        candidate=candidate,
        types=argument_types(function),
        made_for=(cores,),
    )


def add_copy(path: Path, placement: Placement) -> None:
    """Compile what writes activations anew between timed calls."""
    compiled(copy_module(), placement.target, placement.resources).export_library(str(path))


def add_runtime(folder: Path) -> None:
    """Put TVM's Python files and its runtime into a folder, without compiler and headers."""
    installed = Path(tvm.__file__).parent
    wanted = [*installed.rglob("*.py"), installed / "lib" / _RUNTIME]
    for path in wanted:
        place = folder / "tvm" / path.relative_to(installed)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
