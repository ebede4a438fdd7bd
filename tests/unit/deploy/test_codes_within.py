"""Which operators stay in single precision for the error, and what makes the noise on codes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.measuring import measured
from helpers.fakes.placements import altered
from helpers.networks.quantizable import images, saved, written
from tilewright.core.budget import parse_budget
from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import Event, discard
from tilewright.core.noise import RoundingNoise, largest_share
from tilewright.core.records import NetworkCheck, Placement
from tilewright.deploy import mixing
from tilewright.deploy.mixing import measured_mixing
from tilewright.deploy.quantizing import Entry, OnCodes, entered
from tilewright.hardware.device import local_placement
from tilewright.hardware.features import units_of
from tilewright.kernels.compute_units import multiplied_type
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import compare_runs
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import PreparedNetwork
from tilewright.models.quantizing import Quantizer, numbers_of
from tilewright.plan.assignment.budgeted import Front, fastest_within
from tilewright.plan.assignment.solution import Infeasible
from tilewright.plan.code_choice import CodeChoice
from tilewright.plan.halves_beside_codes import CodedNames, carried_over
from tilewright.plan.mixture import AIM, AIM_AGAIN, Mixture
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import mixed_plan
from tilewright.plan.preparation import prepare, prepare_loaded
from tilewright.search.layout_costs import LayoutCosts
from tilewright.search.levels import OptimizeRequest
from tilewright.store import open_store
from tilewright.store.base import Store
from tilewright.testing.implementations import made_up_placement

with_halves = pytest.mark.skipif(
    not half_lanes(local_placement().target), reason="no products of bfloat16 here"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("within")
    written(made, x=images(8))
    saved(made)
    return made


@pytest.fixture(scope="module")
def quantizer(folder: Path) -> Quantizer:
    options = ModelOptions(precision="int8", calibration=folder / "inputs.npz")
    return Quantizer(loading.load(str(folder / "images.onnx")), options)


@pytest.fixture(scope="module")
def noise(quantizer: Quantizer) -> RoundingNoise:
    return quantizer.noise(quantizer.quantized())


def seen_db(quantizer: Quantizer, kept: list[str]) -> float:
    made = quantizer.quantized(kept)
    outputs = quantizer.judged(made.path)
    expected = quantizer.judged(quantizer.model.onnx_path)
    return compare_runs(outputs, expected, quantizer.model.outputs).sqnr_db or 0.0


def test_causes_add_up_to_what_the_network_shows(
    quantizer: Quantizer, noise: RoundingNoise
) -> None:
    assert set(noise.calls) == {"h", "depthwise", "u", "e"}
    assert set(noise.tensors) == {"x", "h", "k", "u", "s", "m", "e"}  # g has the codes of h
    every = [(powers, 1.0) for powers in (*noise.tensors.values(), *noise.calls.values())]
    assert noise.sqnr_db(noise.total(every)) == pytest.approx(seen_db(quantizer, []), abs=3.0)


def test_a_cause_is_what_rounding_its_tensor_changes(
    quantizer: Quantizer, noise: RoundingNoise
) -> None:
    fitted = [each["x"] for each in quantizer.inputs.fitted]
    made = quantizer.quantized()
    graph = onnx.load(made.path).graph
    parameters = next(node.input[1] for node in graph.node if node.input[0] == "x")
    (value,) = (each for each in graph.initializer if each.name == parameters)
    scale = float(onnx.numpy_helper.to_array(value))
    session: Any = pytest.importorskip("onnxruntime").InferenceSession(
        str(quantizer.model.onnx_path), providers=["CPUExecutionProvider"]
    )
    off = [
        session.run(None, {"x": np.round(each / scale) * np.float32(scale)})[0]
        - session.run(None, {"x": each})[0]
        for each in fitted[:2]
    ]
    assert noise.tensors["x"][0] == pytest.approx(float(np.square(off).sum()), rel=0.05)


def asked(folder: Path, decibels: float | None, **named: Any) -> OptimizeRequest:
    named = {"precision": "int8", "calibration": folder / "inputs.npz"} | named
    return OptimizeRequest(
        model=str(folder / "images.onnx"), options=ModelOptions(**named), budget=parse_budget(0),
        folder=folder, max_error=1.0, least_sqnr_db=decibels, seed=0,
    )  # fmt: skip


def on_codes(entry: Entry) -> set[str]:
    """The products that are on codes."""
    graph = entry.network.graph
    products = [n for n in graph.nodes if n.operator in ("conv2d", "dense")]
    return {n.name for n in products if graph.types[n.output].dtype == "int32"}


def prepared(request: OptimizeRequest) -> tuple[list[Entry], list[str]]:
    """The networks that race, and what is told."""
    told: list[str] = []
    placement = allowing(local_placement(1), request.options)
    return entered(
        request, placement, open_store("memory:"), lambda event: told.append(str(event))
    ), told


def in_halves() -> Placement:
    """A processor with dot products of halves and codes, which need not be this one."""
    features = ("avx512bf16", "avx512vnni")
    on = altered(made_up_placement(64), features=features, units=units_of(features, 64))
    return replace(on, precision="auto")


def test_as_few_operators_as_the_error_needs_are_not_on_codes(
    folder: Path, quantizer: Quantizer
) -> None:
    whole = seen_db(quantizer, [])
    found, told = prepared(asked(folder, whole - 1.0))
    everything = on_codes(found[0])
    assert everything == {"h", "depthwise", "u", "e"} and not told and len(found) == 1
    found, told = prepared(asked(folder, whole + 3.0))
    assert set() < on_codes(found[0]) < everything
    assert "operators are not on codes" in told[-1]
    kept, _ = prepared(asked(folder, whole - 4.0, keep="float32:u"))
    assert on_codes(kept[0]) == everything - {"u"}
    with pytest.raises(NegativeVerdict, match=r"off by .* dB, less than the 120 dB") as verdict:
        prepared(asked(folder, 120.0))
    assert "--max-error" in str(verdict.value.hint)


def test_noise_is_measured_in_the_first_run(
    folder: Path, quantizer: Quantizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    told: list[str] = []

    def counting(owner: Any, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: counted.append(name) or real(*given))

    def tell(event: Event) -> None:
        told.append(str(event))

    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    counting(Quantizer, "noise")
    counting(mixing, "measured_noise")
    request, on = asked(folder, seen_db(quantizer, []) + 3.0), in_halves()
    network = prepare(request.model, ModelOptions(), on)
    first: list[str] = []
    for _ in range(2):
        first = first or [*counted]
        told.extend(prepared(request)[1])
        measured_mixing(network, on, request, tell)
    assert set(first) == {"measured_noise", "noise"} and counted == first
    assert sum("earlier run" in each for each in told) == len(first)


@with_halves
def test_what_is_not_on_codes_may_be_in_halves(folder: Path, quantizer: Quantizer) -> None:
    rest = seen_db(quantizer, ["e"])
    for precision, places in (("int8", (0, 1)), ("auto", (1, 0))):
        found, _ = prepared(asked(folder, rest + 1.5, precision=precision, keep="float32:e"))
        codes, single = (found[place] for place in places)
        assert len(found) == 2 and "e" not in on_codes(codes) and not on_codes(single)
        assert codes.mixing is not None and single.mixing is not None
        mixture, other = codes.mixing.mixture, single.mixing.mixture
        seen = mixture.share(mixture.codes)
        assert 0.0 < seen <= 1.0 and mixture.budget == pytest.approx(0.8 * (1.0 - seen))
        call = next(c for c in codes.network.fused.calls if c.name == "e")
        assert mixture.kept >= {call.inputs[0], call.output}
        for name, powers in mixture.noise.tensors.items():
            assert mixture.stores(name, "bfloat16") or name in mixture.kept
            assert powers in other.noise.tensors.values()
        assert codes.mixing.front and sum(point.chosen for point in codes.mixing.front) == 1


@with_halves
def test_with_a_type_for_each_tensor_what_is_around_a_kept_node_is_single(
    folder: Path, quantizer: Quantizer
) -> None:
    whole = seen_db(quantizer, [])
    found, _ = prepared(asked(folder, whole - 4.0, precision="auto", keep="float32:u"))
    assert on_codes(found[1]) == {"e"}  # h and depthwise make what u reads


def test_a_plan_has_codes_and_singles_as_chosen_and_kept(
    folder: Path, quantizer: Quantizer
) -> None:
    """For a processor with dot products of both, which need not be this one: nothing is built."""
    whole, placement = seen_db(quantizer, []), in_halves()
    for keep in ("", "float32:e"):
        named = {"keep": keep} if keep else {}
        request = asked(folder, whole - 4.0, precision="auto", **named)
        found = entered(request, placement, open_store("memory:"), discard)
        network, mixing = found[1].network, found[1].mixing
        assert mixing is not None
        problem = NetworkProblem(
            network=network.fused,
            usual=network.forms,
            placement=placement,
            times=LayoutCosts(placement=placement, max_error=inf),
            mixture=mixing.mixture,
        )
        planned = mixed_plan(problem, "chosen", "auto")[0]
        plan = planned.plan
        search: Any = SimpleNamespace(proposals=[], graph=None, mixture=None)
        layers = mixing.report(planned, search, placement.target).layers
        units = {layer.call: layer.unit for layer in layers if layer.multiplied}
        assert units["u"] == "avx512vnni" and (units["e"] == "vector") == bool(keep)
        types = {
            c.name: multiplied_type(c.workload, c.candidate.implementation) for c in plan.calls
        }
        assert {name for name, dtype in types.items() if dtype == "int8"} == on_codes(found[1])
        assert types["u"] == "int8" and types["e"] == ("float32" if keep else "int8")
        if keep:
            (call,) = (each for each in plan.calls if each.name == "e")
            assert {form.dtype for form in call.candidate.forms} == {None}


TEXT = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 16, 12, 12] x) => (float[1, 32, 12, 12] y)
<float[64, 16, 3, 3] a, float[64, 64, 1, 1] b, float[32, 64, 1, 1] c> {
  h = Conv <pads = [1, 1, 1, 1]> (x, a)
  g = Relu(h)
  k = Conv (g, b)
  l = Add(k, g)
  u = Conv (l, c)
  y = Tanh(u)
}"""
_UNHURRIED_S = 60.0
"""For proofs on a machine with other work."""
Subsets = dict[frozenset[str], tuple[PreparedNetwork, CodedNames]]


