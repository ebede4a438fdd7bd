"""A float32 network on codes of eight bits, as many of its operators as the error allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.mixtures import FrontPoint, LayerPrecision, MixtureReport
from tilewright.core.noise import largest_share
from tilewright.core.records import NetworkCheck, Placement
from tilewright.core.solutions import PICOSECONDS
from tilewright.graph.network import Graph
from tilewright.graph.plan_result import PlanResult
from tilewright.kernels.codes import CODES
from tilewright.measure import checking
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import ON_CODES, OnnxReference, PreparedNetwork
from tilewright.models.quantizing import Quantizer
from tilewright.plan.assignment.budgeted import Front, Point
from tilewright.plan.code_choice import CodeChoice
from tilewright.plan.preparation import prepare_loaded
from tilewright.search.levels import OptimizeRequest

_AGAIN = 2
"""How often the choice is made anew by what the networks on codes showed."""
_AIM, _AIM_AGAIN = 0.8, 0.95
"""The part of the allowed noise that is aimed at by what was measured cause by cause; by what a
network on codes showed."""
_WELL_USED = 0.6
_SINGLE = ModelOptions().precision
_NAMED = 6


def rounds_to_codes(graph: Graph) -> bool:
    """Whether results inside a network are rounded to codes of eight bits."""
    makers = graph.producers()
    clips = (
        makers.get(node.inputs[0])
        for node in graph.nodes
        if node.operator == "cast" and graph.types[node.output].dtype in CODES
    )
    return any(clip is not None and clip.operator == "clip" for clip in clips)


class OnCodes:
    """The network that is asked for on codes, less the operators that have to stay in single
    precision for its error; `network` is cut into tasks.

    Raises NegativeVerdict where no operator can be on codes, and as loading and a `Quantizer`.
    """

    def __init__(self, request: OptimizeRequest, placement: Placement, events: EventSink) -> None:
        usual = ModelOptions()
        single = replace(
            request.options,
            precision=usual.precision,
            keep=usual.keep,
            calibration=usual.calibration,
        )
        self.request, self.placement, self.events = request, placement, events
        self.model = loading.load(request.model, single)
        self.quantizer = Quantizer(self.model, request.options)
        self.expected = self.quantizer.judged(self.model.onnx_path)
        self.choice: CodeChoice | None = None
        self.report: MixtureReport | None = None
        self.network = self._prepared(self._within())

    def told(self, winner: PlanResult) -> MixtureReport | None:
        """What is told of the choice, with the plan that ships; None where all is on codes."""
        if self.report is None or self.choice is None or winner.check is None:
            return None
        kept = set(self.report.kept)
        powers = self.choice.by_node(kept)
        shares = {name: largest_share(each, self.choice.allowed) for name, each in powers.items()}
        every = sum(shares.values()) or 1.0
        products = [node.name for node in self.quantizer.nodes if node.product]
        layers = [
            LayerPrecision(
                call=call.name,
                implementation=call.candidate.implementation,
                multiplied=next(
                    (_SINGLE if n in kept else ON_CODES for n in products if n in call.nodes), ""
                ),
                stored=call.candidate.forms[-1].element(call.workload.result.dtype),
                output=call.output,
                time_s=winner.call(call.name).in_place_s or 0.0,
                noise_share=sum(shares.get(name, 0.0) for name in call.nodes) / every,
            )
            for call in winner.plan.calls
        ]
        return replace(self.report, measured_sqnr_db=winner.check.sqnr_db, layers=tuple(layers))

    def _prepared(self, file: OnnxReference) -> PreparedNetwork:
        codes = loading.with_codes(self.model, file, self.quantizer.remark)
        return prepare_loaded(codes, self.request.options, self.placement)

    def _within(self) -> OnnxReference:
        """The fastest file on codes whose error is allowed, as ONNX Runtime computes it."""
        file = self.quantizer.quantized()
        check = self._checked(file)
        if self.request.allows(check):
            return file
        began = perf_counter()
        choice = self.choice = self._choice(file)
        noise_s, scale, aim, found = perf_counter() - began, 1.0, _AIM, None
        for corrections in range(1 + _AGAIN):
            front = choice.within(aim / scale)
            kept = choice.kept(front)
            if not self.quantizer.on_codes(kept):
                break
            again = self.quantizer.quantized(kept)
            seen = self._checked(again)
            used = self.request.used(seen)
            if self.request.allows(seen):
                found = again, seen
                self.report = self._report(front, kept, noise_s, (scale, corrections))
                if used >= _WELL_USED:
                    break
            scale, aim = used / front.chosen.noise, _AIM_AGAIN
        if found is None or self.report is None:
            raise self._unmet(check)
        file, seen = found
        self._tell(self.report.kept, check, seen)
        return file

    def _report(
        self, front: Front, kept: list[str], noise_s: float, corrected: tuple[float, int]
    ) -> MixtureReport:
        """What is known of a choice before it is compiled."""
        assert self.choice is not None
        points = sorted({id(p): p for p in (*front.points, front.chosen)}.values(), key=_cost)
        return MixtureReport(
            predicted_sqnr_db=self.choice.sqnr_db(front.chosen.assignment),
            measured_sqnr_db=None,
            correction=corrected[0],
            corrections=corrected[1],
            gap=front.chosen.cost_ps / max(front.bound_ps, 1) - 1.0,
            solve_s=front.chosen.solution.solve_s,
            noise_s=noise_s,
            calibrated=self.quantizer.inputs.given,
            kept=tuple(sorted({*kept, *self.quantizer.kept})),
            front=tuple(
                FrontPoint(
                    predicted_s=point.cost_ps / PICOSECONDS,
                    sqnr_db=self.choice.sqnr_db(point.assignment),
                    chosen=point is front.chosen,
                )
                for point in points
            ),
            layers=(),
        )

    def _choice(self, file: OnnxReference) -> CodeChoice:
        """The problem of which operators are on codes, with the noise of each measured."""
        self.events(Stage(name="noise", detail=f"{len(self.quantizer.nodes)} operators"))
        noise = self.quantizer.noise(file)
        return CodeChoice(
            nodes=self.quantizer.nodes,
            single=prepare_loaded(self.model, self.request.options, self.placement),
            codes=self._prepared(file),
            placement=self.placement,
            noise=noise,
            allowed=noise.allowed(self.request.max_error, self.request.least_sqnr_db),
        )

    def _checked(self, file: OnnxReference) -> NetworkCheck:
        return checking.compare_runs(
            self.quantizer.judged(file.path), self.expected, self.model.outputs
        )

    def _unmet(self, check: NetworkCheck) -> NegativeVerdict:
        return NegativeVerdict(
            f"on codes of eight bits the network is off by {_told(check)}, {self.request.limit}, "
            "and no choice of operators on codes was found that is within it. Nothing was shipped.",
            hint="Raise --max-error, or leave --precision out.",
        )

    def _tell(self, kept: Sequence[str], whole: NetworkCheck, check: NetworkCheck) -> None:
        named = ", ".join(kept[:_NAMED]) + (", …" if len(kept) > _NAMED else "")
        every = len(self.quantizer.nodes)
        self.events(
            Note(
                message=f"{len(kept)} of {every} operators stay in float32 for the error: all on "
                f"codes it is {_told(whole)}, now {_told(check)}. They are {named}."
            )
        )


def _cost(point: Point) -> int:
    return point.cost_ps


def _told(check: NetworkCheck) -> str:
    return f"{check.max_rel_error:.2g} of the largest value, {check.sqnr_db or 0.0:.3g} dB"
