"""TVM's own schedules beside ours: what is counted in their code, and the bound that follows."""

from __future__ import annotations

import pytest

import cuda_untuned
from cuda_bars import PADDING, UNTUNED
from cuda_smooth import largest_step, modelled
from tilewright.core.events import discard
from tilewright.insight.cuda_explaining import cuda_explainer
from tilewright.models import ModelOptions


def test_padding_adds_comparisons_and_the_bound_lies_above_our_time() -> None:
    explainer = cuda_explainer("cuda -model=H100", None, discard, ModelOptions(), UNTUNED)
    texts = [PADDING.format(h=225, k=3, pad=pad) for pad in (0, 1)]
    plain, padded = cuda_untuned.untuned(texts, explainer)
    assert padded.kernel.comparisons > 1.5 * plain.kernel.comparisons
    assert padded.kernel.report == plain.kernel.report or plain.kernel.report is None
    for text, found in zip(texts, (plain, padded), strict=True):
        ours = modelled(text, explainer.placement)
        assert found.seconds > 1.5 * ours.seconds and found.total_s > 1.5 * ours.total_s


def test_steps_and_spans() -> None:
    assert largest_step([1.0, 1.0, 1.5, 1.4]) == pytest.approx(1.5)
    assert cuda_untuned.span([10.0, 9.0, 9.04]) == "9.0 to 10.0"
    assert cuda_untuned.span([1.01, 1.02]) == "1.0"
