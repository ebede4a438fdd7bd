"""The shipped suites for builders and accesses: on the null builder and the simulated device, and
each check fails for what it is there to find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.builders.base import SimulatedKernel
from tilewright.compiler.builders.null import BUILDER
from tilewright.compiler.builders.registry import builder_for, builder_named
from tilewright.core.errors import TargetError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Failure, Protocol
from tilewright.kernels.spaces import ranked_defaults
from tilewright.measure.accesses.registry import access_to, accesses
from tilewright.measure.simulation import SimulatedMeasurer, SimulatedNetworks
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.testing import accesses as access_suite
from tilewright.testing import builders as builder_suite
from tilewright.testing.accesses import AccessConformance
from tilewright.testing.builders import BuilderConformance
from tilewright.testing.implementations import made_up_placement, single

PLACEMENT = made_up_placement()
DENSE = single("dense", (4, 64), (64, 32), constants=[1])
WORKLOADS = (single("relu", (1, 16, 8, 8)), DENSE)
SIMULATED = accesses()["simulated"]


class TestNull(BuilderConformance):
    builder = BUILDER
    placement = PLACEMENT
    workloads = WORKLOADS


class TestSimulated(AccessConformance):
    access = SIMULATED
    target = "simulated"
    workloads = WORKLOADS


def test_implementations_name_their_builder_and_unknown_ones_are_told() -> None:
    usual = Candidate(implementation="generic", settings=(), forms=(PLAIN, PLAIN))
    assert builder_for(usual).name == "llvm"
    with pytest.raises(TargetError, match="builds kernels with 'lvm'") as raised:
        builder_named("lvm")
    assert raised.value.hint is not None and "llvm" in raised.value.hint


class Altered:
    """The null builder with some of its methods replaced, and what they build with some more."""

    name = "null"

    def __init__(self, kernel: dict[str, Any] | None = None, **changes: Callable[..., Any]) -> None:
        self._kernel = kernel or {}
        for name in ("identify", "build", "render"):
            setattr(self, name, changes.get(name, getattr(self, f"_{name}")))

    def _identify(self, *arguments: Any) -> str:
        return BUILDER.identify(*arguments)

    def _render(self, *arguments: Any) -> str:
        return BUILDER.render(*arguments)

    def _build(self, *arguments: Any) -> SimulatedKernel:
        kernel = BUILDER.build(*arguments)
        for name, value in self._kernel.items():
            setattr(kernel, name, value)
        return kernel


numbers = iter(range(10_000))


def spoiled(arrays: Sequence[np.ndarray]) -> np.ndarray:
    arrays[0][:] = 0
    return arrays[0] @ arrays[1]


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (builder_suite.check_identity, Altered(identify=lambda *_: f"number {next(numbers)}")),
        (builder_suite.check_identity, Altered(identify=lambda *_: "")),
        (builder_suite.check_identity, Altered({"kernel_hash": "another"})),
        (builder_suite.check_results, Altered({"run": lambda arrays: arrays[0] @ arrays[1] * 2})),
        (builder_suite.check_results, Altered({"run": lambda arrays: arrays[0]})),
        (builder_suite.check_results, Altered({"run": spoiled})),
        (builder_suite.check_times, Altered({"time": lambda *_: [1e-6]})),
        (builder_suite.check_times, Altered({"time": lambda *_: [0.0] * 3})),
        (builder_suite.check_times, Altered({"repeat": lambda *_: 0})),
        (builder_suite.check_times, Altered({"keep_running": lambda *_: []})),
        (builder_suite.check_refusals, Altered(build=lambda *_: None)),
        (builder_suite.check_views, Altered(render=lambda *_: "")),
    ],
)
def test_builders_that_break_a_promise_are_found(check: Any, bad: Altered) -> None:
    check(BUILDER, DENSE, PLACEMENT)
    with pytest.raises(AssertionError):
        check(bad, DENSE, PLACEMENT)


class Wrapped:
    """The simulated access with some attributes replaced."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        return self._changes[name] if name in self._changes else getattr(SIMULATED, name)


def elsewhere(*_arguments: Any) -> Any:
    found = SIMULATED.placement("simulated", None, None)
    assert found is not None
    return replace(found, device=replace(found.device, access="here"))


