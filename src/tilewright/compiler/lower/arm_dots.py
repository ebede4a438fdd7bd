"""Dot products of ARM as LLVM's text.

    sdot, usdot   four bytes times four bytes to each lane of 32 bits
    bfdot         two bfloat16 times two bfloat16 to each single

A register has four lanes. A function for more of them takes longer vectors, which LLVM keeps in
several registers, and is as many instructions.
"""

from __future__ import annotations

_LANES = 4
"""Of a register."""
_TYPES = {"sdot": ("i32", "i8", 4), "usdot": ("i32", "i8", 4), "bfdot": ("float", "bfloat", 2)}
"""By instruction: LLVM's types of sums and of factors, and the products that a lane adds up."""

_TEXT = """
define {sums} @{name}({sums} %sums_0, i32 %word, {passed} %passed) alwaysinline {{
  %first = insertelement <4 x i32> poison, i32 %word, i64 0
  %words = shufflevector <4 x i32> %first, <4 x i32> poison, <4 x i32> zeroinitializer
  %data = bitcast <4 x i32> %words to {factors}
  %weights = bitcast {passed} %passed to {weights}
{registers}  ret {sums} %sums_{lanes}
}}
"""
_REGISTER = """\
  %before_{at} = call {own} @llvm.vector.extract({sums} %sums_{at}, i64 {at})
  %weights_{at} = call {factors} @llvm.vector.extract({weights} %weights, i64 {slot})
  %after_{at} = call {own} @llvm.aarch64.neon.{instruction}({own} %before_{at}, {operands})
  %sums_{end} = call {sums} @llvm.vector.insert({sums} %sums_{at}, {own} %after_{at}, i64 {at})
"""


def arm_dot_text(instruction: str, lanes: int, name: str) -> str:
    """The function `name`: of sums, a word of data that all lanes share, and the weights of each
    lane it gives the new sums."""
    kind, factor, terms = _TYPES[instruction]
    types = {
        "sums": f"<{lanes} x {kind}>",
        "passed": f"<{terms * lanes} x i{32 // terms}>",
        "weights": f"<{terms * lanes} x {factor}>",
        "factors": f"<{terms * _LANES} x {factor}>",
    }
    registers = ""
    for at in range(0, lanes, _LANES):
        both = [f"{types['factors']} %weights_{at}", f"{types['factors']} %data"]
        registers += _REGISTER.format(
            **types,
            at=at,
            end=at + _LANES,
            slot=terms * at,
            own=f"<{_LANES} x {kind}>",
            instruction=instruction,
            # unsigned factors, which are the data, come first
            operands=", ".join(reversed(both) if instruction == "usdot" else both),
        )
    return _TEXT.format(**types, lanes=lanes, name=name, registers=registers)