def chosen(folder: Path, text: str, decibels: float | None, **named: Any) -> OptimizeRequest:
    """What is asked for a network with random weights, with inputs of 16 channels."""
    random, made = np.random.default_rng(4), onnx.parser.parse_model(text)
    for value in made.graph.value_info:
        shape = [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        values = random.standard_normal(shape).astype(np.float32) / 8
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, value.name))
    for node in made.graph.node:
        node.name = node.output[0]
    onnx.save(made, folder / "images.onnx")
    written(folder, x=random.standard_normal((4, 16, 12, 12)).astype(np.float32))
    return asked(folder, decibels, precision="auto", **named)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> tuple[CodeChoice, Subsets]:
    """The choice for a small network, and that network with each set of operators on codes that
    ONNX Runtime puts on them."""
    request = chosen(tmp_path_factory.mktemp("subsets"), TEXT, 20.0)
    placement = in_halves()
    network = prepare(request.model, request.options, placement)
    beside = measured_mixing(network, placement, request, discard)
    coded = OnCodes(request, placement, measured_once(network, placement), discard, beside)
    quantizer, found = coded.quantizer, Subsets()
    names = {node.name for node in quantizer.nodes}
    for kept in (set(c) for size in range(len(names)) for c in combinations(names, size)):
        if names.intersection(quantizer.on_codes(kept)) == names - kept:
            file = quantizer.quantized(kept)
            loaded = loading.with_codes(network.model, file, "")
            on_codes = prepare_loaded(loaded, request.options, placement)
            numbers = CodedNames(numbers=numbers_of(file), writers=quantizer.writers)
            found[frozenset(kept)] = on_codes, numbers
    return coded.choice, found


