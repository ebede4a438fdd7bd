"""Which operators stay in single precision for the error, and what makes the noise on codes."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.placements import altered
from helpers.networks.quantizable import images, saved, written
from tilewright.core.budget import parse_budget
from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import Event, discard
from tilewright.core.noise import RoundingNoise
from tilewright.core.records import Placement
from tilewright.deploy import mixing
from tilewright.deploy.mixing import measured_mixing
from tilewright.deploy.quantizing import Entry, OnCodes, entered
from tilewright.hardware.device import local_placement
from tilewright.hardware.features import units_of
from tilewright.kernels.compute_units import multiplied_type
from tilewright.kernels.halves import half_lanes
from tilewright.measure.checking import compare_runs
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions, loading
from tilewright.models.quantizing import Quantizer
from tilewright.plan.code_choice import CodeChoice
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import mixed_plan
from tilewright.plan.preparation import prepare
from tilewright.search.layout_costs import LayoutCosts
from tilewright.search.levels import OptimizeRequest
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


def asked(folder: Path, decibels: float, **named: Any) -> OptimizeRequest:
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
    return entered(request, placement, lambda event: told.append(str(event))), told


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
        found = entered(asked(folder, whole - 4.0, precision="auto", **named), placement, discard)
        network, mixing = found[1].network, found[1].mixing
        assert mixing is not None
        problem = NetworkProblem(
            network=network.fused,
            usual=network.forms,
            placement=placement,
            times=LayoutCosts(placement=placement, max_error=inf),
            mixture=mixing.mixture,
        )
        plan = mixed_plan(problem, "chosen", "auto")[0].plan
        types = {
            c.name: multiplied_type(c.workload, c.candidate.implementation) for c in plan.calls
        }
        assert {name for name, dtype in types.items() if dtype == "int8"} == on_codes(found[1])
        assert types["u"] == "int8" and types["e"] == ("float32" if keep else "int8")
        if keep:
            (call,) = (each for each in plan.calls if each.name == "e")
            assert {form.dtype for form in call.candidate.forms} == {None}


@pytest.fixture(scope="module")
def choice(folder: Path) -> CodeChoice:
    request = asked(folder, 30.0, precision="auto")
    placement = allowing(local_placement(1), request.options)
    network = prepare(request.model, request.options, placement)
    beside = measured_mixing(network, placement, request, discard)
    return OnCodes(request, placement, discard, beside).choice


@with_halves
@settings(deadline=None, max_examples=10)
@given(st.floats(1e-4, 10.0), st.floats(-6.0, 3.0), st.floats(-6.0, 3.0), st.data())
def test_a_choice_is_never_slower_than_one_type_for_all(
    choice: CodeChoice, budget: float, codes: float, halves: float, data: st.DataObject
) -> None:
    factors = {name: data.draw(st.floats(0.1, 10.0)) for name in (*NODES, *TENSORS)}
    assert choice.halves is not None
    changed = CodeChoice(
        nodes=choice.nodes, networks=choice.networks, placement=choice.placement, allowed=(1.0,),
        noise=noisy(choice.noise, factors, 10.0**codes), single=choice.single,
        halves=noisy(choice.halves, factors, 10.0**halves),
    )  # fmt: skip
    front = changed.within(budget)
    chosen = front.chosen.assignment
    shares = [changed.on_codes(chosen)[0], changed.in_halves(chosen)[0]]
    assert sum(shares) == pytest.approx(front.chosen.noise) and sum(shares) <= budget * 1.000001
    assert front.bound_ps == pytest.approx(front.chosen.cost_ps, rel=1e-6)
    for value in changed.values:
        uniform = dict.fromkeys(chosen, value)
        if changed.on_codes(uniform)[0] + changed.in_halves(uniform)[0] <= budget:
            assert front.chosen.cost_ps <= changed.problem.cost(uniform)


NODES, TENSORS = ("h", "depthwise", "u", "e"), ("x", "h", "k", "u", "s", "m", "e")


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
