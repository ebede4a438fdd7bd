"""The functions of tiles, as LLVM's text.

    f(a, b, c, …)     sums of a tile begin at zero, stay in registers over three nested loops and
                      are stored once; weights are read from one end to the other
    f_begin, f_end    set the registers up and give them back

AMX of x86 has eight registers of up to 16 lines of 64 bytes, and instructions that multiply two of
them and add to a third: 16 × 16 sums of 32 products of bfloat16, or of 64 of bytes. A processor
without AMX is given a software tile unit, the same functions in plain code, so that what surrounds
them can be tested anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from tvm import tirx

from tilewright.compiler.lower.amx_software import SOFTWARE
from tilewright.compiler.lower.byte_dots import byte_product
from tilewright.compiler.lower.half_dots import half_product
from tilewright.core.targets import Target
from tilewright.kernels.amx import LINE_BYTES, REGISTERS, ROWS

_LEFT, _RIGHT = (4, 5), (6, 7)
"""Registers of the left and the right matrix; those before are sums."""
SUM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TileKind:
    """What is multiplied: the `instruction`, element types of both matrices and of the sums, one
    product as an expression, and the bytes of a `word`, which one step of the instruction
    multiplies in each line."""

    instruction: str
    left: str
    right: str
    sums: str
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]
    word: int = 4

    @property
    def element_bytes(self) -> int:
        """Of an element of either matrix."""
        return {"uint16": 2}.get(self.left, 1)

    @property
    def terms(self) -> int:
        """Products that a step adds to each sum."""
        return self.word // self.element_bytes

    @property
    def set_up(self) -> bool:
        """Whether registers must be set up: those of AMX are."""
        return self.instruction.startswith("tdp")


_CODES = partial(byte_product, added=0)
HALVES = TileKind(
    instruction="tdpbf16ps", left="uint16", right="uint16", sums="float32", product=half_product
)
HALVES_BY_MMLA = replace(HALVES, instruction="bfmmla", word=8)


def code_tiles(dtype: str) -> TileKind:
    """Products of data in codes of a type with weights."""
    instruction = "tdpbssd" if dtype == "int8" else "tdpbusd"
    return TileKind(instruction=instruction, left=dtype, right="int8", sums="int32", product=_CODES)


def codes_by_mmla(dtype: str) -> TileKind:
    """The same by ARM's products of matrices."""
    instruction = "smmla" if dtype == "int8" else "usmmla"
    return replace(code_tiles(dtype), instruction=instruction, word=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Sums that are added up together: `down` registers of `rows` lines, and `out` chunks of
    `lanes` columns, 16 or 32; `depth` values of a line of the left matrix are multiplied at once.
    Registers below each other are of rows, or, `beside`, of parts of one row. Each step fetches
    `fetched` lines of memory ahead, of every chunk. Lines of a tile may be `beyond` the last one of
    the left matrix: in its last chunk those that there are are copied first. Lines below each other
    may lie `together`, without anything between them.
    """

    kind: TileKind
    rows: int
    down: int
    out: int
    lanes: int
    depth: int
    beside: bool = False
    beyond: bool = False
    fetched: int = 0
    together: bool = False

    @property
    def function(self) -> str:
        """The name of the function that adds them up."""
        sizes = f"{self.down}x{self.rows}_{self.out}x{self.lanes}_{self.depth}_{self.fetched}"
        sizes += "_beyond" * self.beyond + "_together" * self.together
        return f"tilewright_{self.kind.instruction}_{sizes}"

    @property
    def across(self) -> int:
        """Registers of sums beside each other."""
        return self.out * self.lanes // ROWS

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of pixels of a tile."""
        return (1, self.down * self.rows) if self.beside else (self.down, self.rows)

    @property
    def slots(self) -> int:
        """Lines of a register of the right matrix."""
        return self.depth // self.kind.terms

    @property
    def depth_bytes(self) -> int:
        """Of the part of a line that is multiplied at once."""
        return self.depth * self.kind.element_bytes

    @property
    def step_bytes(self) -> int:
        """Of the weights of a chunk that a step of the innermost loop reads."""
        return (self.depth_bytes if self.kind.set_up else self.kind.word) * self.lanes

    def config(self) -> str:
        """The 64 bytes that say how large the registers are."""
        sums = self.down * self.across
        lines, widths = [0] * REGISTERS, [0] * REGISTERS
        sizes = {number: (self.rows, LINE_BYTES) for number in range(sums)}
        sizes |= {number: (self.rows, self.depth_bytes) for number in _LEFT}
        sizes |= {number: (self.slots, LINE_BYTES) for number in _RIGHT}
        for number, (height, width) in sizes.items():
            lines[number], widths[number] = height, width
        listed = [1, *[0] * 15]
        for width in (*widths, *[0] * 8):
            listed += [width, 0]
        return ", ".join(f"i8 {each}" for each in (*listed, *lines, *[0] * 8))


def in_software(target: Target, kind: TileKind) -> bool:
    """Whether a processor lacks the instruction."""
    needed = {"amx-tile", "amx-bf16" if kind.terms == 2 else "amx-int8"}
    return not needed <= {*target.features}


_HARDWARE = """
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.INSTRUCTION(i8 immarg, i8 immarg, i8 immarg)
@FUNCTION_config = private constant [64 x i8] [CONFIG], align 64
define i32 @FUNCTION_begin() alwaysinline {
  call void @llvm.x86.ldtilecfg(ptr @FUNCTION_config)
  ret i32 0
}
define i32 @FUNCTION_end() alwaysinline {
  call void @llvm.x86.tilerelease()
  ret i32 0
}
"""
_NO_HARDWARE = """
define i32 @FUNCTION_begin() alwaysinline {
  ret i32 0
}
define i32 @FUNCTION_end() alwaysinline {
  ret i32 0
}
"""


class _Text:
    """LLVM's text of the function of some tiles."""

    def __init__(self, tiles: Tiles, *, software: bool) -> None:
        self.tiles, self.software = tiles, software
        self.line_bytes = {n: tiles.depth_bytes for n in _LEFT}
        self.lines_of = {n: tiles.slots for n in _RIGHT}
        self.a_row = "%a_row"

    def _sizes(self, register: int) -> str:
        lines = self.lines_of.get(register, self.tiles.rows)
        words = self.line_bytes.get(register, LINE_BYTES) // self.tiles.kind.word
        return f", i64 {lines}, i64 {words}"

    def call(self, name: str, registers: Sequence[int], *rest: str) -> str:
        """An instruction."""
        given = [*(f"i8 {register}" for register in registers), *rest]
        if not self.software:
            return f"  call void @llvm.x86.{name}({', '.join(given)})"
        sizes = self._sizes(registers[len(registers) > 1])
        return f"  call void @tilewright_software_{name}(ptr %tiles, {', '.join(given)}{sizes})"

    def step(self) -> list[str]:
        """Loads and products of one step of the innermost loop."""
        tiles, row = self.tiles, self.tiles.lanes * self.tiles.kind.word
        found, held = list[str](), dict[str, int]()

        def loaded(matrix: str, number: int) -> int:
            registers = _LEFT if matrix == "a" else _RIGHT
            register, stride = registers[number % 2], self.a_row if matrix == "a" else str(row)
            if held.get(f"{matrix}{register}") != number:
                held[f"{matrix}{register}"] = number
                place = f"%{matrix}_{number}"
                found.append(self.call("tileloadd64", [register], f"ptr {place}", f"i64 {stride}"))
            return register

        for r in range(tiles.down):
            for c in range(tiles.across):
                right, left = loaded("b", c), loaded("a", r)
                instruction = tiles.kind.instruction
                found.append(self.call(instruction, [r * tiles.across + c, left, right]))
        return found

    def places(self) -> list[str]:
        """Addresses of the registers' contents in one step."""
        tiles, inside = self.tiles, self.tiles.lanes // ROWS
        found = [
            f"  %a_{r} = getelementptr i8, ptr %a_at, i64 %a_down_{r}" for r in range(tiles.down)
        ]
        for c in range(tiles.across):
            out, part = divmod(c, inside)
            found.append(f"  %b_out_{c} = getelementptr i8, ptr %b_at, i64 %b_out_of_{out}")
            found.append(f"  %b_{c} = getelementptr i8, ptr %b_out_{c}, i64 {part * LINE_BYTES}")
        return found

    def few_begin(self) -> list[str]:
        """Leave the last chunk out of the loops where too few lines are there."""
        if not self.tiles.beyond:
            return ["  %chunks = add i64 %n_0, 0", "  br label %loop_0"]
        return [
            f"  %copied = alloca [{self.tiles.down * self.tiles.rows} x [16 x i32]], align 64",
            f"  %few = icmp slt i64 %lines, {self.tiles.down * self.tiles.rows}",
            "  %one = zext i1 %few to i64",
            "  %chunks = sub i64 %n_0, %one",
            "  %none = icmp eq i64 %chunks, 0",
            "  br i1 %none, label %exit, label %loop_0",
        ]

    def few_end(self) -> list[str]:
        """The last chunk where too few lines are there, from a copy of those."""
        if not self.tiles.beyond:
            return ["exit:"]
        tiles = self.tiles
        a_row, self.a_row = self.a_row, str(LINE_BYTES)
        lines = [
            "exit:",
            "  br i1 %few, label %last, label %stores",
            "last:",
            "  %a_chunks = mul i64 %chunks, %s_0",
            "  %a_last = getelementptr i8, ptr %a, i64 %a_chunks",
            f"  %b_chunks = mul i64 %chunks, {tiles.depth_bytes * tiles.lanes}",
            "  %b_at_last = getelementptr i8, ptr %b, i64 %b_chunks",
            "  br label %copy",
            "copy:",
            "  %line = phi i64 [ 0, %last ], [ %next_line, %copy ]",
            "  %line_offset = mul i64 %line, %a_row",
            "  %line_from = getelementptr i8, ptr %a_last, i64 %line_offset",
            "  %line_to = getelementptr [16 x i32], ptr %copied, i64 %line",
            f"  %line_words = load <{tiles.slots} x i32>, ptr %line_from, align 4",
            f"  store <{tiles.slots} x i32> %line_words, ptr %line_to, align 64",
            "  %next_line = add i64 %line, 1",
            "  %all = icmp eq i64 %next_line, %lines",
            "  br i1 %all, label %multiply, label %copy",
            "multiply:",
        ]
        step = [
            *(
                f"  %a_{r} = getelementptr i8, ptr %copied, i64 {r * tiles.rows * LINE_BYTES}"
                for r in range(tiles.down)
            ),
            *self.places()[tiles.down :],
            *self.step(),
        ]
        self.a_row = a_row
        lines += [re.sub(r"%([ab]_(?:out_)?(?:at|\d+))\b", r"%\1_last", line) for line in step]
        return [*lines, "  br label %stores", "stores:"]

    def sums(self) -> list[tuple[int, list[str]]]:
        """Each register of sums, and the lines that find its address."""
        tiles, inside = self.tiles, self.tiles.lanes // ROWS
        found = list[tuple[int, list[str]]]()
        for r in range(tiles.down):
            for c in range(tiles.across):
                number, (out, part) = r * tiles.across + c, divmod(c, inside)
                lines = [
                    f"  %c_down_{number} = getelementptr i8, ptr %c, i64 %c_down_of_{r}",
                    f"  %c_out_{number} = getelementptr i8, ptr %c_down_{number}, "
                    f"i64 %c_out_of_{out}",
                    f"  %c_{number} = getelementptr i8, ptr %c_out_{number}, "
                    f"i64 {part * LINE_BYTES}",
                ]
                found.append((number, lines))
        return found

    def function(self) -> str:
        """The whole function."""
        tiles, sums = self.tiles, self.sums()
        begin, end = nest(3)
        lines = [
            SIGNATURE.format(function=tiles.function),
            "entry:",
            *(["  %tiles = alloca [8 x [16 x <16 x i32>]], align 64"] if self.software else []),
            *(f"  %a_down_{r} = mul i64 %a_down, {r}" for r in range(tiles.down)),
            *(f"  %c_down_of_{r} = mul i64 %c_down, {r}" for r in range(tiles.down)),
            *(f"  %b_out_of_{o} = mul i64 %b_out, {o}" for o in range(tiles.out)),
            *(f"  %c_out_of_{o} = mul i64 %c_out, {o}" for o in range(tiles.out)),
            *([] if self.software else fetch_offsets(tiles)),
            *(self.call("tilezero", [number]) for number, _ in sums),
            *self.few_begin(),
            *begin,
            *self.places(),
            *([] if self.software else fetches(tiles)),
            *self.step(),
            f"  %b_next = getelementptr i8, ptr %b_at, i64 {tiles.depth_bytes * tiles.lanes}",
            *end,
            *self.few_end(),
        ]
        for number, place in sums:
            lines += place
            lines.append(self.call("tilestored64", [number], f"ptr %c_{number}", "i64 %c_row"))
        lines += ["  ret i32 0", "}", "!0 = distinct !{!0, !1}"]
        return "\n".join([*lines, '!1 = !{!"llvm.loop.unroll.disable"}', ""])


def fetches(tiles: Tiles) -> list[str]:
    """Instructions that fetch this tile's part of a step of the next chunks."""
    found = list[str]()
    for o, line in product(range(tiles.out), range(tiles.fetched)):
        name = f"%fetched_{o}_{line}"
        offset = f"%ahead_of_{o}" if not line else f"%ahead_of_{o}_{line}"
        found.append(f"  {name} = getelementptr i8, ptr %b_at, i64 {offset}")
        found.append(f"  call void @llvm.prefetch.p0(ptr {name}, i32 0, i32 2, i32 1)")
    return found


def fetch_offsets(tiles: Tiles) -> list[str]:
    """Where the first lines that are fetched lie, from the step on."""
    found = list[str]()
    for o in range(tiles.out if tiles.fetched else 0):
        found.append(f"  %ahead_of_{o} = add i64 %ahead, %b_out_of_{o}")
        for line in range(1, tiles.fetched):
            found.append(f"  %ahead_of_{o}_{line} = add i64 %ahead_of_{o}, {line * LINE_BYTES}")
    return found


SIGNATURE = (
    "define i32 @{function}(ptr %a, i64 %a_row, i64 %a_down, ptr %b, i64 %b_out, ptr %c, "
    "i64 %c_row, i64 %c_down, i64 %c_out, i64 %n_0, i64 %s_0, i64 %n_1, i64 %s_1, i64 %n_2, "
    "i64 %s_2, i64 %ahead, i64 %lines) alwaysinline {{"
)


def nest(levels: int) -> tuple[list[str], list[str]]:
    """What stands before and behind a step in so many loops over addresses of the left matrix that
    lie `s` bytes apart; the right one is read from one end to the other."""
    names = [*("0th", "1st", "2nd")[: levels - 1], "at"]
    begin, end = list[str](), list[str]()
    for level, name in enumerate(names):
        last = level == levels - 1
        before, outer = f"loop_{level - 1}", f"_{names[level - 1]}"
        if not level:
            before, outer = "entry", ""
        latch = f"loop_{level}" if last else f"end_{level}"
        begin += [
            f"loop_{level}:",
            f"  %i_{level} = phi i64 [ 0, %{before} ], [ %next_{level}, %{latch} ]",
            f"  %a_{name} = phi ptr [ %a{outer}, %{before} ], [ %a_next_{level}, %{latch} ]",
            f"  %b_{name} = phi ptr [ %b{outer}, %{before} ], [ %b_next, %{latch} ]",
            *([] if last else [f"  br label %loop_{level + 1}"]),
        ]
        count, behind = (f"n_{level}", f"end_{level - 1}") if level else ("chunks", "exit")
        found = [
            *([] if last else [f"end_{level}:"]),
            f"  %a_next_{level} = getelementptr i8, ptr %a_{name}, i64 %s_{level}",
            f"  %next_{level} = add i64 %i_{level}, 1",
            f"  %done_{level} = icmp eq i64 %next_{level}, %{count}",
            f"  br i1 %done_{level}, label %{behind}, label %loop_{level}, !llvm.loop !0",
        ]
        end = [*found, *end]
    return begin, end


def tiles_text(tiles: Tiles, target: Target) -> str:
    """All functions of some tiles, for a processor."""
    software = in_software(target, tiles.kind)
    head = _NO_HARDWARE + SOFTWARE if software else _HARDWARE
    head = head.replace("FUNCTION", tiles.function).replace("CONFIG", tiles.config())
    head = head.replace("INSTRUCTION", tiles.kind.instruction)
    return head + _Text(tiles, software=software).function()
