"""A float32 network on codes of eight bits, as many of its operators as the error allows."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import NetworkCheck, Placement
from tilewright.measure import checking
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import LoadedModel, PreparedNetwork
from tilewright.models.quantizing import OnnxReference, Quantizer
from tilewright.plan.code_choice import CodeChoice
from tilewright.plan.preparation import prepare_loaded
from tilewright.search.levels import OptimizeRequest

_AGAIN = 2
"""How often the choice is made anew by what the networks on codes showed."""
_AIM, _AIM_AGAIN = 0.8, 0.95
"""The part of the allowed noise that is aimed at by what was measured cause by cause; by what a
network on codes showed."""
_WELL_USED = 0.6
_NAMED = 6


def prepare_on_codes(
    request: OptimizeRequest, placement: Placement, events: EventSink
) -> PreparedNetwork:
    """The network that is asked for on codes, less the operators that have to stay in single
    precision for its error. Raises NegativeVerdict where that is all of them, and as loading."""
    usual = ModelOptions()
    options = replace(
        request.options, precision=usual.precision, keep=usual.keep, calibration=usual.calibration
    )
    model = loading.load(request.model, options)
    quantizer = Quantizer(model, request.options)
    on_codes = _OnCodes(model, quantizer, request, placement, events)
    return on_codes.network(on_codes.file_within())


class _OnCodes:
    def __init__(
        self,
        model: LoadedModel,
        quantizer: Quantizer,
        request: OptimizeRequest,
        placement: Placement,
        events: EventSink,
    ) -> None:
        self.model, self.quantizer, self.request = model, quantizer, request
        self.placement, self.events = placement, events
        self.expected = quantizer.judged(model.onnx_path)

    def network(self, file: OnnxReference) -> PreparedNetwork:
        """The network of a file on codes, cut into tasks."""
        codes = loading.with_codes(self.model, file, self.quantizer.remark)
        return prepare_loaded(codes, self.request.options, self.placement)

    def file_within(self) -> OnnxReference:
        """The fastest file on codes whose error is allowed, as ONNX Runtime computes it."""
        file = self.quantizer.quantized()
        check = self._checked(file)
        if self.request.allows(check):
            return file
        choice = self._choice(file)
        scale, aim, found = 1.0, _AIM, None
        for _ in range(1 + _AGAIN):
            front = choice.within(aim / scale)
            kept = choice.kept(front)
            if not self.quantizer.on_codes(kept):
                break
            again = self.quantizer.quantized(kept)
            seen = self._checked(again)
            used = self.request.used(seen)
            if self.request.allows(seen):
                found = again, kept, seen
                if used >= _WELL_USED:
                    break
            scale, aim = used / front.chosen.noise, _AIM_AGAIN
        if found is None:
            raise self._unmet(check)
        file, kept, seen = found
        self._tell(kept, check, seen)
        return file

    def _choice(self, file: OnnxReference) -> CodeChoice:
        """The problem of which operators are on codes, with the noise of each measured."""
        self.events(Stage(name="noise", detail=f"{len(self.quantizer.nodes)} operators"))
        noise = self.quantizer.noise(file)
        return CodeChoice(
            nodes=self.quantizer.nodes,
            single=prepare_loaded(self.model, self.request.options, self.placement),
            codes=self.network(file),
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

    def _tell(self, kept: list[str], whole: NetworkCheck, check: NetworkCheck) -> None:
        named = ", ".join(kept[:_NAMED]) + (", …" if len(kept) > _NAMED else "")
        every = sum(node.chosen for node in self.quantizer.nodes)
        self.events(
            Note(
                message=f"{len(kept)} of {every} operators stay in float32 for the error: all on "
                f"codes it is {_told(whole)}, now {_told(check)}. They are {named}."
            )
        )


def _told(check: NetworkCheck) -> str:
    return f"{check.max_rel_error:.2g} of the largest value, {check.sqnr_db or 0.0:.3g} dB"
