"""From the name of an implementation to the function that builds its kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from tvm.s_tir import Schedule

from tilewright.compiler.lower.program import Program
from tilewright.core.errors import InternalError
from tilewright.core.plugins import load_plugins
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation

GROUP = "tilewright.lowerings"
Lowering = Callable[[Program, Target, Resources], Schedule]


@cache
def _offered() -> dict[str, object]:
    return load_plugins(GROUP)


def lowering(name: str) -> Lowering:
    """The lowering that belongs to the implementation `name`."""
    offered = _offered().get(name)
    if callable(offered):
        return offered
    module = f"tilewright.compiler.lower.{name}"
    try:
        return import_module(module).lower
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise InternalError(f"implementation {name!r} has no lowering") from None


def lower(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> Schedule:
    """The scheduled kernel of a workload: a module whose function is called `main`."""
    spec = implementation(candidate.implementation)
    program = Program(workload, candidate, spec.packed_shapes(workload, candidate))
    return lowering(candidate.implementation)(program, target, resources)
