"""The families by name."""

from __future__ import annotations

from tilewright.core.errors import UsageError, close_matches
from tilewright.predict.base import Family
from tilewright.predict.families.convolution import CONV2D, ENERGY
from tilewright.predict.families.knobs import KNOBS
from tilewright.predict.families.matmul import BMM, GEMM_POWER, LINEAR
from tilewright.predict.families.rows import LAYER_NORM, SOFTMAX

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (CONV2D, LINEAR, BMM, SOFTMAX, LAYER_NORM, GEMM_POWER, KNOBS, ENERGY)
}


def family_named(name: str) -> Family:
    """The family of this name. Raises UsageError, with the names that are close."""
    if name not in FAMILIES:
        raise UsageError(f"There is no family {name!r}.", hint=close_matches(name, FAMILIES))
    return FAMILIES[name]
