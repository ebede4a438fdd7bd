"""A tile unit in plain code: the functions that kernels call instead of instructions of AMX.

Each takes the registers, what the instruction takes, and the size of what it reads or writes:
lines, and words of four bytes in a line. Products are added up in the order of the depth.
"""

from __future__ import annotations

_TILES = "[8 x [16 x <16 x i32>]]"

_MOVED = """
define internal void @tilewright_software_NAME(
    ptr %tiles, i8 %tile, ptr %there, i64 %stride, i64 %lines, i64 %words) {
entry:
  br label %line
line:
  %row = phi i64 [ 0, %entry ], [ %next_row, %done_line ]
  %offset = mul i64 %row, %stride
  %outside = getelementptr i8, ptr %there, i64 %offset
  %inside = getelementptr TILES, ptr %tiles, i64 0, i8 %tile, i64 %row
  br label %word
word:
  %column = phi i64 [ 0, %line ], [ %next_column, %word ]
  %from = getelementptr i32, ptr %FROM, i64 %column
  %to = getelementptr i32, ptr %TO, i64 %column
  %value = load i32, ptr %from, align 1
  store i32 %value, ptr %to, align 1
  %next_column = add i64 %column, 1
  %done_words = icmp eq i64 %next_column, %words
  br i1 %done_words, label %done_line, label %word
done_line:
  %next_row = add i64 %row, 1
  %done = icmp eq i64 %next_row, %lines
  br i1 %done, label %exit, label %line
exit:
  ret void
}
"""

_ZERO = """
define internal void @tilewright_software_tilezero(
    ptr %tiles, i8 %tile, i64 %lines, i64 %words) {
  %from = getelementptr TILES, ptr %tiles, i64 0, i8 %tile
  store [16 x <16 x i32>] zeroinitializer, ptr %from
  ret void
}
"""

_PRODUCT = """
define internal void @tilewright_software_NAME(
    ptr %tiles, i8 %sums, i8 %left, i8 %right, i64 %lines, i64 %words) {
entry:
  br label %rows
rows:
  %row = phi i64 [ 0, %entry ], [ %next_row, %done_row ]
  %place = getelementptr TILES, ptr %tiles, i64 0, i8 %sums, i64 %row
  %from = getelementptr TILES, ptr %tiles, i64 0, i8 %left, i64 %row
  %before = load <16 x KIND>, ptr %place
  br label %steps
steps:
  %step = phi i64 [ 0, %rows ], [ %next_step, %steps ]
  %sum = phi <16 x KIND> [ %before, %rows ], [ %sum_LAST, %steps ]
  %word_at = getelementptr i32, ptr %from, i64 %step
  %word = load i32, ptr %word_at
  %first = insertelement <16 x i32> poison, i32 %word, i64 0
  %words_of_left = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %line_at = getelementptr TILES, ptr %tiles, i64 0, i8 %right, i64 %step
  %line = load <16 x i32>, ptr %line_at
TERMS
  %next_step = add i64 %step, 1
  %done_steps = icmp eq i64 %next_step, %words
  br i1 %done_steps, label %done_row, label %steps
done_row:
  store <16 x KIND> %sum_LAST, ptr %place
  %next_row = add i64 %row, 1
  %done_rows = icmp eq i64 %next_row, %lines
  br i1 %done_rows, label %exit, label %rows
exit:
  ret void
}
"""

_HALF = """
  %left_word_N = shl <16 x i32> %words_of_left, splat (i32 SHIFT)
  %right_word_N = shl <16 x i32> %line, splat (i32 SHIFT)
  %left_half_N = and <16 x i32> %left_word_N, splat (i32 -65536)
  %right_half_N = and <16 x i32> %right_word_N, splat (i32 -65536)
  %a_N = bitcast <16 x i32> %left_half_N to <16 x float>
  %b_N = bitcast <16 x i32> %right_half_N to <16 x float>
  %product_N = fmul <16 x float> %a_N, %b_N
  %sum_N = fadd <16 x float> %sum_BEFORE, %product_N
"""

_BYTE = """
  %left_word_N = shl <16 x i32> %words_of_left, splat (i32 SHIFT)
  %right_word_N = shl <16 x i32> %line, splat (i32 SHIFT)
  %a_N = WIDEN <16 x i32> %left_word_N, splat (i32 24)
  %b_N = ashr <16 x i32> %right_word_N, splat (i32 24)
  %product_N = mul <16 x i32> %a_N, %b_N
  %sum_N = add <16 x i32> %sum_BEFORE, %product_N
"""


def _product(name: str, kind: str, term: str, shifts: tuple[int, ...], widen: str = "") -> str:
    terms = ""
    for number, shift in enumerate(shifts):
        before = f"_{number - 1}" if number else ""
        text = term.replace("_BEFORE", before).replace("_N", f"_{number}")
        terms += text.replace("SHIFT", str(shift)).replace("WIDEN", widen)
    text = _PRODUCT.replace("NAME", name).replace("KIND", kind).replace("TERMS", terms)
    return text.replace("_LAST", f"_{len(shifts) - 1}")


_BYTES = (24, 16, 8, 0)

SOFTWARE = "".join(
    (
        _MOVED.replace("NAME", "tileloadd64").replace("FROM", "outside").replace("TO", "inside"),
        _MOVED.replace("NAME", "tilestored64").replace("FROM", "inside").replace("TO", "outside"),
        _ZERO,
        _product("tdpbf16ps", "float", _HALF, (16, 0)),
        _product("tdpbusd", "i32", _BYTE, _BYTES, "lshr"),
        _product("tdpbssd", "i32", _BYTE, _BYTES, "ashr"),
    )
).replace("TILES", _TILES)
"""LLVM's text of all functions."""
