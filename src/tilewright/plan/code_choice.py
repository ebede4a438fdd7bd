"""Which operators of a network are on codes of eight bits, in which types the others are, how their
tensors lie and by which algorithm each is computed, for the least time whose noise is allowed: one
problem.

    x → Conv a → t → Conv b → y      layout of t: blocked16, blocked16:bfloat16, …, or codes
                                     choice at b: conv2d:…, conv2d_bfloat16:…, codes, …

It is the problem of the network in single precision (`network_problem.py`) in which a tensor may be
on codes, too, and a call may read or write them:

    conv2d_bfloat16:A,…,B              reads numbers, or a copy of codes as numbers, and writes them
    conv2d_bfloat16:A,… > rounded      the same, and rounds its result to codes
    codes > codes                      is on codes; reads what was rounded for its products
    codes > B                          the same, and writes what the codes stand for
    conv2d_bfloat16:A,…,B < codes      reads a copy of codes in halves
    codes, joined as numbers > B       its product is on codes, what is added to it is not

Noise is the second cost (`assignment.budgeted`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.core.forms import PLAIN, Form
from tilewright.core.mixtures import FrontPoint
from tilewright.core.noise import Powers, RoundingNoise, largest_share
from tilewright.core.records import Placement
from tilewright.core.solutions import PICOSECONDS
from tilewright.graph.fuse import TaskCall
from tilewright.kernels.base import HALVES
from tilewright.kernels.ports import Ports, multiplied
from tilewright.models.loaded import PreparedNetwork
from tilewright.models.quantizing import CodedNode
from tilewright.plan.assignment.budgeted import MOST_S, Floats, Front, fastest_within
from tilewright.plan.assignment.problem import FORBIDDEN, Costs, Problem, Table, Variable
from tilewright.plan.coded_calls import CodedCalls, rounded_to_codes
from tilewright.plan.coded_ways import (
    BY_ROUNDING,
    CODED,
    ROUNDED,
    SHARED,
    Way,
    read_by_products,
    written_as,
)
from tilewright.plan.mixture import Mixture
from tilewright.plan.network_problem import (
    IN_PLACE,
    VIEW,
    Choice,
    KernelTimes,
    NetworkProblem,
    choice_name,
    layout_name,
    picoseconds,
)

_WHOLE = (VIEW, IN_PLACE)


@dataclass(kw_only=True)
class CodeChoice:
    """The choice for the network `single`, in single precision, of which `codes` has all of `nodes`
    on codes.

    `noise` is that of its tensors and of its nodes' constants on codes, `mixture` says what they
    and its calls make in halves, on the same inputs, and what its outputs may have. `same` has the
    tensors whose codes are those of another one, and that one. Tensors of `kept_single` are never
    on codes. Noise of codes counts `scale` times as much as it was predicted.
    """

    nodes: Sequence[CodedNode]
    same: Mapping[str, str]
    single: PreparedNetwork
    codes: PreparedNetwork
    placement: Placement
    times: KernelTimes
    noise: RoundingNoise
    mixture: Mixture
    kept_single: Collection[str] = ()
    scale: float = 1.0

    @cached_property
    def base(self) -> NetworkProblem:
        """The problem without codes."""
        return NetworkProblem(
            network=self.single.fused,
            usual=self.single.forms,
            placement=self.placement,
            times=self.times,
            name=self.single.model.name,
            mixture=self.mixture,
        )

    @cached_property
    def ways(self) -> dict[str, tuple[Way, ...]]:
        """What may be done at each call, by its name."""
        return {call.name: tuple(self._ways(call)) for call in self.base.network.calls}

    @cached_property
    def problem(self) -> Problem:
        """That of the network without codes, with a form and with choices more."""
        tables = [self._extended(table) for table in self.base.problem.tables]
        variables = [self._variable(each) for each in self.base.problem.variables]
        given = [self._given(tensor) for tensor in self._inputs]
        return Problem(variables=tuple(variables), tables=(*tables, *given), name=self.base.name)

    @property
    def allowed(self) -> Powers:
        """The powers that noise may have in the outputs."""
        return self.mixture.allowed

    def within(self, budget: float, most_s: float = MOST_S) -> Front:
        """The fastest choice whose noise is at most this part of what is allowed, proven unless
        `most_s` seconds are too short."""
        return fastest_within(self.problem, self._noises(self.scale), budget, most_s=most_s)

    def fastest_beside(self, kept: Collection[str], budget: float, most_s: float = MOST_S) -> float:
        """Picoseconds of the fastest choice with all nodes on codes but those that are kept, whose
        noise of halves is at most this part of what is allowed, as far as it was found within
        `most_s` seconds. Raises Infeasible where no choice has these nodes on codes."""
        fixed = tuple(self._only(call, kept) for call in self.ways)
        problem = replace(self.problem, tables=(*self.problem.tables, *fixed))
        return fastest_within(problem, self._noises(0.0), budget, most_s=most_s).chosen.cost_ps

    def kept(self, assignment: Mapping[str, str]) -> list[str]:
        """The nodes that are not on codes."""
        chosen = {node for way in self._chosen(assignment) for node in way.on_codes}
        return [node.name for node in self.nodes if node.name not in chosen]

    def in_halves(self, assignment: Mapping[str, str]) -> Powers:
        """The part of a choice's noise that comes of halves."""
        return self.noise.total((way.halves, 1.0) for way in self._chosen(assignment))

    def on_codes(self, assignment: Mapping[str, str]) -> Powers:
        """The part of a choice's noise that comes of codes."""
        rounded = [t for t in self._inputs if assignment[layout_name(t)] in BY_ROUNDING]
        every = [*map(self._of_tensor, rounded), *(way.codes for way in self._chosen(assignment))]
        return self.noise.total((powers, self.scale) for powers in every)

    def points(self, front: Front) -> tuple[FrontPoint, ...]:
        """The front as it is told, the fastest first."""
        every = {id(point): point for point in (*front.points, front.chosen)}
        return tuple(
            FrontPoint(
                predicted_s=point.cost_ps / PICOSECONDS,
                sqnr_db=self._sqnr_db(point.assignment),
                chosen=point is front.chosen,
            )
            for point in sorted(every.values(), key=lambda each: each.cost_ps)
        )

    def by_node(self, kept: Collection[str]) -> dict[str, Powers]:
        """The noise of each node that is not kept: of its constants, of what it writes, and of what
        the network is given and it is the first to read."""
        found: dict[str, Powers] = {}
        left = dict(self.noise.tensors)
        written = {node.output for node in self.nodes if node.name not in kept}
        for node in self.nodes:
            if node.name in kept:
                continue
            read = [name for name in dict.fromkeys(node.inputs) if name not in written]
            causes = [left.pop(name) for name in (node.output, *read) if name in left]
            if node.name in self.noise.calls:
                causes.append(self.noise.calls[node.name])
            found[node.name] = self.noise.total((each, self.scale) for each in causes)
        return found

    def _only(self, call: str, kept: Collection[str]) -> Table:
        """That no other nodes of a call are on codes than those that are not kept."""
        every = frozenset(node for way in self.ways[call] for node in way.on_codes)
        costs = [FORBIDDEN * (way.on_codes != every.difference(kept)) for way in self.ways[call]]
        return Table(variables=(choice_name(call),), costs=np.array(costs, np.int64), role="rule")

    def _sqnr_db(self, assignment: Mapping[str, str]) -> float:
        parts = (self.on_codes(assignment), self.in_halves(assignment))
        return self.noise.sqnr_db(self.noise.total((powers, 1.0) for powers in parts))

    def _chosen(self, assignment: Mapping[str, str]) -> Iterator[Way]:
        for name, ways in self.ways.items():
            value = assignment[choice_name(name)]
            yield next(way for way in ways if way.value == value)

    def _noises(self, scale: float) -> dict[str, Floats]:
        """The parts of what is allowed that each variable takes by its values, where one takes
        some, with noise of codes counted so many times."""
        total = self.noise.total
        powers = {
            choice_name(name): [total([(way.codes, scale), (way.halves, 1.0)]) for way in ways]
            for name, ways in self.ways.items()
        }
        for tensor in self._inputs:
            own = total([(self._of_tensor(tensor), scale)])
            forms = self._forms(tensor)
            powers[layout_name(tensor)] = [own if f in BY_ROUNDING else total(()) for f in forms]
        return {
            name: np.array([largest_share(each, self.allowed) for each in by_value])
            for name, by_value in powers.items()
            if any(map(any, by_value))
        }

    def _ways(self, call: TaskCall) -> Iterator[Way]:
        known = [self._numbers(call, choice) for choice in self.base.choices[call.name]]
        rounded = self._rounded(call) if self._may_be_codes(call.output) else ()
        for way in (*known, *rounded):
            yield way
            yield from self._copying(call, way)
        yield from self._on_codes(call)

    def _copying(self, call: TaskCall, way: Way) -> Iterator[Way]:
        """The same with what is read in halves copied from codes, which rounds it."""
        copied = self._halved(call, way)
        noise = [self.mixture.noise.of(half).tensors.get(each) for each, half in copied.items()]
        if copied and all(noise):
            halves = self.noise.total((each, 1.0) for each in (way.halves, *noise) if each)
            value = f"{way.value} < {CODED}"
            yield replace(way, value=value, halves=halves, codes_read=frozenset(copied))

    def _halved(self, call: TaskCall, way: Way) -> dict[str, str]:
        """The tensors that may be on codes and are read in halves, with the types of these; what is
        added to a product is read as codes."""
        places = multiplied(call.workload) or range(len(call.inputs))
        ports = () if way.choice is None else way.choice.ports[:-1]
        return {
            call.inputs[place]: ports[place].dtype or ""
            for place in places
            if place < len(ports)
            and ports[place].dtype in HALVES
            and self._may_be_codes(call.inputs[place])
        }

    def _numbers(self, call: TaskCall, choice: Choice) -> Way:
        given, none = self.base.network.graph.inputs, self.noise.total(())
        return Way(
            value=choice.value,
            cost_ps=picoseconds(choice.time.seconds),
            written=choice.ports[-1].text,
            codes=none,
            halves=self.mixture.powers_at(call, choice.implementation, choice.ports, given),
            choice=choice,
        )

    def _rounded(self, call: TaskCall) -> Iterator[Way]:
        """Reading numbers and rounding the result to codes, in the same kernel or by a copy."""
        own = self._of_tensor(call.output)
        usual = self.single.forms.get(call.output, PLAIN)
        seen: set[Ports] = set()
        for choice in self.base.choices[call.name]:
            read = choice.ports[:-1]
            if choice.implementation in _WHOLE:
                kind, form = self.base.network.graph.types[call.output], choice.ports[-1]
                more = self._coded.codes_of_numbers(kind, form, self._coded.form(call, usual))
                yield self._rounding(call, choice, choice.time.seconds + more, own)
            elif read not in seen:
                seen.add(read)
                yield from self._in_one(call, (*read, usual), own)

    def _in_one(self, call: TaskCall, ports: Ports, own: Powers) -> Iterator[Way]:
        given = self.base.network.graph.inputs
        codes = self._coded.form(call, ports[-1])
        workload = rounded_to_codes(call.workload, self._coded.dtype)
        times = self.times.kernels(workload, (*ports[:-1], PLAIN, codes))
        fastest = sorted(times, key=lambda name: times[name].seconds)
        for name in self.mixture.quieter(call, fastest, ports, given):
            choice = Choice(implementation=name, ports=ports, time=times[name])
            yield self._rounding(call, choice, times[name].seconds, own)

    def _rounding(self, call: TaskCall, choice: Choice, seconds: float, own: Powers) -> Way:
        return replace(
            self._numbers(call, choice),
            value=f"{choice.value} > {ROUNDED}",
            cost_ps=picoseconds(seconds),
            written=ROUNDED,
            codes=own,
        )

    def _on_codes(self, call: TaskCall) -> Iterator[Way]:
        """Being on codes, as a whole or but for what is joined."""
        nodes = [node for node in self.nodes if node.name in call.nodes]
        read = frozenset(tensor for tensor in call.inputs if self._may_be_codes(tensor))
        data = {t for t in call.inputs if t not in self.base.network.graph.constants}
        if self._moves(call) and read:
            moved = self._coded_way(call, (), read, None, self._coded.seconds(call))
            yield moved
            if any(each.implementation == VIEW for each in self.base.choices[call.name]):
                # rounding before a view is what rounding behind it is
                value = f"{ROUNDED} > {ROUNDED}"
                yield replace(moved, value=value, written=ROUNDED, rounded=True)
        elif nodes and data <= read:
            if self._may_be_codes(call.output):
                yield self._coded_way(call, nodes, read, None, self._coded.seconds(call))
            for form in self._written(call) if self._alone_reads(call.output) else ():
                seconds = self._coded.in_numbers(call, form, joined=True)
                yield self._coded_way(call, nodes, read, form, seconds)
        places = [place for place in multiplied(call.workload) if call.inputs[place] in data]
        multiplies = frozenset(call.inputs[place] for place in places)
        products = [node for node in nodes if node.product]
        if products and len(nodes) > len(products) and multiplies <= read:
            for form in self._written(call):
                seconds = self._coded.in_numbers(call, form, joined=False)
                yield self._coded_way(call, products, multiplies, form, seconds)

    def _coded_way(
        self,
        call: TaskCall,
        nodes: Sequence[CodedNode],
        read: frozenset[str],
        form: Form | None,
        seconds: float,
    ) -> Way:
        """Some nodes of a call on codes, the result in a form of numbers, or on codes without
        one."""
        causes = [self.noise.calls.get(node.name) for node in nodes]
        causes += [self.noise.tensors.get(node.output) for node in nodes]
        written = CODED if form is None else form.text
        ports = (*[PLAIN] * len(call.inputs), form or PLAIN)
        whole = len(nodes) == sum(node.name in call.nodes for node in self.nodes)
        return Way(
            value=f"{CODED}{'' if whole else ', joined as numbers'} > {written}",
            cost_ps=picoseconds(seconds),
            written=written,
            codes=self.noise.total((each, 1.0) for each in causes if each),
            halves=self.mixture.powers_at(call, "", ports, ()),
            on_codes=frozenset(node.name for node in nodes),
            codes_read=read,
            rounded=any(node.product for node in nodes),
        )

    def _written(self, call: TaskCall) -> list[Form]:
        """The forms that a call on codes may write numbers in: the usual one, and in halves."""
        usual = self.single.forms.get(call.output, PLAIN)
        return [f for f in self.base.options[call.output] if f == usual or f.dtype is not None]

    @cached_property
    def _coded(self) -> CodedCalls:
        return CodedCalls(
            single=self.single.fused,
            codes=self.codes,
            products=frozenset(node.name for node in self.nodes if node.product),
            placement=self.placement,
            times=self.times,
        )

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(name for n in self.nodes for name in (*n.inputs, n.output))

    def _canonical(self, tensor: str) -> str:
        return self._same.get(tensor, tensor)

    @cached_property
    def _same(self) -> dict[str, str]:
        """The tensors with the codes of another one, and that one. What only a view is made of is
        rounded as the view is."""
        found, viewed = dict(self.same), dict[str, str]()
        for call in self.base.network.calls:
            read, written = call.inputs[0], found.get(call.output, call.output)
            views = any(each.implementation == VIEW for each in self.base.choices[call.name])
            if views and written in self._known and found.get(read, read) not in self._known:
                viewed[read] = written
        return found | {read: each for read, each in viewed.items() if self._read_once(read)}

    def _may_be_codes(self, tensor: str) -> bool:
        free = {tensor, self._canonical(tensor)}.isdisjoint(self.kept_single)
        known = tensor in self.base.options and self._canonical(tensor) in self._known
        return free and known and tensor not in self.base.network.graph.outputs

    def _alone_reads(self, tensor: str) -> bool:
        """Whether one call at most reads a tensor, which then needs not be written as codes where
        it is rounded to them."""
        return self._canonical(tensor) not in self._known or self._read_once(tensor)

    def _read_once(self, tensor: str) -> bool:
        return sum(tensor in call.inputs for call in self.base.network.calls) < 2

    def _moves(self, call: TaskCall) -> bool:
        """Whether what a call writes has the codes of what it reads."""
        data = [tensor for tensor in call.inputs if tensor in self.base.options]
        return (
            len(data) == 1
            and self._may_be_codes(call.output)
            and self._canonical(data[0]) == self._canonical(call.output)
        )

    def _of_tensor(self, tensor: str) -> Powers:
        return self.noise.tensors.get(self._canonical(tensor), self.noise.total(()))

    @cached_property
    def _inputs(self) -> list[str]:
        return [t for t in self.base.network.graph.inputs if self._may_be_codes(t)]

    def _given(self, tensor: str) -> Table:
        """What forms of a tensor cost that the network is given: its codes are made first."""
        kind = self.base.network.graph.types[tensor]
        rounding = picoseconds(self._coded.codes_of_numbers(kind, PLAIN, PLAIN))
        costs = [rounding * (form in BY_ROUNDING) for form in self._forms(tensor)]
        return Table(variables=(layout_name(tensor),), costs=np.array(costs, np.int64))

    def _variable(self, variable: Variable) -> Variable:
        if variable.kind == "layout":
            return replace(variable, values=self._forms(variable.subject))
        return replace(variable, values=tuple(w.value for w in self.ways[variable.subject]))

    def _forms(self, tensor: str) -> tuple[str, ...]:
        """The values of how a tensor lies."""
        found = tuple(form.text for form in self.base.options[tensor])
        if not self._may_be_codes(tensor):
            return found
        codes = BY_ROUNDING if self._shared(tensor) else (ROUNDED,)
        return (*found, *codes) if tensor in self._inputs else (*found, *codes, CODED)

    def _extended(self, table: Table) -> Table:
        """A table of the problem without codes, with the forms and the choices that came with
        them."""
        if table.role == "kernel":
            costs = [way.cost_ps for way in self.ways[table.subject]]
            return replace(table, costs=np.array(costs, np.int64))
        call = self._by_choice[next(n for n in table.variables if n in self._by_choice)]
        ways = self.ways[call.name]
        if table.role == "rule":
            forms = self._forms(call.output)
            rule = [[FORBIDDEN * (way.written != written_as(f)) for f in forms] for way in ways]
            return replace(table, costs=np.array(rule, np.int64))
        tensor = next(t for t in call.inputs if layout_name(t) == table.variables[0])
        columns = [self._reading(call, tensor, way, table.costs) for way in ways]
        return replace(table, costs=np.array(columns, np.int64).T)

    def _reading(self, call: TaskCall, tensor: str, way: Way, known: Costs) -> list[int]:
        """Picoseconds of the copies that one way to compute a call needs of a tensor in each
        form."""
        forms = self._forms(tensor)
        if way.choice is None:
            allowed = way.readable(multiplied=self._multiplies(call, tensor))
            needed = tensor in way.codes_read
            return [FORBIDDEN * (needed and form not in allowed) for form in forms]
        column = self._columns[call.name][
            way.choice.ports[:-1], way.choice.implementation in _WHOLE
        ]
        numbers, copied = [*map(int, known[:, column])], self._copied(call, tensor, way)
        if tensor in way.codes_read:
            numbers = [FORBIDDEN] * len(known)
        elif tensor in self._halved(call, way):
            copied = FORBIDDEN
        sure = SHARED if self._multiplies(call, tensor) else None
        return [*numbers, *[FORBIDDEN if f == sure else copied for f in forms[len(known) :]]]

    def _shared(self, tensor: str) -> bool:
        """Whether some calls multiply a tensor and others read it in another way."""
        readers = [call for call in self.base.network.calls if tensor in call.inputs]
        return len({self._multiplies(call, tensor) for call in readers}) > 1

    def _multiplies(self, call: TaskCall, tensor: str) -> bool:
        return self._canonical(tensor) in self._multiplied[call.name]

    @cached_property
    def _multiplied(self) -> dict[str, frozenset[str]]:
        return read_by_products(self.nodes, self.base.network.calls)

    @cached_property
    def _columns(self) -> dict[str, dict[tuple[Ports, bool], int]]:
        """By a call's name which of its choices reads operands in some forms."""
        return {
            name: {
                (each.ports[:-1], each.implementation in _WHOLE): number
                for number, each in enumerate(choices)
            }
            for name, choices in self.base.choices.items()
        }

    @cached_property
    def _by_choice(self) -> dict[str, TaskCall]:
        return {choice_name(call.name): call for call in self.base.network.calls}

    def _copied(self, call: TaskCall, tensor: str, way: Way) -> int:
        """Picoseconds that a copy of codes as numbers takes, where a call does not make them itself
        of what it adds to a product. What moves codes is never in numbers, nor is a lone product
        between codes, which in numbers is only if people keep it."""
        choice, nodes = way.choice, [n for n in self.nodes if n.name in call.nodes]
        alone = len(nodes) == 1 and nodes[0].product and way.written == ROUNDED
        if choice is None or self._moves(call) or alone:
            return FORBIDDEN
        every = [place for place, name in enumerate(call.inputs) if name == tensor]
        within = multiplied(call.workload)
        if within and not set(every) & set(within):
            return 0
        kind, lying = self.base.network.graph.types[tensor], self._lying(tensor)
        forms = dict.fromkeys(choice.ports[place] for place in every)
        seconds = (self._coded.numbers_of_codes(kind, lying, form) for form in forms)
        return picoseconds(sum(seconds))

    def _lying(self, tensor: str) -> Form:
        """How codes of a tensor lie."""
        maker = next((c for c in self.base.network.calls if c.output == tensor), None)
        return PLAIN if maker is None else self._coded.form(maker, self.single.forms[tensor])
