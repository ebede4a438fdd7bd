"""What implementations say of their workspaces is what their compiled kernels take."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

from helpers.kernels.convolutions import conv
from helpers.kernels.one_kernel import PLACEMENT, all_settings
from tilewright.compiler.build import WorkspaceReader, compiled, kernel_module
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Workspaces
from tilewright.kernels.planned_memory import PAGE_BYTES, workspaces_of

CONVOLUTION = conv((1, 32, 32, 32), 64, padding=(1, 1, 1, 1))
ALL_PLAIN = (PLAIN,) * (len(CONVOLUTION.arguments) + 1)


def candidate(task: Workload, name: str, **wanted: Any) -> Candidate:
    """The first setting of an implementation that has these values."""
    found = (s for s in all_settings(task, name, ALL_PLAIN) if wanted.items() <= dict(s).items())
    settings = tuple(sorted(next(found).items()))
    return Candidate(implementation=name, settings=settings, forms=ALL_PLAIN)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("conv2d_direct", {"padding": "stage"}),
        ("conv2d_winograd", {"strip": 0}),
        ("conv2d_winograd", {"strip": 1}),
    ],
)
def test_the_compiled_kernel_takes_what_was_said(name: str, wanted: dict[str, Any]) -> None:
    chosen = candidate(CONVOLUTION, name, **wanted)
    reader = WorkspaceReader()
    with tvm.transform.PassContext(instruments=[reader]):
        compiled(
            kernel_module(CONVOLUTION, chosen, PLACEMENT.target, PLACEMENT.resources),
            PLACEMENT.target,
            PLACEMENT.resources,
        )
    (found,) = reader.found.values()
    said = workspaces_of(CONVOLUTION, chosen, PLACEMENT.target, PLACEMENT.resources)
    assert _whole(found) == _whole(said)
    assert any(said.shared) != any(said.own)


def _whole(found: Workspaces) -> tuple[list[int], list[int]]:
    """Shared and own buffers, less those of a few pages, such as one row of tiles."""
    large = 16 * PAGE_BYTES
    return sorted(s for s in found.shared if s > large), sorted(s for s in found.own if s > large)
