"""Test files translated once for all processes of a run, where each used to translate all of them.

pytest rewrites the assertions of a test file before it runs it and keeps the result beside the
file. Two processes that collect a fresh checkout do so in step: neither finds what the other keeps.
So every process but the first begins with that alone, from the end of the list, while the first
one imports the libraries, whose bytecode the others then find.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import module_from_spec
from pathlib import Path

FIRST = "gw0"


def rewrite_ahead(arguments: Iterable[str], root: Path) -> None:
    """In every worker of a run but the first: translate the test files in these places, relative
    to `root`, and keep the results; run none of them."""
    if os.environ.get("PYTEST_XDIST_WORKER", FIRST) == FIRST or sys.dont_write_bytecode:
        return
    for file in reversed(files_in(arguments, root)):
        rewrite(file)


def files_in(arguments: Iterable[str], root: Path) -> list[Path]:
    """The test files of a command line, in the order in which they are collected."""
    places = [root / argument.split("::")[0] for argument in arguments]
    return [
        file
        for place in places
        for file in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])
    ]


def rewrite(file: Path) -> None:
    """Translate and keep one file. A module without built-ins cannot import, so it ends with its
    first line, which imports; what is wrong with a file is told by whoever runs it."""
    for finder in sys.meta_path:
        spec = finder.find_spec(file.stem, [str(file.parent)])
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            module.__dict__["__builtins__"] = {}
            with suppress(Exception):
                spec.loader.exec_module(module)
            return
