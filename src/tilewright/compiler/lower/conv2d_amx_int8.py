"""The convolution of codes in tile registers, see `conv2d_amx`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower.amx_text import code_tiles
from tilewright.compiler.lower.conv2d_amx import TiledKernel
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_amx import OF_CODES
from tilewright.kernels.convolution import convolution


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    kind = code_tiles(program.operand(convolution(program.workload).data).type.dtype)
    return TiledKernel(program, OF_CODES, kind).scheduled(target, resources)
