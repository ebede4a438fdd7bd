"""The layouts of a network's images on a GPU, chosen by what is known before anything runs."""

from __future__ import annotations

from collections import Counter

import pytest

from helpers.kernels.gpu_kernels import a_gpu
from tilewright.core.forms import CHANNELS_LAST, PLAIN
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.cuda.images import image_forms
from tilewright.kernels.estimates import estimate_s
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import plan_with
from tilewright.plan.preparation import prepare_outline
from tilewright.search.layout_costs import LayoutCosts


@pytest.fixture(scope="module")
def network() -> PreparedNetwork:
    return prepare_outline("zoo:resnet18", ModelOptions(batch=8), a_gpu())


def total_s(plan: NetworkPlan) -> float:
    on = a_gpu()
    return sum(
        estimate_s(call.workload, call.candidate, on.target, on.resources) for call in plan.calls
    )


def test_channels_last_are_chosen_where_the_model_gains_by_them(network: PreparedNetwork) -> None:
    """The default leaves images row by row; the problem's solution is proven, and its conversions
    are those of kernels that read one order and write the other."""
    problem = NetworkProblem(
        network=network.fused,
        usual=network.forms,
        placement=a_gpu(),
        times=LayoutCosts(placement=a_gpu()),
    )
    found = plan_with("auto", problem, "chosen")
    images = Counter(
        tensor.form for tensor in found.plan.tensors.values() if len(image_forms(tensor.type)) > 1
    )
    assert images[CHANNELS_LAST] > images[PLAIN]
    assert set(network.forms.values()) == {PLAIN}
    assert total_s(found.plan) < 0.96 * total_s(network.plan)
    assert found.solution is not None and found.solution.gap == 0
    assert not [call for call in found.plan.calls if call.kind == "conversion"]
