"""A type for each tensor, within the noise that is allowed: what the choice begins with, what a
compiled network says of it, and what is told in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.mixtures import FrontPoint, LayerPrecision, MixtureReport
from tilewright.core.noise import Powers
from tilewright.core.records import NetworkCheck, Placement
from tilewright.core.solutions import PICOSECONDS
from tilewright.core.targets import Target
from tilewright.core.units import format_seconds
from tilewright.deploy import hashes
from tilewright.deploy.bisecting import ROUNDING
from tilewright.deploy.kept_noise import kept_noise
from tilewright.deploy.racing import Race
from tilewright.graph.plan import NetworkPlan, PlannedCall
from tilewright.graph.plan_result import PlanResult
from tilewright.kernels.base import FLOAT16, HALF
from tilewright.kernels.compute_units import multiplied_type, multiplying_unit
from tilewright.kernels.float16_range import told_beyond
from tilewright.measure.noise import measured_noise
from tilewright.models.calibration import NoiseInputs, noise_inputs
from tilewright.models.loaded import ON_CODES, PreparedNetwork
from tilewright.plan.assignment.budgeted import Front
from tilewright.plan.mixture import Mixture, kept_single
from tilewright.plan.preparation import beyond_float16
from tilewright.search.graph_search import CHOSEN
from tilewright.search.levels import OptimizeRequest
from tilewright.search.network_search import NetworkSearch
from tilewright.search.winners import TUNED

_AGAIN = 2
"""How often the choice is made anew by what compiled networks showed."""
_WELL_USED = 10.0**-0.02
"""A plan that makes this part of the noise that is allowed, 0.2 dB less, leaves no room."""
_WORTH_IT = 0.99
"""What is left is used where the sum of kernels falls to this part of what it was."""
_SINGLE = "float32"


@dataclass(slots=True, kw_only=True)
class Mixing:
    """The choice of types for one network. Where some of it is on codes, that was chosen before,
    from the `front`."""

    network: PreparedNetwork
    request: OptimizeRequest
    inputs: NoiseInputs
    mixture: Mixture
    noise_s: float
    front: tuple[FrontPoint, ...] = ()
    corrections: int = 0
    choices: dict[str, tuple[Front, float]] = field(default_factory=dict[str, tuple[Front, float]])
    """By the name of a plan the front that it is from, and what noise was multiplied by for it."""

    def race(self, race: Race, plans: Sequence[PlanResult], search: NetworkSearch) -> None:
        """Race plans, then those chosen anew, while what a compiled one shows is beyond what is
        allowed, or so far within it that a faster one is allowed. The race keeps the fastest that
        is within. Raises NegativeVerdict where single precision is not exact enough, and as the
        race does."""
        try:
            race.run(plans)
        except NegativeVerdict:
            check = race.checks.get(TUNED)
            if check is None or check.max_rel_error > ROUNDING[_SINGLE]:
                raise
            raise self._unmet(check, search) from None
        name, known_s = CHOSEN, inf
        for attempt in range(_AGAIN):
            plan = next((p for p in search.proposals if p.name == name), None)
            check, graph = race.checks.get(name), search.graph
            if plan is None or check is None or graph is None or graph.front is None:
                return
            front, used = graph.front, self.request.used(check)
            counted = front.chosen.noise + self.mixture.share(self.mixture.codes)
            fastest = front.points and front.chosen is front.points[0]
            self.choices[name] = front, (search.mixture or self.mixture).scale or 1.0
            if min(counted, used) <= 0.0 or (used <= 1.0 and (used >= _WELL_USED or fastest)):
                return
            if used <= 1.0:
                known_s = min(known_s, front.chosen.cost_ps / PICOSECONDS)
            name = f"{CHOSEN} {attempt + 2}"
            again = search.mixed_again(used / counted, name, below_s=_WORTH_IT * known_s)
            if again is None:
                return
            self.corrections += 1
            race.challenge(again)

    def _unmet(self, check: NetworkCheck, search: NetworkSearch) -> NegativeVerdict:
        """The verdict where even single precision makes more noise than is allowed."""
        found = f"{check.max_rel_error:.2g} of the largest value, {check.sqnr_db or 0.0:.3g} dB"
        if search.graph is not None:
            problem = search.graph.problem.problem
            seconds = problem.cost(problem.default) / PICOSECONDS
            found += f", in about {format_seconds(seconds)}"
        return NegativeVerdict(
            f"the least error that can be had is that of single precision, {found}: "
            f"{self.request.limit}. Nothing was shipped.",
            hint="Raise --max-error; decibels are the fewer, the more noise they allow.",
        )

    def powers(self, plan: NetworkPlan) -> dict[str, Powers]:
        """The noise of the calls of a plan, by their names."""
        chosen = {
            call.name: (call.candidate.implementation, call.candidate.forms) for call in plan.calls
        }
        return self.mixture.powers(self.network.fused, chosen)

    def report(self, winner: PlanResult, search: NetworkSearch, target: Target) -> MixtureReport:
        """What is told of the plan that ships on a target."""
        powers = self.powers(winner.plan)
        solution = next((p.solution for p in search.proposals if p.name == winner.name), None)
        last = None if search.graph is None else search.graph.front
        scale = (search.mixture or self.mixture).scale or 1.0
        front, correction = self.choices.get(winner.name, (last, scale))
        points = self.front or tuple(self._front(search, front))
        if winner.name == HALF:  # which nothing chose from a front
            points, correction = tuple(replace(each, chosen=False) for each in points), 1.0
        return MixtureReport(
            predicted_sqnr_db=self._sqnr_db(powers),
            measured_sqnr_db=winner.check.sqnr_db if winner.check is not None else None,
            correction=correction,
            corrections=self.corrections,
            gap=solution.gap if solution is not None else 0.0,
            solve_s=solution.solve_s if solution is not None else 0.0,
            noise_s=self.noise_s,
            calibrated=self.inputs.given,
            kept=tuple(sorted(self.mixture.kept)),
            front=points,
            layers=tuple(self._layers(winner, powers, target)),
            allowed=self.request.asked,
            used=self.request.used(winner.check) if winner.check is not None else None,
        )

    def _sqnr_db(self, powers: Mapping[str, Powers]) -> float:
        noise = self.mixture.noise
        return noise.sqnr_db(noise.total((each, 1.0) for each in powers.values()))

    def _front(self, search: NetworkSearch, front: Front | None) -> Iterator[FrontPoint]:
        """The points of the front that a choice was made from, the fastest first."""
        if search.graph is None or front is None:
            return
        problem = search.graph.problem
        every = {id(point): point for point in (*front.points, front.chosen)}
        for point in sorted(every.values(), key=lambda each: each.cost_ps):
            choices = problem.choices_of(point.assignment)
            powers = self.mixture.powers(
                self.network.fused,
                {name: (each.implementation, each.ports) for name, each in choices.items()},
            )
            yield FrontPoint(
                predicted_s=point.cost_ps / PICOSECONDS,
                sqnr_db=self._sqnr_db(powers),
                chosen=point is front.chosen,
            )

    def _layers(
        self, winner: PlanResult, powers: Mapping[str, Powers], target: Target
    ) -> Iterator[LayerPrecision]:
        """The calls of the network that compute something, in their order."""
        every = self.mixture.share(powers) or 1.0
        for call in winner.plan.calls:
            known, seen = winner.call(call.name), powers.get(call.name)
            name, multiplied = call.candidate.implementation, self._multiplied(call)
            unit = multiplying_unit(call.workload, name, target) if multiplied else ""
            yield LayerPrecision(
                call=call.name,
                implementation=name,
                multiplied=multiplied,
                unit=unit,
                stored=call.candidate.forms[-1].element(call.workload.result.dtype),
                output=call.output,
                time_s=known.in_place_s or known.call_s or 0.0,
                noise_share=self.mixture.share({call.name: seen}) / every if seen else 0.0,
            )

    def _multiplied(self, call: PlannedCall) -> str:
        """The type in which a call multiplies, empty where it does not."""
        found = multiplied_type(call.workload, call.candidate.implementation)
        return found if found == ON_CODES or call.name in self.mixture.noise.calls else ""


def measured_mixing(
    network: PreparedNetwork, placement: Placement, request: OptimizeRequest, events: EventSink
) -> Mixing:
    """The choice between halves and singles for a network, with the noise of every cause."""
    options = request.options
    kept = kept_single(network.fused, options.keep, known=network.precision == ON_CODES)
    inputs = noise_inputs(network.model.graph, options.calibration, request.seed)
    if not inputs.given:
        events(
            Note(
                message="Noise is measured on inputs that are drawn; --calibration FILE.npz gives "
                "others."
            )
        )
    events(Stage(name="noise", detail=f"{len(network.fused.calls)} calls"))
    began = perf_counter()
    noise = kept_noise(
        "rounding",
        [network.key, hashes.weights_digest(network.graph.constants), placement.tvm_target],
        inputs.fitted,
        lambda: measured_noise(network.fused, placement, inputs.fitted),
        events,
    )
    if FLOAT16 in noise.finer:
        beyond = beyond_float16(network.fused, placement, inputs.fitted)
        noise = noise.without(FLOAT16, beyond)
        if beyond:
            events(Note(message=told_beyond(beyond, "are in other types")))
    return Mixing(
        network=network,
        request=request,
        inputs=inputs,
        mixture=Mixture(
            noise=noise,
            allowed=noise.allowed(request.max_error, request.least_sqnr_db),
            kept=kept,
        ),
        noise_s=perf_counter() - began,
    )