def measured_once(network: PreparedNetwork, placement: Placement) -> Store:
    """A store in which the first kernel of a network was measured."""
    task, of = next(iter(network.tasks.values())), placement.key
    candidate, estimate_s = default_candidate(task.workload, task.forms, placement)
    store = open_store("memory:")
    store.add_device(placement.device)
    store.add_workloads([task.workload])
    known = {"device_class": of.device_class, "resources": of.resources}
    store.add([measured(task.workload, candidate, 1.5 * estimate_s, **known)])
    return store


def fastest_ps(choice: CodeChoice, network: PreparedNetwork, mixture: Mixture) -> float:
    """Picoseconds of a network on codes with all else chosen; infinite beyond the noise."""
    problem = replace(choice.base, network=network.fused, usual=network.forms, mixture=mixture)
    left = 1.0 - mixture.share(mixture.codes)
    if left < 0.0:
        return inf
    front = fastest_within(problem.problem, problem.noises, left, most_s=_UNHURRIED_S)
    return front.chosen.cost_ps


def test_what_was_measured_takes_part(every: tuple[CodeChoice, Subsets]) -> None:
    choice, _ = every
    task = next(iter(choice.single.tasks.values()))
    assert any(t.measured for t in choice.times.kernels(task.workload, task.forms).values())


