"""Einsum, as products of matrices between transpositions.

    bind,bjnd->bnij     [b, n, i, d] · [b, n, j, d]ᵀ

A letter of both operands that is kept counts matrices, one that is summed up is the depth; letters
of one operand alone are its rows or columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.graph.clean.edit import only_if
from tilewright.models.onnx_import.node import OnnxNode, Tensor, Translated, translates

_FREE = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters for the axes that an ellipsis stands for, as far as the equation leaves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """A tensor with a letter for each axis."""

    x: Tensor
    letters: str

    def size(self, letters: str) -> int:
        """Elements along these axes."""
        return prod(self.x.shape[self.letters.index(letter)] for letter in letters)

    def ordered(self, letters: str) -> Tensor:
        """The tensor with its axes in this order."""
        return self.x.transpose([self.letters.index(letter) for letter in letters])

    def only(self, kept: Collection[str]) -> _Term:
        """The sum over all other axes."""
        axes = tuple(i for i, letter in enumerate(self.letters) if letter not in kept)
        if not axes:
            return self
        left = "".join(letter for letter in self.letters if letter in kept)
        return _Term(x=self.x.emit("reduce_sum", axes=axes, keepdims=False), letters=left)


@translates("Einsum")
def einsum(node: OnnxNode) -> Translated:
    """Einsum → batch_matmul, or dense with a constant operand, one operand after the other."""
    operands = node.several(len(node.inputs))
    only_if(all("float" in operand.dtype for operand in operands))
    terms, result = _terms(node.text("equation", ""), operands)
    found = terms[0]
    for number, term in enumerate(terms[1:], 2):
        later = {*result, *(letter for each in terms[number:] for letter in each.letters)}
        found = _product(found.only(later | {*term.letters}), term, later)
    return found.only(result).ordered(result)


def _terms(equation: str, operands: Sequence[Tensor]) -> tuple[list[_Term], str]:
    """The operands with their letters, and the letters of the result. Left to others are diagonals,
    a letter twice, and axes of one element that are repeated."""
    left, arrow, result = "".join(equation.split()).partition("->")
    texts = left.split(",")
    only_if(len(texts) == len(operands))
    free = "".join(letter for letter in _FREE if letter not in equation)
    hidden = [x.rank - len(t.replace("...", "")) for t, x in zip(texts, operands, strict=True)]
    most = free[: max([h for t, h in zip(texts, hidden, strict=True) if "..." in t], default=0)]
    written = [
        text.replace("...", most[len(most) - count :]) if "..." in text else text
        for text, count in zip(texts, hidden, strict=True)
    ]
    if not arrow:
        every = "".join(texts).replace(".", "")
        result = "..." * bool(most) + "".join(c for c in sorted({*every}) if every.count(c) == 1)
    result = result.replace("...", most)
    sizes: dict[str, int] = {}
    for text, x in zip(written, operands, strict=True):
        only_if(len(text) == x.rank == len({*text}))
        for letter, size in zip(text, x.shape, strict=True):
            only_if(sizes.setdefault(letter, size) == size)
    only_if(len({*result}) == len(result) and {*result} <= sizes.keys())
    return [_Term(x=x, letters=t) for t, x in zip(written, operands, strict=True)], result


def _product(a: _Term, b: _Term, kept: Collection[str]) -> _Term:
    """Two operands as one, summed up over what both have and nobody keeps."""
    b = b.only({*kept, *a.letters})
    both = [letter for letter in a.letters if letter in b.letters]
    batch = "".join(letter for letter in both if letter in kept)
    summed = "".join(letter for letter in both if letter not in kept)
    rows, columns = (
        "".join(letter for letter in one.letters if letter not in other.letters)
        for one, other in ((a, b), (b, a))
    )
    if a.x.value is not None and b.x.value is None and not batch:
        return _product(b, a, kept)
    letters = batch + rows + columns
    if not summed:
        return _Term(x=_spread(a, letters) * _spread(b, letters), letters=letters)
    depth, counts = a.size(summed), [a.size(letter) for letter in batch]
    left = a.ordered(batch + rows + summed)
    if b.x.value is not None and not batch:
        matrix = b.ordered(summed + columns).reshape((depth, b.size(columns)))
        found = left.reshape((*(map(a.size, rows) if rows else (1,)), depth)).emit("dense", matrix)
    else:
        turned = b.letters[-1] in summed
        right = b.ordered(batch + (columns + summed if turned else summed + columns))
        sides = (b.size(columns), depth) if turned else (depth, b.size(columns))
        found = left.reshape((*counts, a.size(rows), depth)).emit(
            "batch_matmul", right.reshape((*counts, *sides)), transpose_b=turned
        )
    sizes = (*counts, *map(a.size, rows), *map(b.size, columns))
    return _Term(x=found.reshape(sizes), letters=letters)


def _spread(term: _Term, letters: str) -> Tensor:
    """The tensor with one element along the axes that it lacks."""
    mine = "".join(letter for letter in letters if letter in term.letters)
    sizes = [term.size(letter) if letter in mine else 1 for letter in letters]
    return term.ordered(mine).reshape(sizes)
