"""Powers of e by instructions of AVX-512: of what is rounded to bfloat16 afterwards, or to codes.

    e^x = 2^t = 2^floor(t) (1 + ...)     t = x log2 e, a polynomial of what is beyond floor(t)

One instruction takes the whole part off a number, another multiplies by a power of two whose
exponent is the whole part, as far as to zero: a minus infinity becomes zero, a NaN stays one. What
is left of 26 instructions are nine, or eleven.
"""

from __future__ import annotations

import struct

_LOG2_E = 1.4426950408889634
_FOR_HALVES = (0.07706708461046219, 0.22764495015144348, 0.6951168179512024, 1.0)
"""Of 2^r with 0 <= r < 1, of the highest power first: at most 8.6e-5 beside it, relatively, a
twentieth of what rounding to bfloat16 adds."""
_FOR_SINGLES = (
    0.0018775766948238015, 0.00898933969438076, 0.05582631751894951, 0.24015361070632935,
    0.6931530833244324, 0.9999999403953552,
)  # fmt: skip
"""At most 1.5e-7 beside it: little more than singles are rounded by."""
LANES = 16
"""Of the vectors that the function takes."""
POWER, SINGLE_POWER = "tilewright_power", "tilewright_single_power"
"""The functions: <16 x float> to <16 x float>, of numbers that are not above zero."""

_BEYOND_FLOOR = 9
_TEXT = """
declare <16 x float> @llvm.x86.avx512.mask.reduce.ps.512(
  <16 x float>, i32 immarg, <16 x float>, i16, i32 immarg)
declare <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(
  <16 x float>, <16 x float>, <16 x float>, i16, i32 immarg)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
define <16 x float> @{name}(<16 x float> %x) alwaysinline {{
  %t = fmul <16 x float> %x, splat (float {factor})
  %r = call <16 x float> @llvm.x86.avx512.mask.reduce.ps.512(
    <16 x float> %t, i32 {beyond}, <16 x float> %t, i16 -1, i32 4)
{sums}
  %power = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(
    <16 x float> %sum_{last}, <16 x float> %t, <16 x float> %t, i16 -1, i32 4)
  ret <16 x float> %power
}}
"""


def _single(value: float) -> str:
    """A single as LLVM writes it: the bits of the same number in double precision."""
    (single,) = struct.unpack("f", struct.pack("f", value))
    return f"0x{struct.pack('>d', single).hex().upper()}"


def power_text(name: str = POWER) -> str:
    """LLVM's text of one of the functions."""
    powers = _FOR_HALVES if name == POWER else _FOR_SINGLES
    highest, *others = map(_single, powers)
    before, sums = f"splat (float {highest})", list[str]()
    for number, value in enumerate(others):
        sums.append(
            f"  %sum_{number} = call <16 x float> @llvm.fma.v16f32(<16 x float> {before}, "
            f"<16 x float> %r, <16 x float> splat (float {value}))"
        )
        before = f"%sum_{number}"
    return _TEXT.format(
        name=name, factor=_single(_LOG2_E), beyond=_BEYOND_FLOOR, sums="\n".join(sums),
        last=len(others) - 1,
    )  # fmt: skip
