"""From the name of an implementation to the function that builds its kernel."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tvm.s_tir import Schedule

from tilewright.compiler.backends import load_backends
from tilewright.compiler.lower.program import Program
from tilewright.core.errors import InternalError
from tilewright.core.plugins import Offers
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation

Lowering = Callable[[Program, Target, Resources], Schedule]
_ELSEWHERE = {
    "conv2d_mmla_int8": "conv2d_mmla",
    "dense_mmla_int8": "dense_mmla",
    "batch_matmul_mmla_int8": "batch_matmul_mmla",
    "conv2d_winograd1d": "conv2d_winograd",
    "conv2d_winograd1d_bfloat16": "conv2d_winograd",
    "conv2d_winograd1d_float16": "conv2d_winograd",
    "conv2d_winograd2": "conv2d_winograd",
    "conv2d_winograd2_bfloat16": "conv2d_winograd",
    "conv2d_winograd2_float16": "conv2d_winograd",
    "conv2d_winograd_bfloat16": "conv2d_winograd",
    "conv2d_winograd_float16": "conv2d_winograd",
    "conv2d_winograd_int8": "conv2d_winograd",
    "cuda_attention": "cuda.attention",
    "cuda_default": "cuda.default",
    "cuda_direct": "cuda.direct",
    "cuda_rows": "cuda.rows",
    "cuda_stream": "cuda.stream",
    "cuda_product": "cuda.products",
    "cuda_product_int8": "cuda.code_products",
    "cuda_product_tf32": "cuda.tf32_products",
    "cuda_product_exchanged": "cuda.exchanged_products",
    "cuda_product_tf32_exchanged": "cuda.exchanged_products",
    "cuda_product_async": "cuda.async_products",
    "cuda_product_tf32_async": "cuda.async_products",
    "cuda_vector": "cuda.vectors",
    "cuda_window": "cuda.windows",
    "metaschedule": "generic",
    "opaque": "generic",
}
"""Modules of implementations that have none of their own name here."""


_OFFERED = Offers[Lowering](
    "tilewright.lowerings", kind="lowering", built_in={}, needs=("__call__",)
)
"""Those of other packages; ours are modules beside this one."""


def lowering(name: str) -> Lowering:
    """The lowering that belongs to the implementation `name`."""
    offered = _OFFERED.find(name)
    if offered is not None:
        return offered
    module = f"tilewright.compiler.lower.{_ELSEWHERE.get(name, name)}"
    try:
        return import_module(module).lower
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise InternalError(f"implementation {name!r} has no lowering") from None


def lowered(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> tuple[Program, Schedule]:
    """A candidate's program, and its scheduled kernel: a module whose function is called `main`."""
    if target.kind != "cpu":
        load_backends()
    spec = implementation(candidate.implementation)
    program = Program(workload, candidate, spec.packed_shapes(workload, candidate))
    program.fused = "fma" in target.features
    program.rounds = "avx2" in target.features
    return program, lowering(candidate.implementation)(program, target, resources)
