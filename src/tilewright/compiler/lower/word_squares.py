"""Squares of 16 × 16 words, turned in vector registers.

    to[j, i] = from[i, j]     lines of 64 bytes, lines of either side so many bytes apart

What is multiplied two by two lies along the rows of a right matrix that is given transposed, and
tile registers want those words below each other.
"""

from __future__ import annotations

from tilewright.kernels.amx import ROWS

TURNED = "tilewright_turned_words"
"""The function: (from, bytes from line to line, to, bytes from line to line)."""


def turning_text() -> str:
    """LLVM's text of the function: the lines of both halves are shuffled into each other, as often
    as halves can be halved."""
    low, high = (
        ", ".join(f"i32 {at + which * ROWS}" for at in half for which in (0, 1))
        for half in (range(ROWS // 2), range(ROWS // 2, ROWS))
    )
    lines = [
        f"define i32 @{TURNED}(ptr %from, i64 %from_line, ptr %to, i64 %to_line) alwaysinline {{"
    ]
    for at in range(ROWS):
        lines += [
            f"  %from_{at} = mul i64 %from_line, {at}",
            f"  %read_{at} = getelementptr i8, ptr %from, i64 %from_{at}",
            f"  %line_0_{at} = load <16 x i32>, ptr %read_{at}, align 4",
        ]
    rounds = (ROWS - 1).bit_length()
    for number in range(rounds):
        for at in range(ROWS // 2):
            pair = (f"<16 x i32> %line_{number}_{at + half}" for half in (0, ROWS // 2))
            given = ", ".join(pair)
            lines += [
                f"  %line_{number + 1}_{2 * at + which} = shufflevector {given}, "
                f"<16 x i32> <{places}>"
                for which, places in enumerate((low, high))
            ]
    for at in range(ROWS):
        lines += [
            f"  %to_{at} = mul i64 %to_line, {at}",
            f"  %write_{at} = getelementptr i8, ptr %to, i64 %to_{at}",
            f"  store <16 x i32> %line_{rounds}_{at}, ptr %write_{at}, align 4",
        ]
    return "\n".join([*lines, "  ret i32 0", "}", ""])
