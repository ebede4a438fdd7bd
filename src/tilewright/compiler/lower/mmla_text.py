"""Sums of tiles by ARM's products of matrices, as LLVM's text.

    smmla, usmmla   2 × 8 codes times 8 × 2, added to 2 × 2 sums of 32 bits
    bfmmla          2 × 4 bfloat16 times 4 × 2, added to 2 × 2 singles

A register of data is a word of eight bytes of each of two lines, a register of weights one of each
of two columns. Sums lie in blocks of two lines and two columns until they are stored, line by line.
The function is called as that of tile registers is, see `amx_text`.
"""

from __future__ import annotations

from itertools import product

from tilewright.compiler.lower.amx_text import (
    SIGNATURE,
    SUM_BYTES,
    Tiles,
    fetch_offsets,
    fetches,
    nest,
)

_WORD = 8
_REGISTER = 16
STORED = ("0, i32 1, i32 4, i32 5", "2, i32 3, i32 6, i32 7")
"""Where the four columns of each line of two are in two registers of sums."""


class _Text:
    """LLVM's text of the function of some tiles."""

    def __init__(self, tiles: Tiles) -> None:
        self.tiles, halves = tiles, tiles.kind.left == "uint16"
        self.factors = "<8 x bfloat>" if halves else "<16 x i8>"
        self.sums = "<4 x float>" if halves else "<4 x i32>"
        self.lines = tiles.down * tiles.rows
        self.pairs = range(-(-self.lines // 2))
        self.columns = range(tiles.out * tiles.lanes // 2)

    def data(self, pair: int) -> list[str]:
        """A register of data: one load where both lines lie beside each other."""
        tiles, first = self.tiles, 2 * pair
        both, from_ = first + 1 < self.lines, f"%left_{first}"
        found = [self._address(from_, "%a_at", f"%a_of_{first}")]
        if both and tiles.together and (first + 1) % tiles.rows:
            return [*found, f"  %data_{pair} = load {self.factors}, ptr {from_}, align 2"]
        found += [
            f"  %low_{pair} = load i64, ptr {from_}, align 2",
            f"  %one_{pair} = insertelement <2 x i64> zeroinitializer, i64 %low_{pair}, i64 0",
        ]
        whole = f"%one_{pair}"
        if both:
            whole, from_ = f"%two_{pair}", f"%left_{first + 1}"
            found += [
                self._address(from_, "%a_at", f"%a_of_{first + 1}"),
                f"  %high_{pair} = load i64, ptr {from_}, align 2",
                f"  {whole} = insertelement <2 x i64> %one_{pair}, i64 %high_{pair}, i64 1",
            ]
        return [*found, f"  %data_{pair} = bitcast <2 x i64> {whole} to {self.factors}"]

    def weights(self, column: int) -> list[str]:
        """A register of weights: of two columns as they lie."""
        out, place = divmod(column, self.tiles.lanes // 2)
        return [
            self._address(f"%of_{column}", "%b_at", f"%b_out_of_{out}"),
            self._address(f"%right_{column}", f"%of_{column}", place * _REGISTER),
            f"  %weights_{column} = load {self.factors}, ptr %right_{column}, align 16",
        ]

    def added(self, pair: int, column: int) -> list[str]:
        """A product of two registers, added to a third."""
        name, sums, factors = f"{pair}_{column}", self.sums, self.factors
        operands = f"{sums} %before_{name}, {factors} %data_{pair}, {factors} %weights_{column}"
        instruction = f"@llvm.aarch64.neon.{self.tiles.kind.instruction}"
        return [
            f"  %before_{name} = load {sums}, ptr %sums_{name}",
            f"  %after_{name} = call {sums} {instruction}({operands})",
            f"  store {sums} %after_{name}, ptr %sums_{name}",
        ]

    def step(self) -> list[str]:
        """Loads and products of a word: first all of the matrix that takes fewer registers."""
        few, many = (self.pairs, self.data), (self.columns, self.weights)
        if len(self.pairs) > len(self.columns):
            few, many = many, few
        found = [line for number in few[0] for line in few[1](number)]
        for number in many[0]:
            found += many[1](number)
            for other in few[0]:
                found += self.added(
                    *((number, other) if few[0] is self.columns else (other, number))
                )
        return found

    def stores(self) -> list[str]:
        """Sums line by line."""
        found = list[str]()
        for pair, two in product(self.pairs, self.columns[::2]):
            out, place = divmod(2 * two, self.tiles.lanes)
            loaded = [f"%last_{pair}_{column}" for column in (two, two + 1)]
            for name, column in zip(loaded, (two, two + 1), strict=True):
                found.append(f"  {name} = load {self.sums}, ptr %sums_{pair}_{column}")
            for half, line in enumerate(range(2 * pair, min(2 * pair + 2, self.lines))):
                name = f"{line}_{two}"
                found += [
                    f"  %plain_{name} = shufflevector {self.sums} {loaded[0]}, "
                    f"{self.sums} {loaded[1]}, <4 x i32> <i32 {STORED[half]}>",
                    self._address(f"%line_{name}", "%c", f"%c_of_{line}"),
                    self._address(f"%out_{name}", f"%line_{name}", f"%c_out_of_{out}"),
                    self._address(f"%to_{name}", f"%out_{name}", place * SUM_BYTES),
                    f"  store {self.sums} %plain_{name}, ptr %to_{name}, align 4",
                ]
        return found

    def function(self) -> str:
        """The whole function."""
        tiles, blocks = self.tiles, [*product(self.pairs, self.columns)]
        lines = [SIGNATURE.format(function=tiles.function), "entry:"]
        lines += [f"  %sums_{pair}_{column} = alloca {self.sums}" for pair, column in blocks]
        for line in range(self.lines):
            lines += self._offset("a", line) + self._offset("c", line)
        for out in range(tiles.out):
            lines += [f"  %{m}_out_of_{out} = mul i64 %{m}_out, {out}" for m in "bc"]
        lines += fetch_offsets(tiles)
        lines += [
            f"  store {self.sums} zeroinitializer, ptr %sums_{pair}_{column}"
            for pair, column in blocks
        ]
        begin, end = nest(4)
        lines += [
            "  %chunks = add i64 %n_0, 0",
            f"  %n_3 = add i64 {tiles.depth_bytes // _WORD}, 0",
            f"  %s_3 = add i64 {_WORD}, 0",
            "  br label %loop_0",
            *begin,
            *fetches(tiles),
            *self.step(),
            self._address("%b_next", "%b_at", tiles.step_bytes),
            *end,
            "exit:",
            *self.stores(),
        ]
        return "\n".join([*lines, "  ret i32 0", "}", *_UNROLLED_NEVER])

    def _offset(self, matrix: str, line: int) -> list[str]:
        """Of a line of a matrix from its first one, in bytes."""
        down, across = divmod(line, self.tiles.rows)
        name = f"{matrix}_of_{line}"
        return [
            f"  %{name}_down = mul i64 %{matrix}_down, {down}",
            f"  %{name}_across = mul i64 %{matrix}_row, {across}",
            f"  %{name} = add i64 %{name}_down, %{name}_across",
        ]

    @staticmethod
    def _address(name: str, place: str, offset: int | str) -> str:
        return f"  {name} = getelementptr i8, ptr {place}, i64 {offset}"


_UNROLLED_NEVER = ["!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}', ""]


def mmla_text(tiles: Tiles) -> str:
    """The function of some tiles."""
    return _Text(tiles).function()
