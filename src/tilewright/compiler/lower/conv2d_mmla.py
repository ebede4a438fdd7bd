"""The convolutions by ARM's products of matrices, see `conv2d_amx` and `mmla_text`."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.amx_text import HALVES_BY_MMLA, Tiles, codes_by_mmla
from tilewright.compiler.lower.conv2d_amx import TiledKernel
from tilewright.compiler.lower.dot_convolution import as_it_is
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.conv2d_mmla import OF_CODES, OF_HALVES, MmlaConvolution
from tilewright.kernels.convolution import convolution


class _Kernel(TiledKernel):
    """A kernel whose tiles are pixels, two by two in a register."""

    spec: MmlaConvolution

    def tiles(self) -> Tiles:
        """Rows of pixels, and channels."""
        forms, settings = self.program.candidate.forms, self.program.settings
        return Tiles(
            kind=self.kind,
            rows=settings["tile_width"],
            down=settings["tile_height"],
            out=settings["tile_out"],
            lanes=self.lanes,
            depth=self.fold * self.block,
            together=self.spec.together(self.conv, forms, settings),
        )


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    if program.candidate.implementation == OF_HALVES.name:
        kernel = _Kernel(program, OF_HALVES, HALVES_BY_MMLA, mathematics.half)
    else:
        kind = program.operand(convolution(program.workload).data).type.dtype
        kernel = _Kernel(program, OF_CODES, codes_by_mmla(kind), as_it_is)
    return kernel.scheduled(target, resources)
