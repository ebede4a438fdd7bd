"""Steps of modelled time: which are explained, and which made-up ones are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

import cuda_bars
import cuda_smooth
from cuda_smooth import Point, Sized, Step, along
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.insight.single_operators import main_task
from tilewright.kernels.estimates import facts
from tilewright.kernels.spaces import ranked_defaults
from tilewright.models import ModelOptions

T4 = cuda_bars.placement("cuda -model=T4")
OPERATOR = cuda_bars.PADDING.replace("c=3", "c=5")
"""With more channels than a direct convolution takes."""
HEIGHTS = {str(h): OPERATOR.format(h=h, k=3, pad=0) for h in (203, 204, 205)}
EVEN = {str(h): OPERATOR.format(h=h, k=3, pad=0) for h in (202, 204)}
"""Sizes that have the same kernels."""
CHEAP = Point(
    size="1", name="", tile="", seconds=1.0, total_s=1.0, busiest=1.2, cache_bytes=4.0,
    memory_bytes=1.0,
)  # fmt: skip
WAVES, BYTES = dict(seconds=1.3, busiest=1.6), dict(seconds=1.3, cache_bytes=6.0)
JUMP = dict(seconds=1.3, busiest=1.25, cache_bytes=4.1)


def main_workload(text: str) -> Workload:
    return main_task(text, ModelOptions(), T4).workload


def step(dear: dict[str, float], carried: dict[str, float] | None) -> Step:
    points = [replace(CHEAP, **it) if it is not None else None for it in (dear, carried)]
    assert points[0] is not None
    return Step(cheap=CHEAP, dear=points[0], carried=points[1])


@pytest.mark.parametrize(
    ("dear", "carried", "said"),
    [
        ({"seconds": 1.14}, None, ""),
        (WAVES, WAVES, ""),
        (BYTES, BYTES, ""),
        (BYTES, None, ""),
        (JUMP, JUMP, "neither"),
        (JUMP, None, "neither"),
        # another tile has more of both, but the tile of the neighbour would have had less
        ({**WAVES, **BYTES}, {"seconds": 1.05}, "not taken"),
        # it has more of both, and the neighbour's tile jumps without
        ({**WAVES, **BYTES}, {**JUMP, "seconds": 1.35}, "neither"),
    ],
)
def test_only_waves_or_bytes_explain(
    dear: dict[str, float], carried: dict[str, float] | None, said: str
) -> None:
    fault = step(dear, carried).fault
    assert said in fault and bool(fault) == bool(said)


def test_a_step_of_the_model_is_traced_to_bytes_at_the_same_tile() -> None:
    """Of 205 rows, lines of the result begin anywhere."""
    points, (small, large) = along(HEIGHTS, "NCHW", T4)
    assert [point.size for point in points] == list(HEIGHTS)
    assert large.ratio > cuda_smooth.LARGEST and not large.fault and not small.fault
    assert large.carried is not None and large.carried.tile == large.cheap.tile
    assert large.bytes > 2 and large.cheap.tile == "128×32, 4×4, 16 deep"


def test_a_made_up_jump_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that takes one size for slower, with as many waves and bytes."""

    def slower(*given, **named):
        found = facts(*given, **named)
        odd = given[1].arguments[0].type.shape[2] == 204
        return {**found, "estimate_s": found["estimate_s"] * (1.6 if odd else 1.0)}

    monkeypatch.setattr(cuda_smooth, "facts", slower)
    _, steps = along(HEIGHTS, "NCHW", T4)
    assert steps[0].fault == "neither waves nor bytes"


def test_a_bad_choice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One size gets a setting that is slower than that of its neighbour would be."""

    def chosen(workload, *given):
        odd = workload.arguments[0].type.shape[2] == 204
        return ranked_defaults(workload, *given)[-1 if odd else 0]

    monkeypatch.setattr(cuda_smooth, "default_candidate", chosen)
    _, steps = along(EVEN, "NCHW", T4)
    assert "not taken" in steps[0].fault


def test_a_setting_of_another_size_is_none() -> None:
    sized = Sized(size="204", workload=main_workload(HEIGHTS["204"]), layout="NCHW", placement=T4)
    best = sized.best()
    other = Candidate(
        implementation=best.implementation,
        settings=tuple({**dict(best.settings), "tile_rows": 3}.items()),
        forms=best.forms,
    )
    assert sized.point(best) is not None and sized.point(other) is None


def test_a_kernel_that_another_size_does_not_have_is_none() -> None:
    """At height 205 lines of the result begin anywhere, and lanes exchange results; at 204 no such
    kernel is offered, though its tiles would do."""
    even, odd = (
        Sized(size=h, workload=main_workload(HEIGHTS[h]), layout="NCHW", placement=T4)
        for h in ("204", "205")
    )
    best = odd.best()
    assert best.implementation == "cuda_product_exchanged"
    assert odd.point(best) is not None and even.point(best) is None