def test_accesses_whose_targets_break_a_promise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    access_suite.check_targets(SIMULATED, "simulated")
    for changes in (
        {"placement": lambda *_: None},
        {"placement": elsewhere},
        {"placement": lambda *_: SIMULATED.placement("simulated", None, next(numbers) % 3 + 1)},
        {"placement": lambda *_: SIMULATED.placement("simulated", None, None)},
        {"refusal": lambda _placement: "not today"},
    ):
        bad = Wrapped(**changes)
        monkeypatch.setattr(access_suite, "access_to", lambda _device, bad=bad: bad)
        with pytest.raises(AssertionError):
            access_suite.check_targets(bad, "simulated")
    monkeypatch.setattr(access_suite, "access_to", access_to)
    with pytest.raises(AssertionError, match="no entry point"):
        access_suite.check_targets(Wrapped(), "simulated")


class Reversed(SimulatedMeasurer):
    def measure(self, workload, candidates, protocol, **named):
        return super().measure(workload, candidates[::-1], protocol, **named)


class Silent(SimulatedMeasurer):
    def measure(self, workload, candidates, protocol, **_named):
        return super().measure(workload, candidates, protocol)


class Wrong(SimulatedMeasurer):
    def evaluate(self, workload, candidate, arrays):
        return np.asarray(super().evaluate(workload, candidate, arrays)) + 1


class Forgetful(SimulatedMeasurer):
    def current_hashes(self, kernels):
        return ["another" for _ in kernels]


class Weak(SimulatedMeasurer):
    def peaks(self):
        return dict.fromkeys(super().peaks(), 0.0)


@pytest.mark.parametrize("kind", [Reversed, Silent, Wrong, Forgetful, Weak])
def test_measurers_that_break_a_promise_are_found(kind: type[SimulatedMeasurer]) -> None:
    placement = access_suite.placement_of(SIMULATED, "simulated")
    access_suite.check_kernels(SIMULATED, placement, DENSE)
    peaks = {"flop_per_s": 1.0, "bytes_per_s": 1.0, "cache_bytes_per_s": 1.0}
    bad = Wrapped(measurer=lambda *_, seed: kind(placement, lambda _: BUILDER, peaks))
    with pytest.raises(AssertionError):
        access_suite.check_kernels(bad, placement, DENSE)


def raises(*_arguments: Any) -> Any:
    raise ValueError("no such tile")


def test_what_a_builder_cannot_do_costs_a_candidate_or_names_the_network(tmp_path: Path) -> None:
    placement = access_suite.placement_of(SIMULATED, "simulated")
    candidate, _ = ranked_defaults(DENSE, (PLAIN,) * 3, placement)[0]
    broken = {"build": Altered(build=raises), "crash": Altered({"time": raises, "run": raises})}
    for kind, builder in broken.items():
        with SimulatedMeasurer(placement, lambda _, found=builder: found, {}) as measurer:
            (outcome,) = measurer.measure(DENSE, [candidate], Protocol())
            result = measurer.evaluate(DENSE, candidate, [])
        for failure in (outcome, result):
            assert isinstance(failure, Failure)
            assert (failure.kind, failure.message) == (kind, "ValueError: no such tile")
    network = prepare("zoo:mlp", ModelOptions(), placement)
    with SimulatedNetworks(placement, lambda _: broken["build"]) as networks:
        networks.compile(network.plan, network.graph.constants, tmp_path)
        with pytest.raises(TargetError, match="cannot be built here: ValueError: no such tile"):
            networks.load("mlp", tmp_path, network.plan.constant_names)


class Off(SimulatedNetworks):
    def run(self, name, inputs):
        return [output + 1 for output in super().run(name, inputs)]


class Backwards(SimulatedNetworks):
    def time_calls(self, name, inputs, *, repeats):
        return super().time_calls(name, inputs, repeats=repeats)[::-1]


class Remembers(SimulatedNetworks):
    def unload(self, name):
        """Keep it."""


class Lavish(SimulatedNetworks):
    def time(self, name, inputs, *, repeats, warmup):
        return super().time(name, inputs, repeats=repeats + warmup, warmup=warmup)


@pytest.mark.parametrize("kind", [Off, Backwards, Remembers, Lavish])
def test_networks_that_break_a_promise_are_found(
    kind: type[SimulatedNetworks], tmp_path: Path
) -> None:
    placement = access_suite.placement_of(SIMULATED, "simulated")
    access_suite.check_networks(SIMULATED, placement, "zoo:mlp", tmp_path / "good")
    bad = Wrapped(networks=lambda _placement: kind(placement, lambda _: BUILDER))
    with pytest.raises(AssertionError):
        access_suite.check_networks(bad, placement, "zoo:mlp", tmp_path / "bad")
