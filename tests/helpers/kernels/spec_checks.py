"""What our own specs must keep beyond the shipped suite, for the tests of single specs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core.forms import Form, channel_block
from tilewright.core.records import Candidate, Placement, Settings
from tilewright.cost.demand import Column
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Implementation
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.search_space import knob_space
from tilewright.testing import implementations as suite


def check_space(
    spec: Implementation, task: Workload, on: Placement, forms: tuple[Form, ...]
) -> tuple[list[Settings], Mapping[str, Column]]:
    """The shipped checks of space and facts; then, of every valid setting: no fact is negative."""
    suite.check_space(spec, task, on, forms)
    suite.check_demand(spec, task, on, forms)
    space = knob_space(spec, task, on.target, on.resources, forms)
    settings: list[Settings] = [space.settings(number) for number in space]
    facts = facts_of(spec, task, on.target, on.resources, forms, settings)
    for name, column in facts.items():
        assert len(column) == len(settings), name
        assert np.isfinite(column).all(), name
        assert (column >= 0).all(), name
    assert (facts["estimate_s"] > 0).all()
    assert (facts["parallel_extent"] >= 1).all()
    assert 0 < spec.error_bound(task) < 1e-3
    return settings, facts


def blocks_of(spec: Implementation, task: Workload, on: Placement) -> list[int]:
    """The channel blocks it offers for its result, the usual one first; 0 stands for plain."""
    offered = (channel_block(ports[-1]) for ports in spec.port_forms(task, on.target, on.resources))
    return list(dict.fromkeys(offered))


def best(settings: list[Settings], facts: Mapping[str, Column]) -> Settings:
    """The setting with the least estimate."""
    return settings[int(np.argmin(facts["estimate_s"]))]


def check_packing(spec: Implementation, task: Workload, chosen: Candidate) -> None:
    """The shipped check of packed constants; then: every weight is kept exactly once."""
    constants, packed = suite.check_packed(spec, task, chosen)
    for index in spec.packed_shapes(task, chosen):
        kept = np.sort(packed[index][packed[index] != 0])
        assert (kept == np.sort(constants[index].ravel())).all()
