"""What a call of a network in single precision takes where some of it is on codes.

    conv → add → relu                                reads and writes numbers
    conv → add → relu → divide → round → clip → cast          … and writes codes
    conv → add → cast → multiply → round → clip → cast        is on codes
    conv → add → cast → multiply → round → clip → multiply    … and writes numbers

The third is a call of the same network on codes, the second and the fourth are what fusing makes of
neighbours of which only some are on codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from tilewright.core.forms import PLAIN, Form
from tilewright.core.grouping import grouped
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import Attributes, TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.codes import CODES
from tilewright.kernels.ports import Ports
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.network_problem import KernelTimes

_ROUNDING = (("round", "clip", "cast"), ("round", "add", "clip", "cast"))
"""What rounds to codes; in the second `add` is that of a zero point."""


def rounded_to_codes(workload: Workload, dtype: str) -> Workload:
    """The same with its result rounded to codes, by a scale that is its last argument."""
    known = np.iinfo(dtype)
    limits: Attributes = (("maximum", float(known.max)), ("minimum", float(known.min)))
    casting: Attributes = (("dtype", dtype),)
    return _ending(
        workload, 0, [("divide", ()), ("round", ()), ("clip", limits), ("cast", casting)]
    )


def told_in_numbers(workload: Workload) -> Workload:
    """One that writes codes, with what they stand for as its result; one that writes numbers as it
    is."""
    if workload.steps[-1].operator != "cast" or workload.result.dtype not in CODES:
        return workload
    return _ending(workload, 1, [("multiply", ())])


def not_rounded(workload: Workload) -> Workload | None:
    """One that ends by dividing its result and rounding it to codes, without these steps, or by
    rounding a sum, without that; None for others.

    A sum is rounded as it is where its scales have the divisor in them; without it they take as
    long.
    """
    operators = [step.operator for step in workload.steps]
    for rounding in _ROUNDING:
        before, last = operators[: -len(rounding)], operators[-len(rounding) :]
        if tuple(last) == rounding and before[-1:] in (["divide"], ["add"]):
            left = workload.steps[: len(before) - (before[-1] == "divide")]
            return replace(workload, steps=left) if left else None
    return None


def of_codes(kind: TensorType, codes: str) -> Workload:
    """A tensor of numbers, made of its codes of some type."""
    cast: Attributes = (("dtype", kind.dtype),)
    steps = (
        Step(operator="cast", attributes=cast, inputs=(0,)),
        Step(operator="multiply", inputs=(2, 1)),
    )
    return Workload(
        arguments=(Argument(type=replace(kind, dtype=codes)), _scale(kind.dtype)), steps=steps
    )


def _scale(dtype: str) -> Argument:
    return Argument(type=TensorType((), dtype), role="constant")


def _ending(workload: Workload, dropped: int, added: Sequence[tuple[str, Attributes]]) -> Workload:
    """Without its last steps, and with others behind the rest, the first of which reads a scale."""
    known = len(workload.arguments)
    steps = [
        replace(step, inputs=tuple(each + (each >= known) for each in step.inputs))
        for step in workload.steps[: len(workload.steps) - dropped]
    ]
    for number, (operator, attributes) in enumerate(added):
        result = known + len(steps) if steps else known - 1
        inputs = (result, *([known] if number == 0 else []))
        steps.append(Step(operator=operator, attributes=attributes, inputs=inputs))
    scale = _scale(workload.types[-1 - dropped].dtype)
    return Workload(arguments=(*workload.arguments, scale), steps=tuple(steps))


@dataclass(frozen=True, kw_only=True)
class CodedCalls:
    """The calls of a network in single precision as they are on codes: those of `codes`, the same
    network with everything on codes that can be. `products` are the names of nodes that multiply.
    """

    single: FusedNetwork
    codes: PreparedNetwork
    products: frozenset[str]
    placement: Placement
    times: KernelTimes

    @cached_property
    def counterparts(self) -> dict[str, list[TaskCall]]:
        """By the name of a call in single precision those on codes with its nodes; one with nodes
        of several goes with its first product."""
        owners = {node: call.name for call in self.single.calls for node in call.nodes}
        pairs: list[tuple[str, TaskCall]] = []
        for call in self.codes.fused.calls:
            nodes = sorted(
                (node for node in call.nodes if node in owners),
                key=lambda node: node not in self.products,
            )
            if nodes:
                pairs.append((owners[nodes[0]], call))
        return grouped(pairs)

    @cached_property
    def dtype(self) -> str:
        """The element type of codes between calls, as most have it."""
        types = [self.codes.graph.types[call.output].dtype for call in self.codes.fused.calls]
        return max(sorted(CODES), key=types.count)

    def form(self, call: TaskCall, usual: Form) -> Form:
        """How the codes of what a call writes lie."""
        found = self._last(call)
        return usual if found is None else self.codes.forms.get(found.output, usual)

    def seconds(self, call: TaskCall) -> float:
        """The time of a call on codes."""
        return sum(map(self._alone, self.counterparts.get(call.name, ())))

    def in_numbers(self, call: TaskCall, form: Form, *, joined: bool) -> float:
        """The time of a call on codes that writes numbers in a form, what it joins included where
        that is on codes, too; infinite where nothing computes it."""
        last = self._last(call)
        if last is None:
            return inf
        workload = told_in_numbers(last.workload) if joined else not_rounded(last.workload)
        if workload is None:
            return inf
        if workload.result.dtype in CODES:
            lying = self.codes.forms.get(last.output, PLAIN)
            kind = self.single.graph.types[call.output]
            return self.seconds(call) + self.numbers_of_codes(kind, lying, form)
        more = len(workload.arguments) - len(last.workload.arguments)
        ports = (*self._ports(last)[:-1], *([PLAIN] * more), form)
        before = sum(self._alone(each) for each in self.counterparts[call.name] if each is not last)
        return before + self._fastest(workload, ports)

    def numbers_of_codes(self, kind: TensorType, lying: Form, form: Form) -> float:
        """The time of making numbers in a form of codes that lie in another."""
        return self._fastest(of_codes(kind, self.dtype), (lying, PLAIN, form))

    def codes_of_numbers(self, kind: TensorType, lying: Form, form: Form) -> float:
        """The time of rounding numbers to codes."""
        kept = Workload(arguments=(Argument(type=kind),), steps=())
        return self._fastest(rounded_to_codes(kept, self.dtype), (lying, PLAIN, form))

    def _last(self, call: TaskCall) -> TaskCall | None:
        return next(reversed(self.counterparts.get(call.name, [])), None)

    def _ports(self, call: TaskCall) -> Ports:
        return tuple(self.codes.forms.get(each, PLAIN) for each in (*call.inputs, call.output))

    def _alone(self, call: TaskCall) -> float:
        """Nothing where it is a view, or written in place."""
        computed = call.name in self._computed
        return self._fastest(call.workload, self._ports(call)) if computed else 0.0

    @cached_property
    def _computed(self) -> frozenset[str]:
        return frozenset(call.name for call in self.codes.plan.calls)

    def _fastest(self, workload: Workload, ports: Ports) -> float:
        times = self.times.kernels(workload, ports).values()
        return min((time.seconds for time in times), default=inf)
