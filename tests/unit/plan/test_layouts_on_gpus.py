"""The layouts of a network's images on a GPU, chosen by what is known before anything runs."""

from __future__ import annotations

from collections import Counter

from helpers.kernels.gpu_kernels import a_gpu
from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder
from tilewright.core.forms import CHANNELS_LAST, PLAIN
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.kernels.cuda.images import image_forms
from tilewright.kernels.estimates import estimate_s
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import default_settings, lay_out
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import plan_with
from tilewright.search.layout_costs import LayoutCosts


def stages_of_a_resnet() -> FusedNetwork:
    """A block of as many channels as it reads, and one of twice as many with half the rows."""
    b = Builder()
    x = b.add("relu", b.conv(b.input(8, 3, 56, 56), 64))
    for channels, strides in ((64, (1, 1)), (128, (2, 2))):
        y = b.conv(b.add("relu", b.conv(x, channels, strides=strides)), channels)
        x = x if channels == 64 else b.conv(x, channels, 1, strides=strides)
        x = b.add("relu", b.add("add", x, y))
    return fused(b, b.add("reduce_mean", x, axes=(2, 3), keepdims=False))


def total_s(plan: NetworkPlan) -> float:
    on = a_gpu()
    return sum(
        estimate_s(call.workload, call.candidate, on.target, on.resources) for call in plan.calls
    )


def test_channels_last_are_chosen_where_the_model_gains_by_them() -> None:
    """The default leaves images row by row; the problem's solution is proven, and its conversions
    are those of kernels that read one order and write the other."""
    network, on = stages_of_a_resnet(), a_gpu()
    usual = choose_forms(network, on.target, on.resources)
    problem = NetworkProblem(
        network=network, usual=usual, placement=on, times=LayoutCosts(placement=on)
    )
    found = plan_with("auto", problem, "chosen")
    images = Counter(
        tensor.form for tensor in found.plan.tensors.values() if len(image_forms(tensor.type)) > 1
    )
    assert images[CHANNELS_LAST] > images[PLAIN]
    assert set(usual.values()) == {PLAIN}
    default = lay_out(network, usual, lane_of(on), default_settings(on))
    assert total_s(found.plan) < 0.96 * total_s(default)
    assert found.solution is not None and found.solution.gap == 0
    assert not [call for call in found.plan.calls if call.kind == "conversion"]
