"""Schedule of convolutions in tile registers.

[the input in blocks of channels, with its border of zeros]
parallel pieces, each of several     # registers are set up once for each
  (n, out chunk tile, row tile)      # `order` decides which is outside
    column tile
      the whole sum of the tile      # one call, sums in tile registers
      epilogue of the tile, in vectors
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.amx_text import HALVES, TileKind, Tiles
from tilewright.compiler.lower.amx_tiles import (
    Steps,
    convolution_tiles,
    fetching,
    opened,
    shared_out,
    tensorized,
)
from tilewright.compiler.lower.conv2d_windows import shared_tiles
from tilewright.compiler.lower.dot_convolution import (
    Dots,
    accumulated,
    as_it_is,
    filled,
    finished,
    with_epilogue,
)
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target
from tilewright.kernels.amx import registers_of
from tilewright.kernels.conv2d_amx import OF_HALVES, AmxConvolution
from tilewright.kernels.conv2d_dots import widened
from tilewright.kernels.convolution import convolution
from tilewright.kernels.ports import output_block


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel of bfloat16."""
    return TiledKernel(program, OF_HALVES, HALVES, mathematics.half).scheduled(target, resources)


class TiledKernel:
    """A kernel under construction: how it reads its input, its tiles, and what they sum over."""

    def __init__(
        self,
        program: Program,
        spec: AmxConvolution,
        kind: TileKind,
        taken: Callable[[tirx.Expr], tirx.Expr] = as_it_is,
    ) -> None:
        forms, settings = program.candidate.forms, program.settings
        self.program, self.spec, self.kind = program, spec, kind
        self.conv = convolution(program.workload)
        self.dots = Dots(spec=spec, product=kind.product, instruction="", taken=taken)
        self.lanes = output_block(forms, settings)
        self.block = spec.input_block(self.conv, forms, settings)
        self.fold = spec.folded(self.conv, forms, settings)
        self.copied = spec.copied(self.conv, forms, settings)
        self.beyond = spec.overruns(self.conv, forms, settings)

    def tiles(self) -> Tiles:
        """Registers of sums of a tile."""
        settings, parts = self.program.settings, registers_of(self.program.settings["tile_width"])
        return Tiles(
            kind=self.kind,
            rows=settings["tile_width"] // parts,
            down=settings["tile_height"] * parts,
            out=settings["tile_out"],
            lanes=self.lanes,
            depth=self.fold * self.block,
            beside=parts > 1,
            beyond=self.beyond,
        )

    def steps(self) -> Steps:
        """Chunks and taps."""
        conv = self.conv
        height, width = widened(conv, self.fold).kernel
        return Steps(
            chunks=-(-conv.group_in // self.block),
            kernel=(height, width // self.fold),
            strides=conv.strides,
            dilation=conv.dilation,
            fold=self.fold,
            width=conv.in_width,
        )

    def scheduled(self, target: Target, resources: Resources) -> Schedule:
        """All of it."""
        program, conv, settings = self.program, self.conv, self.program.settings
        program.set_anchor(program.in_blocks(accumulated(program, self.dots), 1, self.lanes))
        with_epilogue(program, self.lanes)
        schedule = program.schedule()
        if self.copied:
            filled(schedule, conv.in_channels, self.block, resources.threads)
        sizes = [settings[name] for name in ("tile_out", "tile_height", "tile_width")]
        anchor = schedule.get_sblock("accumulator")
        n, o, y, x, lane, *sums = schedule.get_loops(anchor)
        split = [schedule.split(o, [None, s]) for o, s in zip((o, y, x), sizes, strict=True)]
        outer, inner = ([pair[number] for pair in split] for number in range(2))
        pieces, serial = shared_tiles(conv, settings, n, outer)
        schedule.reorder(*pieces, *serial, *inner, lane, *sums)
        of_pixels = [*pieces[pieces.index(outer[0]) + 1 :], *serial]
        parallel, home, loops = shared_out(schedule, pieces, serial, of_pixels, resources.threads)
        weights = conv.summed * conv.out_channels * self.spec.width
        tiles = fetching(target, self.tiles(), weights, loops)
        opened(schedule, parallel, tiles, target)
        finished(program, schedule, home)
        intrinsic = convolution_tiles(tiles, self.steps())
        tensorized(schedule, anchor, inner[0], (*sizes, self.lanes), intrinsic)
        return schedule
