"""From a fused network to the cost function network of its layouts and implementations.

Every tensor gets a layout variable, every call a choice: an implementation with the layouts of its
ports, or to do nothing (a view), or to let the producers write a concatenation in place. Pairs of a
tensor and a reader price the change of layout between them. Graph inputs and outputs are plain, so
that changes at the borders cost what they cost.

Known simplification: readers that want the same changed copy of a tensor pay for it each, though
the compiled network makes it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf, isfinite
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tilewright.core import records, solutions
from tilewright.core.forms import PLAIN, Form, form_texts, in_channel_blocks, parse_form, stored_in
from tilewright.core.grouping import grouped
from tilewright.graph.arrange import (
    is_concatenation,
    may_write_into,
    offsets_in_place,
    operands,
    same_memory,
    view_offset,
)
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FLOAT16, HALF
from tilewright.kernels.codes import CODES
from tilewright.kernels.dense_int8_weights import CODED
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.halves import half_types
from tilewright.kernels.ports import Ports, form_options
from tilewright.kernels.registry import applicable, precise_enough, takes
from tilewright.kernels.weight_codes import codable
from tilewright.plan.assignment.problem import FORBIDDEN, Problem, Table, Variable
from tilewright.plan.mixture import Mixture, some_ports

VIEW, IN_PLACE = "view", "in place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Seconds of a kernel or a change of layout, and whether they were measured, or can be: no
    search looks at kernels that are not `searchable`, whatever time it has."""

    seconds: float
    measured: bool
    searchable: bool = True


class KernelTimes(Protocol):
    """What the builder asks for."""

    def kernels(self, workload: Workload, ports: Ports) -> Mapping[str, Time]:
        """The best time of each implementation that computes the workload in these layouts; empty
        where all of them failed."""
        ...

    def rounding(self, workload: Workload, ports: Ports) -> Mapping[str, Time]:
        """The same of others, which make halves of the singles that they read."""
        ...

    def change(self, kind: TensorType, source: Form, target: Form) -> Time:
        """The time to copy a tensor from one layout into another, infinite where that failed."""
        ...

    def candidate(
        self, workload: Workload, ports: Ports, implementation: str | None
    ) -> records.Candidate:
        """What computes the workload in these layouts in that time; of the implementation that a
        change takes, without one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What may be done at a call: `implementation` is a kernel's name, VIEW or IN_PLACE."""

    implementation: str
    ports: Ports
    time: Time

    @property
    def value(self) -> str:
        """How the problem names it."""
        return f"{self.implementation}:{','.join(form_texts(self.ports))}"


