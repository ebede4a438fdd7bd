"""Types of tensors as part of the layout problem, without a compiler."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.placements import altered
from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder
from tilewright.core.forms import PLAIN, blocked, stored_in
from tilewright.core.noise import RoundingNoise
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork
from tilewright.hardware.features import units_of
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.half_noise import own_rounders, rounded_factor, rounds_anew, storable
from tilewright.kernels.spaces import ranked_defaults
from tilewright.plan.mixture import Mixture
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import mixed_plan
from tilewright.search.layout_costs import LayoutCosts
from tilewright.testing.implementations import made_up_placement

HALF, FLOAT16 = "bfloat16", "float16"


def mixed_placement(*more: str) -> Placement:
    features = ("avx512bf16", *more)
    found = altered(made_up_placement(64), features=features, units=units_of(features, 64))
    return replace(found, precision="auto")


ON = mixed_placement()
TILES = mixed_placement("amx-tile", "amx-bf16", "amx-int8")
VECTORS = mixed_placement("avx512fp16")


def network() -> FusedNetwork:
    b = Builder()
    x = b.conv(b.input(1, 16, 28, 28), 64)
    for _ in range(3):
        x = b.conv(b.add("relu", x), 64, 1)
    pooled = b.add(
        "max_pool2d", x, kernel=(2, 2), strides=(2, 2), padding=(0, 0, 0, 0), dilation=(1, 1),
        ceil_mode=False,
    )  # fmt: skip
    return fused(b, b.add("reduce_mean", pooled, axes=(2, 3), keepdims=False))


NETWORK = network()
FORMS = choose_forms(NETWORK, ON.target, ON.resources)
FACTORS = [c.name for c in NETWORK.calls if rounded_factor(c.workload, ON) is not None]
NOISE = RoundingNoise(
    outputs=NETWORK.graph.outputs,
    signals=(1.0,),
    largest=(1.0,),
    elements=(64,),
    tensors={name: (1e-5 * (place + 1),) for place, name in enumerate(storable(NETWORK))},
    calls={name: (2e-5 * (place + 1),) for place, name in enumerate(FACTORS)},
)


def finer(noise: RoundingNoise, part: float = 0.02) -> RoundingNoise:
    """The same with a part of each power in float16."""
    less = {name: noise.total([(p, part)]) for name, p in noise.tensors.items()}
    calls = {name: noise.total([(p, part)]) for name, p in noise.calls.items()}
    fine = replace(noise, tensors=less, calls=calls, algorithms={})
    return replace(noise, finer={FLOAT16: fine})


def problem(
    allowed: float,
    kept: frozenset[str] = frozenset(),
    place: Placement = ON,
    noise: RoundingNoise = NOISE,
) -> NetworkProblem:
    mixture = Mixture(noise=noise, allowed=(allowed,), kept=kept)
    costs = LayoutCosts(placement=place, max_error=2e-2)
    return NetworkProblem(
        network=NETWORK, usual=FORMS, placement=place, times=costs, mixture=mixture
    )


@settings(deadline=None, max_examples=8)
@given(st.floats(1e-6, 1e-3))
def test_a_plan_stays_within_its_budget_and_makes_the_noise_that_was_counted(
    allowed: float,
) -> None:
    asked = problem(allowed)
    assert asked.mixture is not None
    found, front = mixed_plan(asked, "chosen", "auto")
    chosen = {c.name: (c.candidate.implementation, c.candidate.forms) for c in found.plan.calls}
    powers = asked.mixture.powers(NETWORK, chosen)
    assert asked.mixture.share(powers) == pytest.approx(front.chosen.noise)
    assert front.chosen.noise <= asked.mixture.budget
    for call in found.plan.calls:
        given = call.inputs[0] in NETWORK.graph.inputs
        halves = given or call.candidate.forms[0].dtype == HALF
        assert halves or "bfloat16" not in call.candidate.implementation


def test_what_the_network_is_given_is_rounded_by_the_kernel_that_reads_it() -> None:
    asked, name = problem(1.0), NETWORK.graph.inputs[0]
    plan = mixed_plan(asked, "chosen", "auto")[0].plan
    first = next(call for call in plan.calls if name in call.inputs)
    assert first.name == NETWORK.calls[0].name, "no copy of it is made"
    assert first.candidate.implementation == "conv2d_bfloat16"
    assert first.candidate.forms[0] == PLAIN and first.candidate.forms[-1].dtype == HALF
    again = asked.times.candidate(first.workload, first.candidate.forms, "conv2d_bfloat16")
    assert again == first.candidate
    kept = mixed_plan(problem(1.0, frozenset({name})), "chosen", "auto")[0].plan
    assert "bfloat16" not in kept.calls[0].candidate.implementation
    others = (c for c in NETWORK.calls[1:] for c in asked.choices[c.name])
    read = {c.ports[0].dtype for c in others if c.implementation == "conv2d_bfloat16"}
    assert read == {HALF}, "what others read was stored in halves for all readers"


def random_network(kinds: list[str]) -> FusedNetwork:
    """Layers that read what was made before, with all that was made last as outputs."""
    b = Builder()
    x = before = b.conv(b.input(1, 16, 12, 12), 32)
    for kind in kinds:
        older, before = before, x
        match kind:
            case "conv":
                x = b.conv(x, 32)
            case "point":
                x = b.add("relu", b.conv(x, 32, 1))
            case "sum":
                x = b.add("add", x, older)
            case _:
                x = b.conv(b.add("concat", x, older, axis=1), 32, 1)
    return fused(b, b.add("tanh", x), b.add("reduce_mean", before, axes=(2, 3), keepdims=False))


COSTS = {on.target: LayoutCosts(placement=on, max_error=inf) for on in (ON, VECTORS)}


@settings(deadline=None, max_examples=12)
@given(
    st.lists(st.sampled_from(["conv", "point", "sum", "join"]), min_size=1, max_size=6),
    st.floats(1e-7, 1e-2),
    st.none() | st.floats(0.2, 5.0),
    st.integers(0, 1000),
    st.sampled_from([ON, VECTORS]),
)
def test_no_output_of_any_network_gets_more_noise_than_its_budget(
    kinds: list[str], allowed: float, scale: float | None, seed: int, on: Placement
) -> None:
    network, rng = random_network(kinds), np.random.default_rng(seed)
    outputs = network.graph.outputs

    def powers() -> tuple[float, ...]:
        return tuple((rng.random(len(outputs)) < 0.8) * rng.exponential(1e-4, len(outputs)))

    calls = [c for c in network.calls if rounded_factor(c.workload, on) is not None]
    noise = RoundingNoise(
        outputs=outputs, signals=(1.0, 1.0), largest=(1.0, 1.0), elements=(64, 64),
        tensors={name: powers() for name in storable(network)},
        calls={call.name: powers() for call in calls},
        algorithms={(c.name, n): powers() for c in calls for n in own_rounders(c.workload, on)},
    )  # fmt: skip
    noise = finer(noise) if on is VECTORS else noise
    mixture = Mixture(noise=noise, allowed=(allowed, 2 * allowed), scale=scale)
    forms, costs = choose_forms(network, on.target, on.resources), COSTS[on.target]
    asked = NetworkProblem(network=network, usual=forms, placement=on, times=costs, mixture=mixture)
    found, front = mixed_plan(asked, "chosen", "auto")
    spent = [0.0, 0.0]
    for call in found.plan.calls:
        name, ports = call.candidate.implementation, call.candidate.forms
        causes = [noise.calls[call.name]] if "bfloat16" in name else []
        causes = [noise.algorithms.get((call.name, name), *causes)] if causes else []
        causes += [noise.of(FLOAT16).calls[call.name]] if name.endswith("_float16") else []
        if ports[-1].dtype and call.output in noise.tensors:
            causes.append(noise.of(ports[-1].dtype).tensors[call.output])
        for tensor, form in zip(call.inputs, ports, strict=False):
            if form.dtype and tensor in network.graph.inputs:
                causes.append(noise.of(form.dtype).tensors[tensor])
        copied = call.workload.anchor is None and len(call.inputs) == 1
        assert not copied or (ports[0].dtype, ports[1].dtype) != (FLOAT16, HALF)
        spent = [known + sum(each[n] for each in causes) for n, known in enumerate(spent)]
    shares = [known / most for known, most in zip(spent, mixture.allowed, strict=True)]
    assert max(shares) <= mixture.budget * (1 + 1e-9) and front.chosen.noise <= mixture.budget
    assert found.solution is not None and found.solution.gap < 1e-6


def test_more_noise_is_never_slower_and_none_is_single_precision() -> None:
    plans = [mixed_plan(problem(allowed), "chosen", "auto")[0] for allowed in (1.0, 2e-4, 1e-9)]
    costs = [plan.solution.objective_ps for plan in plans if plan.solution is not None]
    assert costs == sorted(costs) and costs[0] < costs[-1]
    stored = [{t.form.dtype for t in each.plan.tensors.values()} for each in plans]
    assert HALF in stored[0] and stored[-1] == {None}
    assert all("bfloat16" not in c.implementation for c in plans[-1].plan.candidates.values())


def test_between_what_bfloat16_and_singles_allow_there_is_float16() -> None:
    noise = finer(NOISE)

    def types(allowed: float, known: RoundingNoise = noise) -> tuple[set[str | None], int]:
        found, _ = mixed_plan(problem(allowed, place=VECTORS, noise=known), "chosen", "auto")
        assert found.solution is not None and found.solution.gap < 1e-6
        stored = {t.form.dtype for t in found.plan.tensors.values()}
        multiplied = {c.implementation for c in found.plan.candidates.values()}
        assert (FLOAT16 in stored) == ("conv2d_float16" in multiplied)
        return stored, found.solution.objective_ps

    fine, single = types(3e-5), types(1e-9)
    assert FLOAT16 in fine[0] and single[0] == {None}
    without, _ = mixed_plan(problem(3e-5, place=VECTORS), "chosen", "auto")
    assert without.solution is not None and fine[1] < without.solution.objective_ps
    assert FLOAT16 not in types(3e-5, noise.without(FLOAT16, noise.tensors))[0]


def test_another_half_type_is_rounded_to_anew_and_kept_apart() -> None:
    mixture = Mixture(
        noise=finer(NOISE).without(FLOAT16, [NETWORK.calls[0].output]), allowed=(1.0,)
    )
    assert mixture.stores(NETWORK.calls[0].output, HALF)
    assert not mixture.stores(NETWORK.calls[0].output, FLOAT16)
    pool = next(c for c in NETWORK.calls if c.workload.anchor_name == "max_pool2d").workload
    assert rounds_anew(pool, (stored_in(blocked(16), FLOAT16), stored_in(blocked(16), HALF)))
    call = NETWORK.calls[1]
    ports = (stored_in(blocked(16), FLOAT16), PLAIN, stored_in(blocked(16), HALF))
    powers = mixture.powers_at(call, "conv2d_float16", ports, ())
    assert powers == pytest.approx(
        (NOISE.calls[call.name][0] / 50 + NOISE.tensors[call.output][0],)
    )


def test_halves_lie_in_lines_of_tiles_where_the_processor_has_them() -> None:
    lying = [
        {form.text for form in replace(problem(1.0), placement=place).options[call.output]}
        for place in (ON, TILES)
        for call in NETWORK.calls[:1]
    ]
    assert "blocked16:bfloat16" in lying[0] and "blocked32:bfloat16" not in lying[0]
    assert {"blocked16", "blocked32:bfloat16"} <= lying[1]
    mixture = problem(1.0).mixture
    assert mixture is not None
    codes = {NETWORK.calls[0].name: (0.5,)}
    assert replace(mixture, codes=codes).budget == pytest.approx(0.8 * 0.5)
    assert replace(mixture, codes=codes, scale=1.5).budget == pytest.approx(0.95 / 1.5 - 0.5)
    assert replace(mixture, codes={NETWORK.calls[0].name: (2.0,)}).budget == 0.0


def test_codes_lie_as_they_do_by_default_and_products_in_halves_write_them() -> None:
    b = Builder()
    y = b.conv(b.conv(b.input(1, 16, 28, 28), 64), 64, 1)
    rounded = b.add("round", b.add("multiply", y, b.constant(8.0)))
    codes = b.add("cast", b.add("clip", rounded, minimum=0.0, maximum=255.0), dtype="uint8")
    whole = fused(b, b.add("cast", b.add("relu", codes), dtype="float32"))
    writer = whole.calls[1]
    assert whole.graph.types[writer.output].dtype == "uint8"
    noise = replace(NOISE, tensors=dict.fromkeys(storable(whole), (1e-9,)))
    forms = choose_forms(whole, TILES.target, TILES.resources)
    asked = NetworkProblem(
        network=whole, usual=forms, placement=TILES,
        times=LayoutCosts(placement=TILES, max_error=2e-2),
        mixture=Mixture(noise=noise, allowed=(1.0,)),
    )  # fmt: skip
    assert asked.options[writer.output] == (forms[writer.output],) == (blocked(64),)
    read = stored_in(blocked(32), HALF)
    assert any(c.ports[0] == read and "bfloat16" in c.value for c in asked.choices[writer.name])


def test_what_is_kept_stays_in_single_precision() -> None:
    kept = NETWORK.calls[1].output
    plan = mixed_plan(problem(1.0, frozenset({kept})), "chosen", "auto")[0].plan
    assert plan.tensors[kept].form.dtype is None
    assert any(tensor.form.dtype == HALF for tensor in plan.tensors.values())


def test_products_of_halves_are_for_operands_that_lie_in_halves() -> None:
    task = NETWORK.calls[1].workload
    single = (blocked(16), *[PLAIN] * (len(task.arguments) - 1), blocked(16))
    halves = (stored_in(single[0], HALF), *single[1:])
    names = [
        {c.implementation for c, _ in ranked_defaults(task, f, ON, inf)} for f in (single, halves)
    ]
    assert "conv2d_bfloat16" not in names[0] and "conv2d_bfloat16" in names[1]


def test_what_only_moves_halves_rounds_nothing() -> None:
    pool = next(c for c in NETWORK.calls if c.workload.anchor_name == "max_pool2d").workload
    half = stored_in(blocked(16), HALF)
    assert not rounds_anew(pool, (half, half))
    assert rounds_anew(pool, (blocked(16), half)) and not rounds_anew(pool, (half, blocked(16)))
    assert rounds_anew(NETWORK.calls[1].workload, (half,) * 3)


def test_the_allowed_noise_is_that_of_the_ratio_or_of_the_largest_error() -> None:
    assert NOISE.allowed(0.0, 30.0) == pytest.approx((1e-3,))
    (loose,), (tight,) = NOISE.allowed(1e-2, None), NOISE.allowed(1e-3, None)
    assert loose == pytest.approx(100 * tight)
    assert NOISE.sqnr_db((1e-3,)) == pytest.approx(30.0)


def test_calls_of_one_task_have_the_algorithms_that_their_noise_allows() -> None:
    b = Builder()
    x = b.input(1, 64, 28, 28)
    for _ in range(4):
        x = b.add("relu", b.conv(x, 64))
    whole = fused(b, b.add("reduce_mean", x, axes=(2, 3), keepdims=False))
    convs = [c for c in whole.calls if rounded_factor(c.workload, ON) is not None]
    own = own_rounders(convs[0].workload, ON)
    noise = replace(
        NOISE,
        outputs=whole.graph.outputs,
        tensors=dict.fromkeys(storable(whole), (1e-9,)),
        calls={c.name: (1e-6,) for c in convs},
        algorithms={(c.name, n): (1.0 if c is convs[2] else 2e-6,) for c in convs for n in own},
    )
    asked = NetworkProblem(
        network=whole, usual=choose_forms(whole, ON.target, ON.resources), placement=ON,
        times=LayoutCosts(placement=ON, max_error=inf),
        mixture=Mixture(noise=noise, allowed=(1e-4,)),
    )  # fmt: skip
    plan = mixed_plan(asked, "chosen", "auto")[0].plan
    quiet, loud = (next(c for c in plan.calls if c.name == convs[n].name) for n in (1, 2))
    assert quiet.task == loud.task
    assert quiet.candidate.implementation in own
    assert loud.candidate.implementation == "conv2d_bfloat16"


def test_a_kernel_that_rounds_what_it_reads_makes_the_noise_of_that() -> None:
    """As the first one does, which reads what the network is given."""
    call, mixture = NETWORK.calls[0], Mixture(noise=NOISE, allowed=(1.0,))
    name, single = "conv2d_bfloat16", (PLAIN,) * (len(call.inputs) + 1)
    halves = (stored_in(PLAIN, HALF), *single[1:])
    given = NETWORK.graph.inputs
    rounded = mixture.powers_at(call, name, single, given)
    assert rounded == mixture.powers_at(call, name, halves, given)
    causes = (NOISE.tensors[call.inputs[0]], NOISE.calls[call.name])
    assert rounded == NOISE.total((each, 1.0) for each in causes)
