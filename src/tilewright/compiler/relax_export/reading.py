"""Files that hold a module of Relax: JSON that `tvm.ir.save_json` wrote, and scripts.

A script is not run as a program: of its statements only modules, functions, and the constants
that TVM prints with them are looked at. TVM's parser evaluates expressions inside them, though.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tilewright.core.errors import ModelError, quoted

_OF_TVM = (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError)
"""What TVM raises of a text that it cannot take; its own error types are among them."""


def read_module(path: Path) -> tvm.IRModule:
    """The module in a file. Raises ModelError for what is none."""
    where = quoted(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{where} is no text") from error
    found: Any = _from_script(text, where) if path.suffix == ".py" else _from_json(text, where)
    if isinstance(found, relax.Function):
        found = tvm.IRModule({"main": found})
    if not isinstance(found, tvm.IRModule):
        raise ModelError(f"{where} holds a {type(found).__name__}, not a tvm.IRModule")
    return found


def _from_json(text: str, where: str) -> Any:
    try:
        return tvm.ir.load_json(text)
    except _OF_TVM as error:
        raise ModelError(
            f"{where} is not what tvm.ir.save_json writes, or is damaged: {_first(error)}"
        ) from error


def _from_script(text: str, where: str) -> Any:
    """The only module, or the only function, of a script."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise ModelError(f"{where} is no Python: {error}") from error
    constants: dict[str, Any] = {}
    found: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            found.append(statement)
        elif (printed := _printed_constants(statement)) is not None:
            constants["metadata"] = _from_json(printed, where)
        elif not _is_harmless(statement):
            raise ModelError(
                f"{where}, line {statement.lineno}: only imports and one module, or one function, "
                "of TVMScript may be in a script",
                hint="A program that makes a module runs in Python: tvm.ir.save_json(module) there "
                "gives a file.",
            )
    if len(found) != 1:
        raise ModelError(f"{where} holds {len(found)} modules and functions, not one")
    source = "\n" * (found[0].lineno - 1) + ast.unparse(found[0])
    try:
        return tvm.script.from_source(source, extra_vars={**_names(), **constants})
    except _OF_TVM as error:
        raise ModelError(f"{where} is no TVMScript of Relax: {_first(error)}") from error


def _names() -> dict[str, Any]:
    """What a script may call its dialects."""
    from tvm.script import ir, tirx
    from tvm.script import relax as of_relax

    return {
        "tvm": tvm,
        "I": ir,
        "ir": ir,
        "R": of_relax,
        "relax": of_relax,
        "T": tirx,
        "tirx": tirx,
    }


def _printed_constants(statement: ast.stmt) -> str | None:
    """The JSON of `metadata = tvm.ir.load_json("…")`, as TVM prints it above a module."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(id="metadata")],
            value=ast.Call(
                func=ast.Attribute(attr="load_json"), args=[ast.Constant(value=str(text))]
            ),
        ):
            return text
        case _:
            return None


def _is_harmless(statement: ast.stmt) -> bool:
    """Imports, whose names TVM knows, and texts."""
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return text or isinstance(statement, (ast.Import, ast.ImportFrom))


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^~|-")]
    return quoted(lines[0])[1:-1] if lines else type(error).__name__
