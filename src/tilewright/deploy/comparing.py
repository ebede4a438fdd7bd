"""`compare`: our network beside its peers, in turn, on the same cores and threads."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from tilewright.core.arguments import texts_of
from tilewright.core.comparisons import CompareResult, CompareRow, beside_ours
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.grouping import grouped
from tilewright.core.records import NetworkCheck, Placement, Precision
from tilewright.core.scratch import scratch_folder
from tilewright.core.targets import Target
from tilewright.core.timings import Timing
from tilewright.deploy.artifact import refuse_elsewhere
from tilewright.deploy.opening import OpenedArtifact, open_model
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.base import FLOAT16, MIXED
from tilewright.kernels.codes import rounds_to_codes
from tilewright.kernels.compute_units import multiplied_type
from tilewright.kernels.cuda.base import CUDA
from tilewright.kernels.spaces import MAX_ERROR
from tilewright.measure import checking, network_timing, targeting
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.peers.base import PEERS, Peer, PrecisionRequest, Tensors, make_peer, mode_of
from tilewright.measure.reference import REFERENCE, checking_placement, peer_beside
from tilewright.models import ModelOptions
from tilewright.models.calibration import noise_inputs
from tilewright.models.loaded import ON_CODES, PreparedNetwork
from tilewright.report import islands
from tilewright.report.comparison import OUR_PRECISION, geomean_speedup, no_more_error
from tilewright.store.base import Store
from tilewright.store.known_candidates import PlanOfBefore, SettingsName, choose_plan

_OURS = "tilewright"
_USUAL = {CUDA: ("onnxruntime", "torch", "torch_compiled", "jax", "tensorrt")}
_OTHERWISE = ("onnxruntime", "openvino", "torch")
_JUDGED_ON, _JUDGED_ON_IN_SINGLE = 8, 2
"""Drawn inputs on which noise is compared: on single ones it is up to a decibel more or less."""


_UNCHECKED = NetworkCheck(max_abs_error=inf, max_rel_error=inf)


@dataclass(slots=True)
class _Started:
    """A peer with the network loaded, in a precision, perhaps its `default` one, in one way of
    several; what it computed of each input, and how right that is."""

    label: str
    peer: Peer
    precision: str
    default: bool
    mode: str
    outputs: list[Tensors] = field(default_factory=list[Tensors])
    check: NetworkCheck = _UNCHECKED


_IN_ROWS: Mapping[Precision, str] = {
    "int8": "int8",
    "bfloat16": "bf16",
    "float16": "fp16",
    "int8-weights": "int8 weights",
    "float32": OUR_PRECISION,
}
"""How rows name our precisions, the one that makes most noise first."""
_CODES, _FP16 = _IN_ROWS[ON_CODES], _IN_ROWS[FLOAT16]
_ASKED: Mapping[str, PrecisionRequest] = {"fp32": "fp32", "fp16": "fp16"}
"""What peers are asked for where that is not left to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparer:
    """One `compare` command. `verify` has files of artifacts checked by their hashes."""

    placement: Placement
    store: Store
    events: EventSink
    seed: int
    peers: tuple[str, ...]
    settings: SettingsName
    rounds: int
    verify: bool = True
    max_error: float = MAX_ERROR

    def run(self, models: Sequence[str], options: ModelOptions) -> CompareResult:
        """Compare each model with every peer that is there; of two of one name the later one is
        told with its argument."""
        rows: list[CompareRow] = []
        skipped: dict[str, str] = {}
        allowed = targeting.allowing(self.placement, options)
        comparer = replace(self, placement=allowed)
        for model in models:
            found = comparer._compare(model, options, skipped)
            taken = {row.model for row in rows}
            rows += [replace(row, model=_distinct(row.model, model, taken)) for row in found]
        if not rows:
            raise _without_peers(skipped, self.placement.target)
        mean, exact = geomean_speedup(rows), geomean_speedup(rows, no_more_error)
        return CompareResult(
            rows=tuple(rows),
            geomean_speedup=mean.value if mean else None,
            geomean_speedup_low=mean.low if mean else None,
            geomean_speedup_high=mean.high if mean else None,
            geomean_at_no_more_error=exact.value if exact else None,
            geomean_at_no_more_error_low=exact.low if exact else None,
            geomean_at_no_more_error_high=exact.high if exact else None,
            skipped=skipped,
        )

    def _compare(
        self, model: str, options: ModelOptions, skipped: dict[str, str]
    ) -> list[CompareRow]:
        self.events(Stage(name="import", detail=model))
        network, artifact = open_model(model, options, self.placement, verify=self.verify)
        self._tell([network.model.remark] if network.model.remark else [])
        if artifact is not None:
            refuse_elsewhere(artifact, self.placement)
        judged = self._judged(network, options)
        inputs = judged[0]
        ordered = [inputs[name] for name in network.graph.inputs]
        with ExitStack() as stack:
            worker, plan = self._loaded(stack, network, artifact)
            own = _own_precision(network, plan)
            peers = self._started(stack, worker, network, judged, skipped)
            if not peers:
                return []
            check = self._check(worker, network, judged, peers)
            self._tell(check.untold)
            runners: dict[str, network_timing.Runner] = {
                _OURS: network_timing.network_runner(worker, _OURS, ordered)
            }
            runners |= {each.label: network_timing.peer_runner(each.peer, inputs) for each in peers}
            self.events(Stage(name="compare", detail=f"{model}: in turn with {len(peers)} peers"))
            timings = network_timing.time_together(
                runners, network_timing.Rounds(count=self.rounds)
            )
            return [
                self._row(network, each, timings[each.label], (timings[_OURS], check, own))
                for each in peers
            ]

    def _judged(self, network: PreparedNetwork, options: ModelOptions) -> list[dict[str, Array]]:
        """The inputs on which outputs are compared, those of people that `optimize` judges on or
        drawn ones; the first one is also timed."""
        graph = network.model.graph
        if network.precision == ModelOptions().precision:
            return [
                random_inputs(graph, self.seed + number) for number in range(_JUDGED_ON_IN_SINGLE)
            ]
        inputs = noise_inputs(graph, options.calibration, self.seed, judged=_JUDGED_ON)
        return [dict(each) for each in inputs.judged]

    def _loaded(
        self, stack: ExitStack, network: PreparedNetwork, artifact: OpenedArtifact | None
    ) -> tuple[NetworkRunner, NetworkPlan | PlanOfBefore]:
        """A worker with our network loaded, the artifact as it is or compiled now; and its plan."""
        folder = stack.enter_context(scratch_folder())
        worker = stack.enter_context(targeting.open_networks(self.placement))
        if artifact is not None:
            self._tell(artifact.islands)
            worker.load(_OURS, artifact.folder, artifact.manifest.constants)
            return worker, artifact.manifest.shipped_plan
        plan = choose_plan(
            network, self.store, self.placement, self.settings, max_error=self.max_error
        )
        self._tell(islands.of_plan(plan))
        self.events(Stage(name="compile", detail=f"{len(plan.symbols)} kernels"))
        worker.compile(plan, network.graph.constants, folder)
        worker.load(_OURS, folder, plan.constant_names)
        return worker, plan

    def _tell(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self.events(Note(message=sentence))

    def _started(
        self,
        stack: ExitStack,
        worker: NetworkRunner,
        network: PreparedNetwork,
        judged: Sequence[Mapping[str, Array]],
        skipped: dict[str, str],
    ) -> list[_Started]:
        """Started peers that have run: each in fp32, once more by default where that is something
        else, in fp16 where ours is in it and they can be asked for it, and on the codes that were
        calibrated for ours. A model that came on codes is computed on them in either precision of
        the rest."""
        started: list[_Started] = []
        plain = network.model.onnx_path
        files: dict[str, Path] = {OUR_PRECISION: plain, "default": plain}
        if network.precision == FLOAT16:
            files[_FP16] = plain
        if network.model.quantized is not None:
            files[_CODES] = network.model.quantized.path
        on_codes = {*files} if _came_on_codes(network) else {_CODES}
        for name in self.peers:
            for request, file in files.items():
                peer = peer_beside(worker, name)
                reason = peer.available()
                if reason is not None:
                    skipped[name] = reason
                    break
                stack.callback(peer.stop)
                threads, cpus = self.placement.resources.threads, self.placement.binding.cpus
                try:
                    peer.start(file, threads, cpus, _ASKED.get(request, "default"))
                    default = request == "default"
                    same = default and peer.precision == OUR_PRECISION
                    if same or (request == _FP16 and peer.precision != _FP16):
                        peer.stop()
                        continue
                    precision = _CODES if request in on_codes else peer.precision
                    found = _Started(
                        f"{name} {request}", peer, precision, default, _mode(peer, precision)
                    )
                    found.outputs = [peer.run(each) for each in judged]
                    started.append(found)
                except TargetError as error:
                    skipped[f"{name} ({network.model.name})"] = error.message
                    self.events(Note(message=f"{name} left out: {error.message}"))
                    break
        return started

    def _check(
        self,
        worker: NetworkRunner,
        network: PreparedNetwork,
        judged: Sequence[Mapping[str, Array]],
        peers: Sequence[_Started],
    ) -> NetworkCheck:
        """Our results and those of the peers against the reference's."""
        reference = make_peer(REFERENCE)
        where = checking_placement(worker, self.placement)
        try:
            reference.start(network.model.onnx_path, where.resources.threads, where.binding.cpus)
            expected = [reference.run(inputs) for inputs in judged]
        finally:
            reference.stop()
        names = network.model.outputs
        wanted = [[outputs[name] for name in names] for outputs in expected]
        for each in peers:
            found = [[outputs[name] for name in names] for outputs in each.outputs]
            each.check = checking.compare_runs(found, wanted, names)
        ordered = ([inputs[name] for name in network.graph.inputs] for inputs in judged)
        ours = [worker.run(_OURS, inputs) for inputs in ordered]
        return checking.compare_runs(ours, wanted, network.graph.outputs)

    def _row(
        self,
        network: PreparedNetwork,
        started: _Started,
        theirs: Timing,
        ours: tuple[Timing, NetworkCheck, str],
    ) -> CompareRow:
        timing, check, own = ours
        speedup = timing.speedup_over(theirs)
        return CompareRow(
            model=network.model.name,
            peer=started.peer.name,
            precision=started.precision,
            own_precision=own,
            threads=self.placement.resources.threads,
            latency_s=timing.latency_s,
            peer_latency_s=theirs.latency_s,
            speedup=speedup.value,
            speedup_low=speedup.low,
            speedup_high=speedup.high,
            max_abs_error=check.max_abs_error,
            max_rel_error=check.max_rel_error,
            latency_spread=timing.spread,
            peer_spread=theirs.spread,
            default_precision=started.default,
            mode=started.mode,
            peer_rel_error=started.check.max_rel_error,
            peer_error=beside_ours(started.check, check),
            sqnr_db=check.sqnr_db,
            peer_sqnr_db=started.check.sqnr_db,
            top1_agreement=check.top1_agreement,
            peer_top1_agreement=started.check.top1_agreement,
        )


def _own_precision(network: PreparedNetwork, plan: NetworkPlan | PlanOfBefore) -> str:
    """How rows name what our network is in: of a mixture the coarsest type that it multiplies or
    stores, `auto (int8)`."""
    if _came_on_codes(network):
        return _CODES
    if network.precision != MIXED:
        return _IN_ROWS[network.precision]
    found: set[str] = {"bfloat16"}
    if isinstance(plan, NetworkPlan):
        calls = [(call.workload, call.candidate) for call in plan.calls]
        found = {multiplied_type(workload, each.implementation) for workload, each in calls}
        found |= {form.dtype or "" for _, each in calls for form in each.forms}
    named = (name for precision, name in _IN_ROWS.items() if precision in found)
    return f"{MIXED} ({next(named, OUR_PRECISION)})"


def _came_on_codes(network: PreparedNetwork) -> bool:
    """Whether a network's own file rounds to codes of eight bits."""
    return network.model.quantized is None and rounds_to_codes(network.model.graph)


def _mode(peer: Peer, precision: str) -> str:
    """How a peer computes, in words, where it has a choice; on codes with the rest in what."""
    plain = precision != _CODES or peer.precision in (OUR_PRECISION, _CODES)
    return ", ".join(
        filter(None, (mode_of(peer), "" if plain else f"the rest in {peer.precision}"))
    )


def _without_peers(skipped: Mapping[str, str], target: Target) -> TargetError:
    """The error where nothing is there to compare with; peers with one reason are told together."""
    names = grouped([(reason, name) for name, reason in skipped.items()])
    told = "; ".join(f"{', '.join(those)}: {reason}" for reason, those in names.items())
    return TargetError(
        f"no peer can be used: {told}",
        hint="Install one where the networks run: torch built with CUDA, jax[cuda13], "
        "onnxruntime-gpu in place of onnxruntime, or tilewright[tensorrt]."
        if target.kind == CUDA
        else "Name another with --peers (onnxruntime is installed with tilewright), or install one "
        "where the networks run: pip install 'tilewright[openvino]'.",
    )


def require_models(models: Sequence[object]) -> None:
    """Raise UsageError where there is nothing to compare."""
    if not models:
        raise UsageError("compare needs at least one MODEL.", hint="tilewright compare zoo:mlp")


def usual_peers(target: Target) -> tuple[str, ...]:
    """Whom networks are compared with where nobody says otherwise."""
    return _USUAL.get(target.kind, _OTHERWISE)


def asked_peers(names: object, target: Target) -> tuple[str, ...]:
    """Those that a person names, one or several; the usual ones of the target for None. Raises as
    `checked_peers` does, and UsageError for what are no names."""
    return checked_peers(usual_peers(target) if names is None else texts_of(names, "peers"))


def checked_peers(names: Sequence[str]) -> tuple[str, ...]:
    """Peers that are known, each once. Raises UsageError for others and for none at all,
    PluginError for those whose package is broken."""
    if not names:
        raise UsageError("no peer is named", hint="Known: " + ", ".join(PEERS.names()))
    for name in names:
        make_peer(name)
    return tuple(dict.fromkeys(names))


def _distinct(name: str, argument: str, taken: Container[str]) -> str:
    """`mlp`, or `mlp (out/mlp)` beside another `mlp`."""
    label, count = name, 1
    while label in taken:
        label = f"{name} ({argument})" if count == 1 else f"{name} ({argument}, {count})"
        count += 1
    return label
