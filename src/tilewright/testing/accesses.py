"""What every way to reach devices must keep, as checks that another package can run on its own.

    from tilewright.testing.accesses import AccessConformance
    from tilewright.testing.implementations import single

    class TestMine(AccessConformance):
        access = ACCESS
        target = "toy"
        workloads = (single("relu", (1, 16, 8, 8)),)

The checks measure a few kernels and, where the access runs networks, compile and run a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import ClassVar

from msgspec import structs

from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Failure, Measurement, Outcome, Placement, Protocol
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import random_inputs
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import ranked_defaults
from tilewright.measure.accesses.base import Access
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.checking import check_kernel, compare_outputs
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare

_SEED = 0
_SHORT = Protocol(warmup=1, repeats=3, sample_s=1e-4, rotation_bytes=1 << 16)
_NOBODYS = "nobody knows this target"


def placement_of(access: Access, target: str, tracker: str | None = None) -> Placement:
    """What the access makes of its target."""
    placement = access.placement(target, tracker, None)
    assert placement is not None, f"the access does not know its target {target!r}"
    return placement


def check_targets(access: Access, target: str, tracker: str | None = None) -> None:
    """Its target is a placement, the same one whenever it is asked for; it leaves others alone, and
    is found by the device that it reaches."""
    placement = placement_of(access, target, tracker)
    device = placement.device
    assert device.access == access.name, f"the device is reached by {device.access!r}"
    assert device.class_key and device.instance, "the device has no name"
    assert placement_of(access, target, tracker).key == placement.key, "asked twice, it differs"
    assert access_to(device) is access, f"no entry point offers the access {access.name!r}"
    assert access.refusal(placement) is None, access.refusal(placement)
    assert isinstance(access.note, str)
    for row in access.rows(None):
        assert row.name and row.detail, "a row of `targets` says nothing"
    try:
        other = access.placement(_NOBODYS, None, None)
    except TilewrightError:
        return  # who reads every text says what is wrong with it
    assert other is None, f"it takes the target {_NOBODYS!r}"


def check_kernels(access: Access, placement: Placement, workload: Workload) -> None:
    """Each candidate has an outcome, in order and told as soon as it is known; a candidate that
    cannot be built costs a failure; results are right, and hashes those that were measured."""
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    good = [candidate for candidate, _ in ranked_defaults(workload, forms, placement)]
    broken = structs.replace(good[0], implementation="no such implementation")
    asked: list[Candidate] = [good[0], broken, *good[1:]]
    told: list[Outcome] = []
    with access.measurer(placement, seed=_SEED) as measurer:
        outcomes = measurer.measure(workload, asked, _SHORT, finished=told.append)
        assert [outcome.candidate for outcome in outcomes] == asked, "outcomes in another order"
        assert sorted(map(id, told)) == sorted(map(id, outcomes)), "not all outcomes were told"
        assert isinstance(outcomes[1], Failure) and outcomes[1].message
        for outcome in (outcomes[0], *outcomes[2:]):
            assert isinstance(outcome, Measurement), outcome
            assert outcome.samples_s and all(isfinite(s) and s > 0 for s in outcome.samples_s)
            assert outcome.placement_key == placement.key, "measured for another placement"
        hashes = measurer.current_hashes([(workload, good[0]), (workload, broken)])
        assert hashes == [outcomes[0].kernel_hash, None], "hashes are not those of the kernels"
        for candidate in good:
            found = check_kernel(measurer, workload, candidate, _SEED)
            assert found.failure is None, found.failure
        peaks = measurer.peaks()
        for name in ("flop_per_s", "bytes_per_s", "cache_bytes_per_s"):
            assert peaks[name] > 0, f"the peak {name} is not positive"


def check_networks(access: Access, placement: Placement, model: str, folder: Path) -> None:
    """A network gives what numpy gives, run after run, in any process that loads its files; its
    runs and its calls have times; what is not there is refused."""
    network = prepare(model, ModelOptions(), placement)
    plan, graph = network.plan, network.graph
    inputs = random_inputs(network.model.graph, _SEED)
    ordered = [inputs[name] for name in graph.inputs]
    wanted = run_graph(network.model.graph, inputs)
    expected = [wanted[name] for name in network.model.graph.outputs]
    with access.networks(placement) as networks:
        compiled = networks.compile(plan, graph.constants, folder)
        assert set(compiled.workspaces) == set(plan.symbols.values())
    with access.networks(placement) as networks:
        networks.load("one", folder, plan.constant_names)
        for _ in range(2):
            found = networks.run("one", ordered)
            check = compare_outputs(found, expected, graph.outputs)
            assert check.max_rel_error < 1e-3, f"off by {check.max_rel_error:.3g}"
        times_s = networks.time("one", ordered, repeats=3, warmup=1)
        assert len(times_s) == 3 and all(isfinite(s) and s > 0 for s in times_s), times_s
        ours = set(plan.symbols.values())
        calls = [name for name, s in networks.time_calls("one", ordered, repeats=2) if s > 0]
        symbols = [plan.symbol(call) for call in plan.calls]
        assert [name for name in calls if name in ours] == symbols, "calls in another order"
        assert networks.repeat("one", ordered, 0.01) >= 1
        networks.unload("one")
        assert _refused(lambda: networks.run("one", ordered)), "it runs what it forgot"
        nowhere = folder / "nothing"
        assert _refused(lambda: networks.load("two", nowhere, plan.constant_names))
    with access.networks(placement) as networks:
        peak = networks.memory_peak(folder, plan.constant_names, ordered)
        assert (peak.bytes is not None and peak.bytes > 0) or peak.reason


def _refused(work: Callable[[], object]) -> bool:
    """Whether something ends with an error that says what is wrong."""
    try:
        work()
    except (TilewrightError, KeyError):
        return True
    return False


class AccessConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `access`, `target` and
    `workloads`, and `model` where the device does not run the usual small network."""

    access: ClassVar[Access]
    target: ClassVar[str]
    workloads: ClassVar[Sequence[Workload]]
    tracker: ClassVar[str | None] = None
    model: ClassVar[str] = "zoo:mlp"

    @property
    def placement(self) -> Placement:
        """What the target means."""
        return placement_of(self.access, self.target, self.tracker)

    def test_targets(self) -> None:
        check_targets(self.access, self.target, self.tracker)

    def test_kernels(self) -> None:
        for workload in self.workloads:
            check_kernels(self.access, self.placement, workload)

    def test_networks(self, tmp_path: Path) -> None:
        if self.access.runs_networks:
            check_networks(self.access, self.placement, self.model, tmp_path / "made")
            return
        assert _refused(lambda: self.access.networks(self.placement)), "it opened networks"
