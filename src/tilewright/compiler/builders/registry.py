"""The builders of kernels by name: ours, and those of other packages."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import cast

from tilewright.compiler.builders.base import Builder
from tilewright.core.errors import TargetError, close_matches
from tilewright.core.plugins import load_plugins
from tilewright.core.records import Candidate
from tilewright.kernels.registry import builder_of

GROUP = "tilewright.builders"
_BUILT_IN = ("llvm", "null")


@cache
def _offered() -> dict[str, object]:
    return load_plugins(GROUP)


def builder_named(name: str) -> Builder:
    """The builder with this name; raises TargetError where no installed package has it."""
    if name in _offered():
        return cast(Builder, _offered()[name])
    if name in _BUILT_IN:
        return cast(Builder, import_module(f"tilewright.compiler.builders.{name}").BUILDER)
    raise TargetError(
        f"no installed package builds kernels with {name!r}",
        hint=close_matches(name, (*_BUILT_IN, *_offered())),
    )


def builder_for(candidate: Candidate) -> Builder:
    """What builds a candidate's kernel: its implementation names it."""
    return builder_named(builder_of(candidate))
