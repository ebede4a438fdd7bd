"""Dense layers with weights on codes, and which ones get them, without a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakes.placements import altered
from helpers.kernels.spec_checks import check_space
from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder
from tilewright.core.errors import UsageError
from tilewright.core.forms import PLAIN, Form, stored_in
from tilewright.core.noise import RoundingNoise
from tilewright.core.records import Placement
from tilewright.graph.arrays import codes_of, rounded_to_codes
from tilewright.graph.fuse import FusedNetwork
from tilewright.hardware.features import units_of
from tilewright.kernels.dense_int8_weights import CODED, SPEC
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.half_noise import own_rounders, rounded_factor, storable
from tilewright.kernels.registry import implementations, takes
from tilewright.kernels.spaces import default_candidate
from tilewright.kernels.weight_codes import codable, with_coded_weights
from tilewright.models import ModelOptions
from tilewright.plan.mixture import Mixture
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import mixed_plan, plan_with
from tilewright.search.layout_costs import LayoutCosts
from tilewright.testing.implementations import check_spec, made_up_placement, single

ON = replace(made_up_placement(), precision="int8-weights")
HALVES = ("avx512bf16",)
MIXED = replace(
    altered(made_up_placement(), features=HALVES, units=units_of(HALVES, 64)), precision="auto"
)
CODES = (PLAIN, CODED, PLAIN)
TASK = single("dense", (1, 768), (768, 512), constants=(1,))


def classifier(*, twice: bool = False, scale: float = 1.0) -> tuple[FusedNetwork, str, list[str]]:
    """Two dense layers of one row behind many rows of one; the weights of the first of them, which
    the others may read as well, and what both give."""
    b = Builder()
    many = b.add("relu", b.add("dense", b.input(64, 512), b.weight(512, 512)))
    means = b.add("reduce_mean", many, axes=(0,), keepdims=True)
    weight = b.weight(512, 512)
    b.constants[weight] *= np.float32(scale)
    first = b.add("relu", b.add("dense", means, weight))
    last = b.add("dense", first, weight if twice else b.weight(512, 512))
    return fused(b, last), weight, [first, last]


@pytest.mark.parametrize("task", [TASK, single("dense", (2, 3, 33), (33, 20), constants=(1,))])
def test_it_is_a_spec(task) -> None:
    check_spec(SPEC, task, CODES)
    settings, _ = check_space(SPEC, task, ON, CODES)
    assert settings


def test_it_computes_tasks_of_coded_weights_and_nothing_else_does() -> None:
    able = [name for name, spec in implementations().items() if takes(spec, TASK, CODES)]
    assert able == [SPEC.name] and not takes(SPEC, TASK, (PLAIN,) * 3)
    assert default_candidate(TASK, CODES, ON)[0].implementation == SPEC.name
    in_halves = tuple(stored_in(f, "bfloat16") if f == PLAIN else f for f in CODES)
    assert takes(SPEC, TASK, in_halves)
    assert not SPEC.applies(
        single("dense", (128, 64), (64, 64), constants=(1,)), ON.target, ON.resources
    )


def test_one_row_is_faster_by_the_bytes_of_its_weights() -> None:
    task = single("dense", (1, 4096), (4096, 4096), constants=(1,))
    singles = default_candidate(task, (PLAIN,) * 3, ON)[1]
    assert default_candidate(task, CODES, ON)[1] < 0.4 * singles
    assert SPEC.least_work(task, ON.target).memory_bytes < 0.26 * task.bytes


@given(st.integers(0, 1000), st.floats(1e-30, 1e30), st.integers(0, 3))
def test_codes_are_off_by_half_a_step_of_their_column(seed: int, scale: float, zeros: int) -> None:
    weights = np.random.default_rng(seed).standard_normal((9, 5)).astype(np.float32)
    weights *= np.float32(scale)
    weights[:, :zeros] = 0
    codes, scales = codes_of(weights, axis=1)
    assert codes.dtype == np.int8 and scales.shape == (1, 5) and np.abs(codes).max() == 127
    assert (np.abs(rounded_to_codes(weights, 1) - weights) <= 0.501 * scales).all()
    assert not rounded_to_codes(weights, 1)[:, :zeros].any()


def test_the_smallest_numbers_stay_within_a_byte() -> None:
    tiny = np.array([[1e-45, 3e-43], [0, -2e-43]], np.float32)
    codes, scales = codes_of(tiny, axis=1)
    assert np.abs(codes.astype(int)).max() <= 127 and (scales > 0).all()


def test_scales_lie_behind_codes_and_errors_are_told_ahead() -> None:
    candidate, _ = default_candidate(TASK, CODES, ON)
    weights = np.random.default_rng(0).standard_normal((768, 512)).astype(np.float32)
    packed = SPEC.pack(TASK, candidate, {1: weights})[1]
    chunks, depth, block = packed.shape
    assert packed.dtype == np.int8 and depth == 772
    planes = np.ascontiguousarray(packed[:, 768:].swapaxes(1, 2)).view("<f4")[..., 0]
    numbers = (packed[:, :768] * planes[:, None]).transpose(1, 0, 2).reshape(768, -1)[:, :512]
    np.testing.assert_allclose(numbers, rounded_to_codes(weights, 1), rtol=1e-6)
    data = np.random.default_rng(1).standard_normal((1, 768)).astype(np.float32)
    errors = SPEC.rounding_errors(TASK, [data, weights])
    np.testing.assert_allclose(data @ weights + errors, data @ numbers, atol=1e-4)
    signal, noise = np.square(data @ weights).sum(), np.square(errors).sum()
    assert 36 < 10 * np.log10(signal / noise) < 46


def coded(network: FusedNetwork, kept: tuple[str, ...] = (), on: Placement = ON) -> set[str]:
    forms = with_coded_weights(network, choose_forms(network, on.target, on.resources), on, kept)
    return {name for name, form in forms.items() if form == CODED}


def test_layers_of_few_rows_get_codes_unless_they_are_kept() -> None:
    network, weight, results = classifier()
    assert len(coded(network)) == 2 and weight in coded(network)
    assert coded(network, (results[0],)) == coded(network) - {weight}
    wide, shared, _ = classifier(twice=True)
    assert shared not in coded(wide), "each reader would have to take codes"
    infinite, weight, _ = classifier(scale=np.inf)
    assert weight in codable(infinite, ON).values() and weight not in coded(infinite)


def mixture(network: FusedNetwork, power: float, kept: frozenset[str] = frozenset()) -> Mixture:
    """One in which weights on codes make so much noise, and halves a hundred times as much."""
    calls = [c.name for c in network.calls if rounded_factor(c.workload, MIXED) is not None]
    owns = {c.name: own_rounders(c.workload, MIXED) for c in network.calls}
    noise = RoundingNoise(
        outputs=network.graph.outputs,
        signals=(1.0,),
        largest=(1.0,),
        elements=(64,),
        tensors=dict.fromkeys(storable(network), (100 * power,)),
        calls=dict.fromkeys(calls, (100 * power,)),
        algorithms={(call, name): (power,) for call, names in owns.items() for name in names},
    )
    return Mixture(noise=noise, allowed=(1.0,), kept=kept)


def planned(network: FusedNetwork, mixed: Mixture) -> Mapping[str, tuple[str, tuple[Form, ...]]]:
    problem = NetworkProblem(
        network=network,
        usual=choose_forms(network, MIXED.target, MIXED.resources),
        placement=MIXED,
        times=LayoutCosts(placement=MIXED, max_error=2e-2),
        mixture=mixed,
    )
    found, front = mixed_plan(problem, "chosen", "auto")
    chosen = {c.name: (c.candidate.implementation, c.candidate.forms) for c in found.plan.calls}
    assert mixed.share(mixed.powers(network, chosen)) == pytest.approx(front.chosen.noise)
    return chosen


def test_a_mixture_has_as_many_layers_on_codes_as_its_noise_allows() -> None:
    network, _, results = classifier()
    for power, most in ((0.3, 2), (0.5, 1), (0.9, 0)):
        chosen = planned(network, mixture(network, power))
        on_codes = [name for name, (how, _) in chosen.items() if how == SPEC.name]
        assert len(on_codes) == most
        assert all(chosen[name][1][1] == CODED for name in on_codes)
    kept = planned(network, mixture(network, 0.3, frozenset(results)))
    assert SPEC.name not in [how for how, _ in kept.values()]


@pytest.mark.parametrize("precision", ["float32", "int8-weights"])
def test_a_network_has_choices_on_codes_where_its_weights_are(precision: str) -> None:
    network, _, _ = classifier()
    usual = choose_forms(network, ON.target, ON.resources)
    on = replace(ON, precision=precision)  # type: ignore[arg-type]
    coded_ones = precision == "int8-weights"
    problem = NetworkProblem(
        network=network,
        usual=with_coded_weights(network, usual, on) if coded_ones else usual,
        placement=on,
        times=LayoutCosts(placement=on, max_error=2e-2),
    )
    found = [c for call in network.calls for c in problem.choices[call.name] if CODED in c.ports]
    assert len(found) == (2 if coded_ones else 0)
    assert all(c.implementation == SPEC.name for c in found)
    plan = plan_with("auto", problem, "chosen").plan
    used = [call.candidate.implementation for call in plan.calls]
    assert used.count(SPEC.name) == len(found)


def test_what_is_kept_may_be_said_and_calibration_means_nothing() -> None:
    assert ModelOptions(precision="int8-weights", keep="float32:fc").keep
    with pytest.raises(UsageError, match="belong to a choice of types"):
        ModelOptions(precision="int8-weights", calibration="inputs.npz")