@settings(deadline=None, max_examples=5)
@given(st.floats(-2.0, 4.0), st.floats(-2.0, 4.0), st.data())
def test_one_choice_is_the_fastest_of_all_sets_of_operators(
    every: tuple[CodeChoice, Subsets], codes: float, halves: float, data: st.DataObject
) -> None:
    """With noise that is made up; the rest of each network is chosen with what codes leave."""
    known, subsets = every
    names = dict.fromkeys((*known.noise.calls, *known.noise.tensors, *known.mixture.noise.tensors))
    factors = {name: data.draw(st.floats(0.1, 10.0), label=name) for name in names}
    mixture = Mixture(noise=noisy(known.mixture.noise, factors, 10.0**halves), allowed=(1.0,))
    choice = replace(known, noise=noisy(known.noise, factors, 10.0**codes), mixture=mixture)
    front = choice.within(1.0, _UNHURRIED_S)
    chosen = front.chosen.assignment
    shares = [choice.on_codes(chosen)[0], choice.in_halves(chosen)[0]]
    assert sum(shares) == pytest.approx(front.chosen.noise) and sum(shares) <= 1.000001
    assert front.bound_ps == pytest.approx(front.chosen.cost_ps, rel=1e-6)
    found = {frozenset(n.name for n in choice.nodes): fastest_ps(choice, choice.single, mixture)}
    for kept, (network, names_of) in subsets.items():
        single, at = choice.single.fused, choice.placement
        beside = replace(
            mixture,
            noise=carried_over(mixture.noise, single, network.fused, names_of, at),
            codes=choice.by_node(kept),
        )
        found[kept] = fastest_ps(choice, network, beside)
        if "l" not in kept or "k" in kept:  # what is added to a product on codes may be, too
            left = 1.0 - beside.share(beside.codes)
            expected = choice.fastest_beside(kept, left, _UNHURRIED_S) if left >= 0.0 else inf
            assert expected == pytest.approx(found[kept], rel=0.005)
    assert front.chosen.cost_ps == pytest.approx(min(found.values()), rel=0.005)
    assert found[frozenset(choice.kept(chosen))] == pytest.approx(min(found.values()), rel=0.005)


def noisy(noise: RoundingNoise, factors: dict[str, float], whole: float) -> RoundingNoise:
    """Noise of one output, so many times as much of each cause, and `whole` for all together."""
    every = sum(sum(p) for p in (*noise.calls.values(), *noise.tensors.values()))
    return replace(
        noise,
        calls={n: (p[0] * factors.get(n, 1.0) * whole / every,) for n, p in noise.calls.items()},
        tensors={
            n: (p[0] * factors.get(n, 1.0) * whole / every,) for n, p in noise.tensors.items()
        },
    )


