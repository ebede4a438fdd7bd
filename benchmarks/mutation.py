"""Seeded changes of one place in a random function of the package.

    mutants(root, count=100, seed=0)   the same changes for the same sources, count and seed

Functions are drawn by a hash of their names, changes by one of their text, so a sample stays while
other functions come and go.

A change flips a comparison, an operator of arithmetic or logic, a condition, or a constant. Changes
that mean the same are hard to tell by rule; text, annotations, `raise` and the `strict` of a `zip`
are left alone: words of messages are no behaviour that a test should hold, and checks of what
always holds cannot be seen.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change: `before` becomes `after` in a line of a file, within a function.

    `function` is its dotted name within the file; `text` a hash of the function as it is.
    """

    file: str
    function: str
    text: str
    line: int
    column: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """Where it is and what it does, in one line."""
        return f"{self.file} {self.function}: {self.before} -> {self.after}"

    def applied(self, source: str) -> str:
        """The file's text with the change in it."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        end = self.column + len(self.before.encode())
        assert line[self.column : end] == self.before.encode(), f"{self.name}: other sources"
        lines[self.line - 1] = (line[: self.column] + self.after.encode() + line[end:]).decode()
        return "".join(lines)


def mutants(root: Path, *, count: int, seed: int) -> list[Mutant]:
    """Changes of functions drawn at random, one of each; the first ones stay when `count` grows."""
    functions: dict[tuple[str, str], list[Mutant]] = {}
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if file.split("/")[0] != "testing":
            for mutant in _of_file(file, path.read_text(encoding="utf-8")):
                functions.setdefault((file, mutant.function), []).append(mutant)
    order = sorted(functions, key=lambda name: _hash(seed, *name))
    return [
        min(functions[name], key=lambda each: _hash(seed, each.before, each.after))
        for name in order[:count]
    ]


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _of_file(file: str, source: str) -> Iterator[Mutant]:
    lines = source.encode().splitlines()
    for name, owner in functions(ast.parse(source)):
        for node in _expressions(owner):
            after = _flipped(node)
            if after is not None and node.end_lineno == node.lineno:
                written = lines[node.lineno - 1][node.col_offset : node.end_col_offset]
                yield Mutant(
                    file=file,
                    function=name,
                    text=_hash(ast.unparse(owner)),
                    line=node.lineno,
                    column=node.col_offset,
                    before=written.decode(),
                    after=after,
                )


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function with its dotted name, as coverage names it: classes and outer functions are
    part of the name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            name = f"{within}{child.name}"
            if isinstance(child, ast.FunctionDef):
                yield name, child
            yield from functions(child, f"{name}.")
        else:
            yield from functions(child, within)


def _expressions(owner: ast.FunctionDef) -> Iterator[ast.expr]:
    """The expressions of a function that decide what it does, but for those of inner functions."""
    waiting: list[ast.AST] = list(owner.body)
    while waiting:
        node = waiting.pop()
        checks = isinstance(node, ast.keyword) and node.arg == "strict"
        if checks or isinstance(node, (ast.FunctionDef, ast.Raise, ast.JoinedStr, ast.Assert)):
            continue
        if isinstance(node, ast.AnnAssign):
            waiting += [node.value] if node.value is not None else []
            continue
        if isinstance(node, ast.expr):
            yield node
        waiting += ast.iter_child_nodes(node)


def _flipped(node: ast.expr) -> str | None:
    """The text of the changed expression; None for one that is left alone."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        new = _COMPARISONS[type(node.ops[0])]()
        return ast.unparse(ast.Compare(node.left, [new], node.comparators))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not _joins_paths(node):
        return ast.unparse(ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right))
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"({ast.unparse(ast.BoolOp(other, node.values))})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"bool({ast.unparse(node.operand)})"
    if isinstance(node, ast.IfExp):
        return ast.unparse(ast.IfExp(node.test, node.orelse, node.body))
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return f"({node.value + 1!r})"
    return None


def _joins_paths(node: ast.BinOp) -> bool:
    """Whether a division is one of paths: what comes of another operator fails at once."""
    words = (ast.Constant, ast.JoinedStr)
    strings = any(
        isinstance(side, words) and not isinstance(getattr(side, "value", ""), (int, float))
        for side in (node.left, node.right)
    )
    return isinstance(node.op, ast.Div) and (strings or "ath" in ast.unparse(node))
