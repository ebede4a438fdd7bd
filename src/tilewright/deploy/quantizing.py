"""A float32 network on codes of eight bits, as many of its operators as the error allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from time import perf_counter

from tilewright.core.arguments import kept_names
from tilewright.core.errors import ModelError, NegativeVerdict
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.grouping import grouped
from tilewright.core.mixtures import FrontPoint
from tilewright.core.noise import largest_share
from tilewright.core.records import NetworkCheck, Placement
from tilewright.deploy import hashes
from tilewright.deploy.kept_noise import kept_noise
from tilewright.deploy.mixing import Mixing, measured_mixing
from tilewright.kernels.base import HALF, MIXED
from tilewright.kernels.halves import half_lanes
from tilewright.measure import checking
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import ON_CODES, OnnxReference, PreparedNetwork
from tilewright.models.quantizing import NOISE_ON, Quantizer, numbers_of
from tilewright.plan.code_choice import CodeChoice
from tilewright.plan.halves_beside_codes import CodedNames, carried_over, kept_beside
from tilewright.plan.mixture import AIM, AIM_AGAIN, Mixture
from tilewright.plan.preparation import prepare, prepare_loaded
from tilewright.search.layout_costs import recorded_costs
from tilewright.search.levels import OptimizeRequest
from tilewright.store.base import Store

_AGAIN = 2
"""How often the choice is made anew by what the networks on codes showed."""
_WORTH_IT = 0.995
"""A choice is made anew where it is expected to take at most this part of the time."""
_PROVEN = 1e-6
"""Costs that differ by this part are one."""
_NAMED = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A network that may ship, and the choice of types for it, None where there is none."""

    network: PreparedNetwork
    mixing: Mixing | None = None


def entered(
    request: OptimizeRequest,
    placement: Placement,
    store: Store,
    events: EventSink,
    *,
    alone: bool = True,
) -> list[Entry]:
    """The networks that race for what is asked for: with types that are chosen, one without codes,
    one with them and, where the error allows it, one with all on codes that may be; only the first
    for shapes that are not `alone`. Raises as loading, and as `OnCodes`."""
    if placement.precision == ON_CODES:
        coded = OnCodes(request, placement, store, events)
        return [
            *coded.entries,
            *([Entry(coded.beside.network, coded.beside)] if coded.beside else []),
        ]
    network = prepare(request.model, request.options, placement)
    if placement.precision != MIXED:
        return [Entry(network)]
    found = [Entry(network, measured_mixing(network, placement, request, events))]
    try:
        return found + (
            OnCodes(request, placement, store, events, found[0].mixing).entries if alone else []
        )
    except ModelError as error:
        events(Note(message=f"Nothing is put on codes: {error.message}"))
        return found


@dataclass(frozen=True, slots=True)
class _Found:
    """An ONNX file on codes whose error is allowed, with what was seen of it: the part of what is
    allowed that it uses, the nodes that are not on codes, the front it was chosen from, and the
    part of its time by which a faster one is not ruled out."""

    file: OnnxReference
    check: NetworkCheck
    seen: float
    kept: list[str]
    points: tuple[FrontPoint, ...]
    corrections: int
    gap: float


