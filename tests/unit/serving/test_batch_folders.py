"""Which batch sizes of artifacts requests can have."""

from __future__ import annotations

import pytest

from tilewright.core.errors import UsageError
from tilewright.deploy.shape_set import Member, ShapeSet, VariedAxis
from tilewright.serving.batch_folders import fitting_sizes, require_known


def test_a_batch_that_whole_requests_do_not_fill_is_refused() -> None:
    axis = VariedAxis(name="batch", sizes=(2, 3, 4), inputs={}, outputs={}, pads=True, reason="")
    members = tuple(
        Member(folder=f"batch{size}", sizes={"batch": size}, fingerprint="") for size in axis.sizes
    )
    known = fitting_sizes(ShapeSet(model="a model", axes=(axis,), members=members))
    assert known == (2, 4)
    require_known((1, 2, 4), known)
    with pytest.raises(UsageError, match=r"no artifact has a batch of 3 (.|\n)*Known: 1, 2, 4\."):
        require_known((3,), known)
