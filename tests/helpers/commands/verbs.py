"""Every verb of the command line with its function and its flags, as the command line has them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from cyclopts import App

from tilewright.cli.main import build_app


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """`name` as it is typed, `app` its place in the command line, `function` what it runs."""

    name: str
    app: App
    function: Callable[..., Any]

    @property
    def tree(self) -> ast.AST:
        return tree_of(self.function)

    @property
    def groups(self) -> list[type]:
        """The classes of flags that it takes."""
        hints = get_type_hints(self.function)
        found = [kind for hint in hints.values() for kind in (hint, *get_args(hint))]
        return [kind for kind in found if isinstance(kind, type) and is_dataclass(kind)]

    @property
    def own(self) -> list[str]:
        """Its parameters that are no class of flags."""
        hints = get_type_hints(self.function)
        hints.pop("return")
        groups = set(self.groups)
        return [name for name, hint in hints.items() if not groups & {hint, *get_args(hint)}]

    def group_of(self, field: str) -> type | None:
        """The class that has a flag."""
        for group in self.groups:
            if field in (each.name for each in fields(group)):
                return group
        return None


def verbs() -> list[Verb]:
    """All verbs, those of `study` and `db` included."""
    found: list[Verb] = []

    def walk(app: App, path: tuple[str, ...]) -> None:
        for name in app:
            if name.startswith("-"):
                continue
            below = app[name]
            if below.default_command is None:
                walk(below, (*path, name))
            else:
                found.append(
                    Verb(name=" ".join((*path, name)), app=below, function=below.default_command)
                )

    walk(build_app(), ())
    return found


def tree_of(function: Callable[..., Any]) -> ast.AST:
    """The syntax of a function."""
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def attributes(tree: ast.AST) -> set[str]:
    """The names after a dot."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def names(tree: ast.AST) -> set[str]:
    """The names that are read."""
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
