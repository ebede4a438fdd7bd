"""Settings of another program's template as settings of one of ours."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, KnobValue, Placement
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Implementation
from tilewright.store.interchange.lines import NotUnderstood

Wanted = Mapping[str, tuple[KnobValue, ...]]
"""Values by knob, each with the other ways our knob may say the same."""

_SHOWN = 12


def fitted(
    spec: Implementation,
    workload: Workload,
    placement: Placement,
    forms: tuple[Form, ...],
    wanted: Wanted,
) -> Candidate:
    """The candidate with the wanted values; knobs nobody asks about get their first value.

    Wanted knobs that the spec does not have are left out: it always does what it does. Raises
    `NotUnderstood` for a value our knob does not take and for settings that are not valid
    together.
    """
    if not spec.applies(workload, placement.target, placement.resources):
        raise NotUnderstood(f"{spec.name} does not compute {workload.key}")
    settings: dict[str, KnobValue] = {}
    for knob in spec.knobs(workload, placement.target, placement.resources, forms):
        asked = wanted.get(knob.name)
        if asked is None:
            settings[knob.name] = knob.values[0]
            continue
        found = [value for value in knob.values if any(_same(value, other) for other in asked)]
        if not found:
            shown = ", ".join(map(str, knob.values[:_SHOWN]))
            more = ", …" if len(knob.values) > _SHOWN else ""
            raise NotUnderstood(
                f"{knob.name}={asked[0]} is no setting of {spec.name} here (it takes {shown}{more})"
            )
        settings[knob.name] = found[0]
    if not spec.valid(workload, placement.target, placement.resources, forms, settings):
        together = ", ".join(f"{name}={value}" for name, value in settings.items())
        raise NotUnderstood(f"{spec.name} refuses these settings together: {together}")
    return Candidate(
        implementation=spec.name, settings=tuple(sorted(settings.items())), forms=forms
    )


def _same(value: KnobValue, other: KnobValue) -> bool:
    return type(value) is type(other) and value == other