@dataclass(frozen=True, kw_only=True)
class NetworkProblem:
    """The layout and algorithm problem of `network`.

    `usual` are the default layouts; their assignment is always part of the problem. With a
    `mixture` tensors may also be stored in halves, in the layouts that these have by default.
    """

    network: FusedNetwork
    usual: Mapping[str, Form]
    placement: records.Placement
    times: KernelTimes
    name: str = ""
    mixture: Mixture | None = None

    @cached_property
    def options(self) -> dict[str, tuple[Form, ...]]:
        """The forms of every tensor, the default one first: plain, blocks of channels, and what
        only implementations know."""
        found: dict[str, tuple[Form, ...]] = {}
        graph, known_to_kernels = self.network.graph, self._own_forms
        tensors = [t for call in self.network.calls for t in (*call.inputs, call.output)]
        for tensor in dict.fromkeys(t for t in tensors if t not in graph.constants):
            found[tensor] = (self.usual.get(tensor, PLAIN),)
            if tensor not in self.network.pinned and not self._on_codes(tensor):
                more = form_options(graph.types[tensor], self.placement.target)
                own = known_to_kernels.get(tensor, ())
                forms = (self._stored(tensor, form) for form in (*more, *own))
                found[tensor] = tuple(dict.fromkeys((*found[tensor], *forms)))
                halves = half_types(self.placement)
                found[tensor] += tuple(
                    self._halves[h][tensor] for h in halves if self._may_halve(tensor, h)
                )
        return found

    @cached_property
    def _halves(self) -> dict[str, dict[str, Form]]:
        """By half type the form of each tensor in it: the layout that it has by default where all
        are."""
        target, resources = self.placement.target, self.placement.resources
        tensors = [t for call in self.network.calls for t in (*call.inputs, call.output)]
        return {
            half: {tensor: stored_in(forms.get(tensor, PLAIN), half) for tensor in tensors}
            for half in half_types(self.placement)
            for forms in [choose_forms(self.network, target, resources, half)]
        }

    def _on_codes(self, tensor: str) -> bool:
        """Whether a mixture has a tensor on codes: these lie as they do by default. Estimates do
        not know what other blocks cost tile registers, which take whole lines."""
        return self.mixture is not None and self.network.graph.types[tensor].dtype in CODES

    def _may_halve(self, tensor: str, half: str) -> bool:
        return self.mixture is not None and self.mixture.stores(tensor, half)

    def _halved(self, call: TaskCall, ports: Ports) -> Iterator[Ports]:
        """The same ports in single precision, and with some or all of those in halves that may be,
        those that are read in one type; what the network is given is copied into halves first."""
        yield ports
        graph, target = self.network.graph, self.placement.target
        tensors = (*call.inputs, call.output)
        places = [
            place
            for place, tensor in enumerate(tensors)
            if tensor not in graph.outputs and ports[place] == self.usual.get(tensor, PLAIN)
        ]
        specs = applicable(call.workload, target, self.placement.resources)
        for read, written in product(half_types(self.placement), repeat=2):
            types = [*[read] * len(call.inputs), written]
            able = [place for place in places if self._may_halve(tensors[place], types[place])]
            for kept in some_ports(able, len(call.inputs)):
                found = tuple(
                    self._halves[types[place]][tensors[place]] if place in kept else form
                    for place, form in enumerate(ports)
                )
                if any(
                    takes(spec, call.workload, found)
                    and precise_enough(spec, call.workload, found, self.placement)
                    for spec in specs
                ):
                    yield found

    @cached_property
    def noises(self) -> dict[str, npt.NDArray[np.float64]]:
        """What each value of a variable takes of the noise that is allowed, where one does."""
        mixture, inputs = self.mixture, self.network.graph.inputs
        if mixture is None:
            return {}
        found = {
            choice_name(call.name): [
                mixture.share_at(call, each.implementation, each.ports, inputs)
                for each in self.choices[call.name]
            ]
            for call in self.network.calls
        }
        return {name: np.array(values) for name, values in found.items() if any(values)}

    def _stored(self, tensor: str, form: Form) -> Form:
        """The form in the element type that the tensor is stored in, where that is not its own."""
        dtype = self.usual.get(tensor, PLAIN).dtype
        own = dtype is None or tensor in self.network.graph.constants
        return form if own else stored_in(form, dtype)

    @cached_property
    def _own_forms(self) -> dict[str, list[Form]]:
        """Forms that an implementation offers at a port of a tensor and that are neither plain nor
        in blocks of channels: in another layout, or in another element type."""
        return grouped(
            [
                (tensor, form)
                for call in self.network.calls
                for ports in self._offered(call)
                for tensor, form in zip((*call.inputs, call.output), ports, strict=True)
                if not in_channel_blocks(form)
            ]
        )

    def _offered(self, call: TaskCall) -> list[Ports]:
        """The forms of ports that implementations offer for a call."""
        target, resources = self.placement.target, self.placement.resources
        tensors = (*call.inputs, call.output)
        found = [
            tuple(self._stored(tensor, form) for tensor, form in zip(tensors, ports, strict=True))
            for spec in applicable(call.workload, target, resources)
            for ports in spec.port_forms(call.workload, target, resources)
        ]
        if self.mixture is None:
            return found
        every = dict.fromkeys((self._usual_ports(call), *found))
        return [each for ports in every for each in self._halved(call, ports)]

    @cached_property
    def choices(self) -> dict[str, tuple[Choice, ...]]:
        """What may be done at each call, by its name."""
        return {call.name: self._choices(call) for call in self.network.calls}

    @cached_property
    def problem(self) -> Problem:
        """Variables in the order of the calls, tables for kernels, changes and rules."""
        variables = [
            _layout(t, self.options[t]) for t in self.network.graph.inputs if t in self.options
        ]
        tables: list[Table] = []
        for call in self.network.calls:
            chosen = self.choices[call.name]
            variables += [
                Variable(
                    name=choice_name(call.name),
                    kind="choice",
                    values=tuple(c.value for c in chosen),
                    subject=call.name,
                ),
                _layout(call.output, self.options[call.output]),
            ]
            tables += self._tables(call, chosen)
        return Problem(
            variables=tuple(variables), tables=tuple(tables), name=self.name, default=self._default
        )

    def forms_of(self, assignment: Mapping[str, str]) -> dict[str, Form]:
        """The layout that each tensor is written in by an assignment of `problem`, and the form of
        weights that may be on codes."""
        found = {tensor: parse_form(assignment[layout_name(tensor)]) for tensor in self.options}
        chosen = self.choices_of(assignment) if self._codable else {}
        for call in self.network.calls:
            if call.name in self._codable:
                weight = self._codable[call.name]
                found[weight] = chosen[call.name].ports[call.inputs.index(weight)]
        return found

    def choices_of(self, assignment: Mapping[str, str]) -> dict[str, Choice]:
        """What an assignment of `problem` does at each call, by its name."""
        return {
            call.name: next(
                choice
                for choice in self.choices[call.name]
                if choice.value == assignment[choice_name(call.name)]
            )
            for call in self.network.calls
        }

    @cached_property
    def _default(self) -> dict[str, str]:
        """The default layouts, with the fastest choice for them."""
        found = {layout_name(t): self.options[t][0].text for t in self.options}
        for call in self.network.calls:
            ports = self._usual_ports(call)
            joined = self._in_place(call, ports)
            fitting = [c for c in self.choices[call.name] if _fits(c, ports, joined)]
            found[choice_name(call.name)] = min(fitting, key=lambda c: c.time.seconds).value
        return found

    def _usual_ports(self, call: TaskCall) -> Ports:
        return tuple(self.usual.get(tensor, PLAIN) for tensor in (*call.inputs, call.output))

    def _choices(self, call: TaskCall) -> tuple[Choice, ...]:
        free = Time(seconds=0.0, measured=True)
        alike = [(form,) * (len(call.inputs) + 1) for form in self.options[call.output]]
        found = [
            Choice(implementation=IN_PLACE, ports=ports, time=self._joining(call, ports[-1]))
            for ports in alike
            if self._in_place(call, ports)
        ]
        for ports in (each for each in self._ports(call) if not self._in_place(call, each)):
            view = view_offset(self.network, call, ports[0], ports[-1]) is not None
            times = {VIEW: free} if view else self._kernels(call, ports)
            names: Iterable[str] = times
            if self.mixture is not None:
                fastest = sorted(times, key=lambda name: times[name].seconds)
                names = self.mixture.quieter(call, fastest, ports, self.network.graph.inputs)
            found += [Choice(implementation=n, ports=ports, time=times[n]) for n in names]
        return tuple(found)

    def _kernels(self, call: TaskCall, ports: Ports) -> Mapping[str, Time]:
        found, given = self.times.kernels(call.workload, ports), self.network.graph.inputs
        itself = self.mixture is not None and self.mixture.rounds(call, ports, given)
        return {**self.times.rounding(call.workload, ports), **found} if itself else found

    def _joining(self, call: TaskCall, form: Form) -> Time:
        """The constants of a concatenation are copied; its other operands are priced apart."""
        graph = self.network.graph
        copies = [
            self.times.change(graph.types[tensor], PLAIN, form)
            for tensor in operands(call)
            if tensor in graph.constants
        ]
        return Time(
            seconds=sum(copy.seconds for copy in copies),
            measured=all(copy.measured for copy in copies),
        )

    def _in_place(self, call: TaskCall, ports: Ports) -> bool:
        """Whether the producers of a concatenation write it, as `arrange` will decide."""
        if not is_concatenation(call):
            return False
        joined = tuple(ports[index] for index in call.workload.steps[0].inputs)
        return offsets_in_place(self.network, call, (*joined, ports[-1])) is not None

    def _ports(self, call: TaskCall) -> list[Ports]:
        """The default layouts first, then what the implementations offer and the tensors allow."""
        tensors = (*call.inputs, call.output)
        return [
            ports
            for ports in dict.fromkeys((self._usual_ports(call), *self._offered(call)))
            if ports[-1] in self.options[call.output]
            and all(
                self._codable.get(call.name) == tensor
                if form == CODED
                else form in self.options.get(tensor, (PLAIN,)) or tensor in self.network.pinned
                for tensor, form in zip(tensors, ports, strict=True)
            )
        ]

    @cached_property
    def _codable(self) -> dict[str, str]:
        """By the name of a call the weights that it may read on codes."""
        found = codable(self.network, self.placement)
        return {
            call.name: found[call.name]
            for call in self.network.calls
            if call.name in found
            and (
                self.usual.get(found[call.name]) == CODED
                if self.mixture is None
                else self.mixture.codes_weights(call)
            )
        }

    def _tables(self, call: TaskCall, chosen: Sequence[Choice]) -> list[Table]:
        known = all(choice.time.measured for choice in chosen)
        kernels = Table(
            variables=(choice_name(call.name),),
            costs=np.array([picoseconds(choice.time.seconds) for choice in chosen], dtype=np.int64),
            role="kernel",
            source="measured" if known else "modelled",
            subject=call.name,
        )
        inputs = [tensor for tensor in dict.fromkeys(call.inputs) if tensor in self.options]
        changes = [self._changes(call, tensor, chosen) for tensor in inputs]
        return [kernels, self._rule(call, chosen), *changes]

    def _rule(self, call: TaskCall, chosen: Sequence[Choice]) -> Table:
        """The result is written in the layout that was chosen."""
        forms = self.options[call.output]
        allowed = [[choice.ports[-1] == form for form in forms] for choice in chosen]
        return Table(
            variables=(choice_name(call.name), layout_name(call.output)),
            costs=np.where(np.array(allowed), 0, FORBIDDEN),
            role="rule",
            source="free",
            subject=call.output,
        )

    def _changes(self, call: TaskCall, tensor: str, chosen: Sequence[Choice]) -> Table:
        """What it costs that a tensor lies in one layout and the choice wants another."""
        forms = self.options[tensor]
        kind = self.network.graph.types[tensor]
        costs = np.zeros((len(forms), len(chosen)), dtype=np.int64)
        measured, priced = True, False
        for row, form in enumerate(forms):
            for column, choice in enumerate(chosen):
                for source, target in self.copies(call, tensor, choice, form):
                    time = self.times.change(kind, source, target)
                    if self._rounds(tensor, source, target):
                        time = Time(seconds=inf, measured=True)
                    costs[row, column] = min(
                        FORBIDDEN, costs[row, column] + picoseconds(time.seconds)
                    )
                    measured, priced = measured and time.measured, True
        return Table(
            variables=(layout_name(tensor), choice_name(call.name)),
            costs=costs,
            role="transform",
            source="free" if not priced else "measured" if measured else "modelled",
            subject=f"{tensor} -> {call.name}",
        )

    def _rounds(self, tensor: str, source: Form, target: Form) -> bool:
        """Whether a copy would round what could have been stored so for all its readers."""
        mixed = self.mixture is not None and tensor not in self.network.pinned
        coarser = (source.dtype, target.dtype) == (FLOAT16, HALF)
        return mixed and (coarser or (source.dtype is None and target.dtype is not None))

    def copies(
        self, call: TaskCall, tensor: str, choice: Choice, form: Form
    ) -> list[tuple[Form, Form]]:
        """The changes of layout (from, to) that a choice needs of a tensor lying in `form`."""
        kind = self.network.graph.types[tensor]
        if choice.implementation != IN_PLACE:
            ports = zip(call.inputs, choice.ports, strict=False)
            wanted = dict.fromkeys(port for name, port in ports if name == tensor)
            return [(form, t) for t in wanted if t != form and not same_memory(kind, form, t)]
        target, count = choice.ports[-1], operands(call).count(tensor)
        again = [(target, target)] * count
        if form == target:
            return [] if self._movable(call, tensor, form) else again
        if same_memory(kind, form, target):
            return again
        # the changed copy is written in place, unless it is joined more than once
        return [(form, target), *(again if count > 1 else [])]

    def _movable(self, call: TaskCall, tensor: str, form: Form) -> bool:
        """Whether the producer of an operand writes it in place where the layouts agree: it does
        unless it is a view, as which it counts where any layout of what it reads makes it one."""
        producer = self._producers.get(tensor)
        return (
            producer is not None
            and self._joined_by.get(tensor) == call.name
            and may_write_into(self.network, tensor, call, self._producers)
            and not any(
                view_offset(self.network, producer, source, form) is not None
                for source in self.options.get(producer.inputs[0], ())
            )
        )

    @cached_property
    def _producers(self) -> dict[str, TaskCall]:
        return {call.output: call for call in self.network.calls}

    @cached_property
    def _joined_by(self) -> dict[str, str]:
        """The concatenation that gets a tensor in place: the last that reads it."""
        return {
            tensor: call.name
            for call in self.network.calls
            if is_concatenation(call)
            for tensor in call.inputs
        }


def _fits(choice: Choice, usual: Ports, joined: bool) -> bool:
    """Whether a choice is what happens in the default layouts."""
    if joined:
        return choice.implementation == IN_PLACE and choice.ports[-1] == usual[-1]
    return choice.implementation != IN_PLACE and choice.ports == usual


def picoseconds(seconds: float) -> int:
    """A time as costs have it; what has none is forbidden."""
    return round(seconds * solutions.PICOSECONDS) if isfinite(seconds) else FORBIDDEN


def layout_name(tensor: str) -> str:
    """The variable of how a tensor lies."""
    return f"layout of {tensor}"


def choice_name(call: str) -> str:
    """The variable of what is done at the call of a name."""
    return f"choice at {call}"


def _layout(tensor: str, forms: tuple[Form, ...]) -> Variable:
    return Variable(
        name=layout_name(tensor), kind="layout", values=form_texts(forms), subject=tensor
    )
