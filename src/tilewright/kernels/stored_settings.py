"""Settings that were stored, by this version or an earlier one: what today's implementations make
of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.core.grouping import grouped
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Implementation
from tilewright.kernels.estimates import facts
from tilewright.kernels.registry import implementations, is_for
from tilewright.kernels.search_space import knob_space

_NEVER_OFFERED = (LookupError, ValueError, ArithmeticError, TypeError, InternalError)
"""What implementations raise for values and layouts that they do not offer."""


def refusals(
    workload: Workload, candidates: Sequence[Candidate], target: Target, resources: Resources
) -> list[str]:
    """Why today's implementations cannot compute a task in each candidate's settings, nor tell its
    facts; empty where they can.

    Refused are settings of an implementation that is gone, with a knob too few or too many, and
    those that are not valid. A value that is only not searched any more is none of these.
    """
    found = [""] * len(candidates)
    alike = grouped([((c.implementation, c.forms), row) for row, c in enumerate(candidates)])
    for (name, forms), rows in alike.items():
        spec, settings = implementations().get(name), [dict(candidates[r].settings) for r in rows]
        if spec is None or not is_for(spec, target):
            told = [f"there is no implementation {name}"] * len(rows)
        else:
            told = _Stored(spec, workload, target, resources, forms).refusals(settings)
        for row, why in zip(rows, told, strict=True):
            found[row] = why
    return found


@dataclass(frozen=True)
class _Stored:
    """Settings of one implementation for one task in its layouts."""

    spec: Implementation
    workload: Workload
    target: Target
    resources: Resources
    forms: tuple[Form, ...]

    def refusals(self, settings: Sequence[Settings]) -> list[str]:
        """See above; those that the space of today has are asked about together."""
        where = (self.workload, self.target, self.resources, self.forms)
        try:
            space = knob_space(self.spec, *where)
        except _NEVER_OFFERED:
            return [f"{self.spec.name} does not take such tasks any more"] * len(settings)
        names = [knob.name for knob in space.knobs]
        numbers = [space.number(one) for one in settings]
        listed = [number for number in numbers if number is not None]
        valid = dict(zip(listed, space.accepted(listed), strict=True))
        return [
            self._other_knobs(names, one)
            or self._invalid(valid[number] if number in valid else self._told(one))
            for one, number in zip(settings, numbers, strict=True)
        ]

    def _other_knobs(self, names: Sequence[str], settings: Settings) -> str:
        lacking = ", ".join(name for name in names if name not in settings)
        gone = ", ".join(sorted({*settings} - {*names}))
        if lacking:
            return f"{self.spec.name} needs {lacking}, too"
        return f"{self.spec.name} has no knob {gone} any more" if gone else ""

    def _invalid(self, is_valid: bool) -> str:  # noqa: FBT001
        return "" if is_valid else f"{self.spec.name} does not take such settings any more"

    def _told(self, settings: Settings) -> bool:
        """Whether settings with values that are not offered are valid, and have facts."""
        where = (self.workload, self.target, self.resources, self.forms)
        try:
            with np.errstate(all="ignore"):
                estimate_s = facts(self.spec, *where, [settings])["estimate_s"]
                return self.spec.valid(*where, settings) and bool(np.isfinite(estimate_s).all())
        except _NEVER_OFFERED:
            return False