SUMS = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 16, 12, 12] x) => (float[1, 32, 12, 12] y)
<float[64, 16, 3, 3] a, float[64, 64, 1, 1] b, float[64, 16, 1, 1] c, float[32, 64, 1, 1] d,
 float[64, 64, 1, 1] e> {
  h = Conv <pads = [1, 1, 1, 1]> (x, a)
  g = Relu(h)
  t = Conv (x, c)
  r = Conv (g, e)
  q = Relu(r)
  k = Conv (q, b)
  l = Add(k, SHORTCUT)
  u = Conv (l, d)
  y = Tanh(u)
}"""


def possible(choice: CodeChoice, kept: set[str]) -> bool:
    try:
        return choice.fastest_beside(kept, inf) > 0
    except Infeasible:
        return False


@pytest.mark.parametrize(
    ("shortcut", "kept", "put"),
    [
        ("g", {"h"}, True),
        ("t", {"h", "t"}, False),
        ("t", {"h", "r", "k"}, False),
        ("t", {"h", "l", "t"}, True),
    ],
    ids=["a product reads it, too", "added last", "added first", "added as numbers"],
)
def test_a_sum_is_on_codes_only_where_onnx_runtime_puts_it_there(
    tmp_path: Path, shortcut: str, kept: set[str], *, put: bool
) -> None:
    """What it adds may be rounded only where a product on codes reads that, too."""
    request = chosen(tmp_path, SUMS.replace("SHORTCUT", shortcut), 20.0)
    network = prepare(request.model, request.options, in_halves())
    beside = measured_mixing(network, in_halves(), request, discard)
    coded = OnCodes(request, in_halves(), open_store("memory:"), discard, beside)
    names = {node.name for node in coded.quantizer.nodes}
    assert names == {"h", "k", "l", "r", "t", "u"}
    assert (names.intersection(coded.quantizer.on_codes(kept)) == names - kept) is put
    assert possible(coded.choice, kept) is put


def test_the_choice_is_made_again_by_what_was_seen(
    folder: Path, quantizer: Quantizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    decibels = seen_db(quantizer, []) - 4.0
    shown = iter([decibels - 3.0, decibels - 3.0, decibels + 1.0])  # the whole, and two choices
    told: list[str] = []
    fronts: list[tuple[float, float, Front]] = []
    within = CodeChoice.within

    def spying(choice: CodeChoice, budget: float) -> Front:
        front = within(choice, budget, _UNHURRIED_S)
        halved = replace(front, bound_ps=front.chosen.cost_ps // 2)  # as if there was no time
        fronts.append((choice.scale, budget, halved))
        return fronts[-1][-1]

    def checked(*_: Any) -> NetworkCheck:
        told_db = next(shown, decibels - 9.0)
        return NetworkCheck(max_abs_error=0.0, max_rel_error=0.0, sqnr_db=told_db)

    monkeypatch.setattr(CodeChoice, "within", spying)
    monkeypatch.setattr(OnCodes, "_checked", checked)
    request, placement = asked(folder, decibels, precision="auto"), in_halves()
    network = prepare(request.model, request.options, placement)
    beside = measured_mixing(network, placement, request, discard)
    coded = OnCodes(
        request, placement, open_store("memory:"), lambda e: told.append(str(e)), beside
    )
    choice = replace(coded.choice, scale=1.0)
    first, second = (front.chosen.assignment for _, _, front in fronts[:2])
    times = 10.0**0.3 / largest_share(choice.on_codes(first), choice.allowed)
    used = [(scale, budget) for scale, budget, _ in fronts[:2]]
    assert used == [(1.0, AIM), (pytest.approx(times), AIM_AGAIN)]
    assert choice.kept(first) != choice.kept(second)
    assert any("not proven" in each and "50.0% less" in each for each in told)
    (entry,) = coded.entries
    assert entry.mixing is not None and entry.mixing.corrections == 1
    assert on_codes(entry) == {n.name for n in choice.nodes if n.product}.difference(
        choice.kept(second)
    )


def test_no_set_of_operators_is_quantized_twice(
    folder: Path, quantizer: Quantizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    decibels = seen_db(quantizer, []) - 4.0
    made: list[list[str]] = []
    within, quantized = CodeChoice.within, Quantizer.quantized

    def unproven(choice: CodeChoice, budget: float) -> Front:
        return replace(within(choice, budget, _UNHURRIED_S), bound_ps=0)

    def counted(quantizer: Quantizer, kept: Any = ()) -> Any:
        made.append(sorted(kept))
        return quantized(quantizer, kept)

    def checked(*_: Any) -> NetworkCheck:
        return NetworkCheck(max_abs_error=0.0, max_rel_error=0.0, sqnr_db=decibels + 1.0)

    monkeypatch.setattr(CodeChoice, "within", unproven)
    monkeypatch.setattr(Quantizer, "quantized", counted)
    monkeypatch.setattr(OnCodes, "_checked", checked)
    request = asked(folder, decibels, precision="auto")
    network = prepare(request.model, request.options, in_halves())
    beside = measured_mixing(network, in_halves(), request, discard)
    assert OnCodes(request, in_halves(), open_store("memory:"), discard, beside).entries
    chosen = made[1:]  # the first is the whole
    assert chosen and all(kept not in chosen[:place] for place, kept in enumerate(chosen))


def test_a_network_without_outputs_in_floats_may_be_on_codes(tmp_path: Path) -> None:
    text = TEXT.replace("float[1, 32, 12, 12] y", "int64[1, 1, 12, 12] y")
    found, told = prepared(chosen(tmp_path, text.replace("Tanh(u)", "ArgMax <axis = 1> (u)"), None))
    left_out = "operators are not on codes" in "".join(told)
    assert len(found) == 2 + left_out, "all on codes races where it is not what was chosen"
    assert on_codes(found[1]) and on_codes(found[-1]) == {"h", "k", "u"}, told


def test_copies_of_numbers_have_the_name_of_what_they_are_copies_of() -> None:
    names = CodedNames(numbers={"t/numbers": "t"}, writers={})
    assert names.of("t/numbers") == names.of("t/numbers/duplicated_1") == "t"
    assert names.of("u/duplicated") == "u/duplicated"
