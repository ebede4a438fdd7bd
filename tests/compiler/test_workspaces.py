"""What implementations say of their workspaces is what their compiled kernels take."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

from helpers.fakes.placements import altered
from helpers.kernels.convolutions import conv
from helpers.kernels.one_kernel import PLACEMENT
from tilewright.compiler.build import WorkspaceReader, compiled, kernel_module
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.base import Workspaces
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.planned_memory import PAGE_BYTES, workspaces_of
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space

CONVOLUTION = conv((1, 32, 32, 32), 64, padding=(1, 1, 1, 1))
ALL_PLAIN = (PLAIN,) * (len(CONVOLUTION.arguments) + 1)


HERE = altered(local_placement(2), vector_bytes=PLACEMENT.target.vector_bytes)
needs_halves = pytest.mark.skipif(
    not half_lanes(HERE.target), reason="no products of bfloat16 here"
)


def candidate(task: Workload, name: str, on: Placement, **wanted: Any) -> Candidate:
    """The first setting of an implementation that has these values."""
    space = knob_space(implementation(name), task, on.target, on.resources, ALL_PLAIN)
    every = (space.settings(number) for number in space)
    found = (settings for settings in every if wanted.items() <= settings.items())
    settings = tuple(sorted(next(found).items()))
    return Candidate(implementation=name, settings=settings, forms=ALL_PLAIN)


@pytest.mark.parametrize(
    ("name", "wanted", "on"),
    [
        ("conv2d_direct", {"padding": "stage"}, PLACEMENT),
        ("conv2d_winograd", {"strip": 0}, PLACEMENT),
        ("conv2d_winograd", {"strip": 1}, PLACEMENT),
        pytest.param("conv2d_winograd_bfloat16", {"strip": 0}, HERE, marks=needs_halves),
        pytest.param("conv2d_winograd_bfloat16", {"strip": 1}, HERE, marks=needs_halves),
    ],
)
def test_the_compiled_kernel_takes_what_was_said(
    name: str, wanted: dict[str, Any], on: Placement
) -> None:
    chosen = candidate(CONVOLUTION, name, on, **wanted)
    reader = WorkspaceReader()
    with tvm.transform.PassContext(instruments=[reader]):
        compiled(
            kernel_module(CONVOLUTION, chosen, on.target, on.resources), on.target, on.resources
        )
    (found,) = reader.found.values()
    said = workspaces_of(CONVOLUTION, chosen, on.target, on.resources)
    assert _whole(found) == _whole(said)
    assert any(said.shared) != any(said.own)


def _whole(found: Workspaces) -> tuple[list[int], list[int]]:
    """Shared and own buffers, less those of a few pages, such as one row of tiles."""
    large = 16 * PAGE_BYTES
    return sorted(s for s in found.shared if s > large), sorted(s for s in found.own if s > large)
