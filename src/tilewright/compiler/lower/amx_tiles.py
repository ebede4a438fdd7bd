"""Products of matrices in tile registers, as a tensor intrinsic.

    C[row, column] += Σ A[row, k] * B[k, column]     up to 32 × 32 results, k as long as it is

AMX of x86 has eight registers of 16 rows of 64 bytes, and an instruction that multiplies two of
them and adds to a third: 16 × 16 sums of 32 products of bfloat16. TVM has no such thing: it is
LLVM's text that a kernel imports, one function for the whole depth, in which sums stay in the
registers. A processor without AMX is given a software tile unit, the same functions in plain code,
so that what surrounds them can be tested anywhere.
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import re
from functools import cache
from itertools import product

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from tilewright.compiler.lower.half_dots import half_product

_ROWS, _BYTES = 16, 64
"""Of a register."""
_SUMS, _LEFT, _RIGHT = 0, 4, 6
"""The first registers of up to 2 × 2 sums, two of the left matrix, two of the right one."""

_HARDWARE = """
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)
"""

_TILES = "[8 x [16 x <16 x i32>]]"
_SOFTWARE = """
define internal void @llvm.x86.ldtilecfg(ptr %tiles, ptr %config) {
  ret void
}
define internal void @llvm.x86.tilerelease(ptr %tiles) {
  ret void
}
define internal void @llvm.x86.tileloadd64(ptr %tiles, i8 %tile, ptr %from, i64 %stride) {
entry:
  br label %loop
loop:
  %row = phi i64 [ 0, %entry ], [ %next, %loop ]
  %offset = mul i64 %row, %stride
  %source = getelementptr i8, ptr %from, i64 %offset
  %place = getelementptr TILES, ptr %tiles, i64 0, i8 %tile, i64 %row
  %line = load <16 x i32>, ptr %source, align 1
  store <16 x i32> %line, ptr %place
  %next = add i64 %row, 1
  %done = icmp eq i64 %next, 16
  br i1 %done, label %exit, label %loop
exit:
  ret void
}
define internal void @llvm.x86.tilestored64(ptr %tiles, i8 %tile, ptr %to, i64 %stride) {
entry:
  br label %loop
loop:
  %row = phi i64 [ 0, %entry ], [ %next, %loop ]
  %offset = mul i64 %row, %stride
  %place = getelementptr i8, ptr %to, i64 %offset
  %source = getelementptr TILES, ptr %tiles, i64 0, i8 %tile, i64 %row
  %line = load <16 x i32>, ptr %source
  store <16 x i32> %line, ptr %place, align 1
  %next = add i64 %row, 1
  %done = icmp eq i64 %next, 16
  br i1 %done, label %exit, label %loop
exit:
  ret void
}
define internal void @llvm.x86.tdpbf16ps(ptr %tiles, i8 %sums, i8 %left, i8 %right) {
entry:
  br label %rows
rows:
  %row = phi i64 [ 0, %entry ], [ %next_row, %done_row ]
  %place = getelementptr TILES, ptr %tiles, i64 0, i8 %sums, i64 %row
  %from = getelementptr TILES, ptr %tiles, i64 0, i8 %left, i64 %row
  %before = load <16 x float>, ptr %place
  br label %pairs
pairs:
  %pair = phi i64 [ 0, %rows ], [ %next_pair, %pairs ]
  %sum = phi <16 x float> [ %before, %rows ], [ %high_sum, %pairs ]
  %word_at = getelementptr i32, ptr %from, i64 %pair
  %word = load i32, ptr %word_at
  %first = insertelement <16 x i32> poison, i32 %word, i64 0
  %words = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %line_at = getelementptr TILES, ptr %tiles, i64 0, i8 %right, i64 %pair
  %line = load <16 x i32>, ptr %line_at
  %low_left = shl <16 x i32> %words, splat (i32 16)
  %low_right = shl <16 x i32> %line, splat (i32 16)
  %high_left = and <16 x i32> %words, splat (i32 -65536)
  %high_right = and <16 x i32> %line, splat (i32 -65536)
  %a = bitcast <16 x i32> %low_left to <16 x float>
  %b = bitcast <16 x i32> %low_right to <16 x float>
  %c = bitcast <16 x i32> %high_left to <16 x float>
  %d = bitcast <16 x i32> %high_right to <16 x float>
  %low = fmul <16 x float> %a, %b
  %low_sum = fadd <16 x float> %sum, %low
  %high = fmul <16 x float> %c, %d
  %high_sum = fadd <16 x float> %low_sum, %high
  %next_pair = add i64 %pair, 1
  %done_pairs = icmp eq i64 %next_pair, 16
  br i1 %done_pairs, label %done_row, label %pairs
done_row:
  store <16 x float> %high_sum, ptr %place
  %next_row = add i64 %row, 1
  %done_rows = icmp eq i64 %next_row, 16
  br i1 %done_rows, label %exit, label %rows
exit:
  ret void
}
""".replace("TILES", _TILES)


def _function(rows: int, columns: int) -> str:
    return f"tilewright_tiles_{rows}x{columns}"


def tiles_text(rows: int, columns: int, *, software: bool) -> str:
    """LLVM's text of the function that the intrinsic of a size calls."""
    down, across = rows // _ROWS, columns // _ROWS
    sums = [(_SUMS + 2 * r + c, r, c) for r, c in product(range(down), range(across))]
    config = [1, *[0] * 15, *[_BYTES, 0] * 8, *[0] * 16, *[_ROWS] * 8, *[0] * 8]
    listed = ", ".join(f"i8 {each}" for each in config)
    lines = [
        f"@{_function(rows, columns)}_config = private constant [64 x i8] [{listed}], align 64",
        f"define i32 @{_function(rows, columns)}(ptr %a, i64 %a_row, ptr %b, i64 %b_row, ptr %c, "
        "i64 %c_row, i64 %steps) alwaysinline {",
        "entry:",
        *([f"  %tiles = alloca {_TILES}, align 64"] if software else []),
        f"  call void @llvm.x86.ldtilecfg(ptr @{_function(rows, columns)}_config)",
        f"  %a_down = mul i64 %a_row, {_ROWS}",
        f"  %c_down = mul i64 %c_row, {_ROWS}",
        f"  %b_step = mul i64 %b_row, {_ROWS}",
        "  %c_1 = getelementptr i8, ptr %c, i64 %c_down",
    ]
    for tile, r, c in sums:
        lines += [
            f"  %c_{r}_{c} = getelementptr i8, ptr %{'c_1' if r else 'c'}, i64 {c * _BYTES}",
            f"  call void @llvm.x86.tileloadd64(i8 {tile}, ptr %c_{r}_{c}, i64 %c_row)",
        ]
    lines += [
        "  br label %loop",
        "loop:",
        "  %step = phi i64 [ 0, %entry ], [ %next, %loop ]",
        "  %a_0 = phi ptr [ %a, %entry ], [ %a_next, %loop ]",
        "  %b_0 = phi ptr [ %b, %entry ], [ %b_next, %loop ]",
        "  %a_1 = getelementptr i8, ptr %a_0, i64 %a_down",
        f"  %b_1 = getelementptr i8, ptr %b_0, i64 {_BYTES}",
    ]
    for number in range(across):
        lines.append(
            f"  call void @llvm.x86.tileloadd64(i8 {_RIGHT + number}, ptr %b_{number}, i64 %b_row)"
        )
    for number in range(down):
        lines.append(
            f"  call void @llvm.x86.tileloadd64(i8 {_LEFT + number}, ptr %a_{number}, i64 %a_row)"
        )
    for tile, r, c in sums:
        lines.append(f"  call void @llvm.x86.tdpbf16ps(i8 {tile}, i8 {_LEFT + r}, i8 {_RIGHT + c})")
    lines += [
        f"  %a_next = getelementptr i8, ptr %a_0, i64 {_BYTES}",
        "  %b_next = getelementptr i8, ptr %b_0, i64 %b_step",
        "  %next = add i64 %step, 1",
        "  %done = icmp eq i64 %next, %steps",
        "  br i1 %done, label %exit, label %loop, !llvm.loop !0",
        "exit:",
    ]
    for tile, r, c in sums:
        lines.append(f"  call void @llvm.x86.tilestored64(i8 {tile}, ptr %c_{r}_{c}, i64 %c_row)")
    lines += ["  call void @llvm.x86.tilerelease()", "  ret i32 0", "}"]
    lines += ["!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}']
    body = "\n".join(lines) + "\n"
    if not software:
        return _HARDWARE + body
    with_tiles = re.sub(r"(call void @llvm\.x86\.\w+\()", r"\1ptr %tiles, ", body)
    text = (_SOFTWARE + with_tiles).replace("@llvm.x86.", "@tilewright_software_")
    return text.replace("(ptr %tiles, )", "(ptr %tiles)")


@cache
def tile_product(rows: int, columns: int, depth: int) -> str:
    """The registered intrinsic: C[row, 0, column] += Σ A[row, k] * B[k / 2, column, k % 2]."""
    name = f"{_function(rows, columns)}_{depth}"
    TensorIntrin.register(name, _meaning(rows, columns, depth), _call(rows, columns, depth))
    return name


def _meaning(rows: int, columns: int, depth: int):
    @T.prim_func(s_tir=True)
    def sums(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (rows, depth), "uint16", offset_factor=1)
        B = T.match_buffer(b, (depth // 2, columns, 2), "uint16", offset_factor=1)
        C = T.match_buffer(c, (rows, 1, columns), "float32", offset_factor=1, scope="local")
        with T.sblock("root"):
            T.reads(
                C[0:rows, 0:1, 0:columns], A[0:rows, 0:depth], B[0 : depth // 2, 0:columns, 0:2]
            )
            T.writes(C[0:rows, 0:1, 0:columns])
            for i, j, k, t in T.grid(rows, columns, depth // 2, 2):
                with T.sblock("update"):
                    vi, vj, vk, vt = T.axis.remap("SSRR", [i, j, k, t])
                    C[vi, 0, vj] = C[vi, 0, vj] + half_product(A[vi, vk * 2 + vt], B[vk, vj, vt])

    return sums


def _call(rows: int, columns: int, depth: int):
    function = _function(rows, columns)

    @T.prim_func(s_tir=True)
    def product_of_tiles(a: T.handle, b: T.handle, c: T.handle) -> None:
        a_row = T.int32()
        b_row = T.int32()
        c_row = T.int32()
        A = T.match_buffer(a, (rows, depth), "uint16", offset_factor=1, strides=[a_row, 1])
        B = T.match_buffer(
            b, (depth // 2, columns, 2), "uint16", offset_factor=1, strides=[b_row, 2, 1]
        )
        C = T.match_buffer(
            c,
            (rows, 1, columns),
            "float32",
            offset_factor=1,
            strides=[c_row, columns, 1],
            scope="local",
        )
        with T.sblock("root"):
            T.reads(
                C[0:rows, 0:1, 0:columns], A[0:rows, 0:depth], B[0 : depth // 2, 0:columns, 0:2]
            )
            T.writes(C[0:rows, 0:1, 0:columns])
            T.evaluate(
                T.call_extern(
                    "int32",
                    function,
                    A.access_ptr("r"),
                    T.cast(a_row, "int64") * T.int64(2),
                    B.access_ptr("r"),
                    T.cast(b_row, "int64") * T.int64(2),
                    C.access_ptr("rw"),
                    T.cast(c_row, "int64") * T.int64(4),
                    T.int64(depth // 32),
                )
            )

    return product_of_tiles
