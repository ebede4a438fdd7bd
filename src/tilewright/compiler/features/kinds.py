"""The kinds of features by name. Importing this needs no TVM; making features does."""

from __future__ import annotations

from typing import Any

from tilewright.compiler.features import curve, itervar, store
from tilewright.compiler.features.nests import Floats

WIDTHS = {"itervar": itervar.WIDTH, "curve": curve.WIDTH, "store": store.WIDTH}
"""Columns of a row by kind."""


def kernel_features(module: Any, target: str, kind: str) -> Floats:
    """The features of a scheduled module whose function is `main`.

    KeyError for an unknown kind.
    """
    if kind == "store":
        return store.store_features(module, target)
    from tilewright.compiler.features.loops import loop_nests

    make = {"itervar": itervar.itervar_features, "curve": curve.curve_features}[kind]
    return make(loop_nests(module["main"]))