class OnCodes:
    """The network that is asked for on codes, less the operators that cannot be for its error, with
    the choice between halves and singles for these: `entries` has it, or nothing where no operator
    on codes is expected to make the network faster.

    `beside` is the same network without codes and its noise. Where it is given, the network with
    all operators on codes is among the entries, too, if the error allows it and that is not what
    was chosen: it is what `--precision int8` makes, and the choice aims below the error. Where it
    is not given, all operators are on codes if the error allows it, and without anything on codes
    or in halves that is within the error NegativeVerdict is raised. Raises as loading and a
    `Quantizer`.
    """

    def __init__(
        self,
        request: OptimizeRequest,
        placement: Placement,
        store: Store,
        events: EventSink,
        beside: Mixing | None = None,
    ) -> None:
        usual = ModelOptions()
        single = replace(
            request.options,
            precision=usual.precision,
            keep=usual.keep,
            calibration=usual.calibration,
            calibrator=usual.calibrator,
        )
        self.request, self.placement = request, placement
        self.store, self.events = store, events
        self.beside = beside
        self.model = loading.load(request.model, single) if beside is None else beside.network.model
        self.quantizer = Quantizer(self.model, request.options)
        self.expected = self.quantizer.judged(self.model.onnx_path)
        self.entries: list[Entry] = []
        file = self.quantizer.quantized()
        check = self._checked(file)
        if beside is None and request.allows(check):
            self.entries.append(Entry(self._prepared(file)))
            return
        began = perf_counter()
        self.choice = choice = self._choice(file)
        found = self._within(choice)
        if found is not None:
            network = self._prepared(found.file)
            mixing = self._mixing(choice, network, found, perf_counter() - began)
            self.entries.append(Entry(network, mixing))
            self._tell(found, check)
        if beside is not None and request.allows(check) and (found is None or found.kept):
            self.entries.append(Entry(self._prepared(file)))
        elif found is None and beside is None and not self._worthless(choice):
            raise self._unmet(check)

    def _prepared(self, file: OnnxReference) -> PreparedNetwork:
        codes = loading.with_codes(self.model, file, self.quantizer.remark)
        return prepare_loaded(codes, self.request.options, self.placement)

    def _choice(self, file: OnnxReference) -> CodeChoice:
        """The problem of which operators are on codes, with the noise of each measured."""
        asked = self.beside is None
        if asked and half_lanes(self.placement.target):
            single = prepare_loaded(self.model, self.request.options, self.placement)
            self.beside = measured_mixing(single, self.placement, self.request, self.events)
        self.events(Stage(name="noise", detail=f"{len(self.quantizer.nodes)} operators on codes"))
        beside = self.beside
        count = NOISE_ON if beside is None else len(beside.inputs.fitted)
        noise = kept_noise(
            "codes",
            [hashes.weights_digest(self.model.graph.constants), hashes.file_sha256(file.path)],
            self.quantizer.inputs.fitted[:count],
            lambda: self.quantizer.noise(file, count),
            self.events,
        )
        single = beside.network if beside is not None else None
        single = single or prepare_loaded(self.model, self.request.options, self.placement)
        codes = self._prepared(file)
        workloads = (w for each in (single, codes) for w in each.fused.workloads.values())
        allowed = noise.allowed(self.request.max_error, self.request.least_sqnr_db)
        silent = replace(noise, tensors={}, calls={})
        return CodeChoice(
            nodes=self.quantizer.nodes,
            same=self.quantizer.same,
            single=single,
            codes=codes,
            placement=self.placement,
            times=recorded_costs(workloads, self.store, self.placement, self.request.kernel_error),
            noise=noise,
            mixture=beside.mixture
            if beside is not None
            else Mixture(noise=silent, allowed=allowed),
            kept_single=frozenset[str]() if beside is None or asked else beside.mixture.kept,
        )

    def _within(self, choice: CodeChoice) -> _Found | None:
        """The fastest choice whose noise is allowed, the part on codes as ONNX Runtime computes it;
        None where none has operators on codes. What was seen of one corrects the noise that the
        next is chosen by, while that is expected to be faster."""
        aim, found, known_ps, tried = AIM, None, inf, list[list[str]]()
        for corrections in range(1 + _AGAIN):
            front = choice.within(aim)
            chosen = front.chosen.assignment
            kept = choice.kept(chosen)
            slow = front.bound_ps > _WORTH_IT * known_ps
            if slow or kept in tried or not self.quantizer.on_codes(kept):
                break
            tried.append(kept)
            file = self.quantizer.quantized(kept)
            check = self._checked(file)
            seen = self.request.used(check)
            predicted = largest_share(choice.on_codes(chosen), choice.allowed)
            choice.scale, aim = choice.scale * _times(seen, predicted), AIM_AGAIN
            if self.request.allows(check):
                # what is not on codes has a part of what they leave, as the race comes to allow
                expected_ps = choice.fastest_beside(kept, _left(seen))
                if expected_ps < known_ps:
                    known_ps = expected_ps
                    gap = 1.0 - front.bound_ps / front.chosen.cost_ps
                    found = _Found(file, check, seen, kept, choice.points(front), corrections, gap)
        return found

    def _mixing(
        self, choice: CodeChoice, network: PreparedNetwork, found: _Found, noise_s: float
    ) -> Mixing:
        """The choice between halves and singles for what is not on codes, whose own noise counts as
        it was seen."""
        beside, quantizer = self.beside, self.quantizer
        codes = choice.by_node(found.kept)
        together = choice.noise.total((powers, 1.0) for powers in codes.values())
        times = _times(found.seen, largest_share(together, choice.allowed))
        owners = {node: call.name for call in network.fused.calls for node in call.nodes}
        of_calls = grouped([(owners[n], p) for n, p in codes.items() if n in owners])
        names = CodedNames(numbers=numbers_of(found.file), writers=quantizer.writers)
        named = kept_names(self.request.options.keep)
        kept = kept_beside(network.fused, choice.kept_single, {*named, *quantizer.kept}, names)
        if beside is None:
            products = {n.name: choice.noise.total(()) for n in quantizer.nodes if n.product}
            noise = replace(choice.noise, tensors={}, calls=products)
        else:
            single, at = beside.network.fused, self.placement
            noise = carried_over(beside.mixture.noise, single, network.fused, names, at)
        return Mixing(
            network=network,
            request=self.request,
            inputs=quantizer.inputs,
            mixture=Mixture(
                noise=noise,
                allowed=choice.allowed,
                kept=kept,
                codes={
                    call: choice.noise.total((powers, times) for powers in every)
                    for call, every in of_calls.items()
                },
            ),
            noise_s=noise_s + (beside.noise_s if beside is not None else 0.0),
            front=found.points,
            corrections=found.corrections,
        )

    def _checked(self, file: OnnxReference) -> NetworkCheck:
        return checking.compare_runs(
            self.quantizer.judged(file.path), self.expected, self.model.outputs
        )

    def _worthless(self, choice: CodeChoice) -> bool:
        """Whether codes are left out because halves within the error are as fast, which is told."""
        chosen = choice.within(AIM).chosen.assignment
        if not any(choice.in_halves(chosen)):
            return False
        message = f"No operator is on codes: within the error {HALF} is expected to be faster."
        self.events(Note(message=message))
        return True

    def _unmet(self, check: NetworkCheck) -> NegativeVerdict:
        return NegativeVerdict(
            f"on codes of eight bits the network is off by {_told(check)}, {self.request.limit}, "
            "and no choice of operators on codes was found that is within it. Nothing was shipped.",
            hint="Raise --max-error, or leave --precision out.",
        )

    def _tell(self, found: _Found, whole: NetworkCheck) -> None:
        if found.gap > _PROVEN:
            message = (
                "What is on codes is not proven to be the fastest by estimates: another choice "
                f"may take {found.gap:.1%} less."
            )
            self.events(Note(message=message))
        if not found.kept:
            return
        named = ", ".join(found.kept[:_NAMED]) + (", …" if len(found.kept) > _NAMED else "")
        told = f"{len(found.kept)} of {len(self.quantizer.nodes)} operators"
        self.events(
            Note(
                message=f"{told} are not on codes: all on codes the error is {_told(whole)}, now "
                f"{_told(found.check)}. They are {named}."
            )
        )


def _told(check: NetworkCheck) -> str:
    return f"{check.max_rel_error:.2g} of the largest value, {check.sqnr_db or 0.0:.3g} dB"


def _left(seen: float) -> float:
    """The part of what is allowed that noise of halves may have where codes were seen to make such
    a part: as much as is aimed at when a compiled network has shown how far predictions are off."""
    return max(AIM * (1.0 - seen), AIM_AGAIN - seen)


def _times(seen: float, predicted: float) -> float:
    """How often what was predicted was seen; once where either is nothing, or without a bound."""
    return seen / predicted if 0.0 < seen < inf and 0.0 < predicted < inf else 1.0
