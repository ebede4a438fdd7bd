"""The tile registers of AMX: what kernels know of them.

    registers 0 to 3   sums: up to 16 lines of 16 words of 32 bits
    4 and 5            lines of the left matrix, each of 64 bytes at most
    6 and 7            lines of the right one: as many as the left one's lines have words

An instruction multiplies two registers and adds to a third: 16 × 16 sums of 32 products of
bfloat16, or of 64 of codes of eight bits.
"""

from __future__ import annotations

import numpy as np

from tilewright.core.targets import Target
from tilewright.kernels.base import FLOAT16, HALF
from tilewright.kernels.columns import Floats
from tilewright.kernels.halves import has_half_arithmetic
from tilewright.kernels.ports import tile_sizes

HALF_UNIT, CODE_UNIT = "amx-bf16", "amx-int8"
FEATURES = "amx-"
"""What the names of its instruction sets begin with."""
REGISTERS, ROWS, LINE_BYTES, WORD_BYTES = 8, 16, 64, 4
SUMS = 4
"""Registers of sums."""
_INSTRUCTION_CYCLES = 17.0
"""Of a product with what it needs loaded beside it: 5 ns at 3.5 GHz, whether 7 or 16 lines are in
the registers, from the first and the second cache (Xeon of the fourth generation)."""
_LOAD_SHARE = 0.3
"""What each load more than one adds to an instruction, of its time."""
_SUM_CYCLES = 5.0
"""To store 16 sums, load, round and store them again."""


def has_unit(target: Target, name: str) -> bool:
    """Whether a processor has products of matrices of a kind; on ARM of 32 bits none are used."""
    narrow = target.architecture.startswith("arm")
    return not narrow and any(u.name == name and u.granule[0] > 1 for u in target.units)


def product_cycles(instructions: Floats, loads: Floats, sums: Floats) -> Floats:
    """Cycles of so many instructions, each with so many registers loaded, and of what becomes of so
    many sums."""
    slower = 1.0 + _LOAD_SHARE * np.maximum(0.0, loads - 1.0)
    return _INSTRUCTION_CYCLES * slower * instructions + _SUM_CYCLES / ROWS * sums


def pixel_counts(extent: int) -> tuple[int, ...]:
    """Pixels of a row that registers below each other hold. For each number of registers: those
    with the fewest tiles, as an instruction takes as long for few lines, and if there are not twice
    as many, those that need none beyond the row."""
    found = list[int]()
    fitting = tile_sizes(extent, largest=SUMS * ROWS)
    for registers in range(1, SUMS + 1):
        sizes = [size for size in fitting if registers_of(size) == registers]
        fewest = sorted(sizes, key=lambda size: (-(-extent // size), size))[:1]
        exact = [size for size in sizes if extent % size == 0 and 2 * size >= fewest[0]]
        found += [*fewest, *exact[-1:]]
    return tuple(dict.fromkeys(found)) or (1,)


def registers_of(pixels: int) -> int:
    """Registers that hold so many pixels of a row, as many lines in each; 0 where none do."""
    registers = -(-pixels // ROWS)
    return registers if pixels % registers == 0 else 0


def line_of(dtype: str, target: Target, precision: str) -> int:
    """Values of a type in a line of a register, where tiles multiply them in a precision, or
    vectors of halves do, else 0."""
    if dtype in ("int8", "uint8"):
        return LINE_BYTES if has_unit(target, CODE_UNIT) else 0
    tiles = precision == HALF and has_unit(target, HALF_UNIT)
    vectors = precision == FLOAT16 and has_half_arithmetic(target)
    return LINE_BYTES // 2 if dtype == "float32" and (tiles or vectors) else 0
