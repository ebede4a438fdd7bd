"""The builders of kernels by name: ours, and those of other packages."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from tilewright.compiler.builders.base import Builder
from tilewright.core.errors import TargetError, close_matches
from tilewright.core.plugins import Offers
from tilewright.core.records import Candidate
from tilewright.kernels.registry import builder_of

_BUILT_IN = ("llvm", "null", "onnxruntime", "cuda")


_OFFERS = Offers[Builder](
    "tilewright.builders",
    kind="builder",
    built_in={},
    needs=("name", "identify", "build", "render"),
)
"""Those of other packages; ours are modules beside this one, and not all are imported: LLVM's
builder takes TVM along."""


def builder_named(name: str) -> Builder:
    """The builder with this name. Raises TargetError where no installed package has it, PluginError
    where the package that has it is broken."""
    found = _OFFERS.find(name)
    if found is not None:
        return found
    if name in _BUILT_IN:
        return cast(Builder, import_module(f"tilewright.compiler.builders.{name}").BUILDER)
    raise TargetError(
        f"no installed package builds kernels with {name!r}",
        hint=close_matches(name, (*_BUILT_IN, *_OFFERS.others())),
    )


def builder_for(candidate: Candidate) -> Builder:
    """What builds a candidate's kernel: its implementation names it."""
    return builder_named(builder_of(candidate))
