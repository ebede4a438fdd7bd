"""The plan of a network: which kernel computes each call, where, after what, and where data lies.

The one answer that compilers build, races time and artifacts ship. It holds no values of weights.
A plan for one device, call after call, is the simplest case:

    lanes    main: 2t of intel-xeon-…
    calls    conv   image, w0, b0 → a    conv2d_direct   main
             relu   a             → out  elementwise     main
    tensors  a      float32[1, 64, 56, 56] as NCHW16c

Several lanes run side by side. A call waits for the one before it in its lane, and for those that
it names in `after`; that is all that is known of the order, and memory is shared accordingly.

Intermediate tensors lie in one arena per device. Offline planning: buffers are placed largest first
at the lowest offset where none is that may be in use at the same time (greedy by size, Pisarchyk
and Lee 2020, Efficient Memory Management for Deep Neural Net Inference). Two buffers share memory
where all calls of one have ended before any call of the other begins. That follows from what the
calls wait for, not from their numbers: of two calls that wait for nothing of each other, either may
be first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import Resources
from tilewright.graph.fuse import TaskCall
from tilewright.graph.network import TensorType
from tilewright.graph.tasks import Task, TaskKey, counted
from tilewright.graph.workload import Workload

MAIN = "main"
"""The lane of a plan that has one."""

KernelKey = tuple[str, Candidate, str, Resources]
"""What a kernel is built from: workload key, candidate, device class, resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What runs calls one after the other: a class of devices and how much of one is used."""

    device: str
    resources: Resources


def lane_of(placement: Placement) -> Lane:
    """All of a placement as one lane."""
    return Lane(device=placement.device.class_key, resources=placement.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTensor:
    """A tensor on a device. It begins `offset_bytes` into the memory of tensor `root`, which is
    itself where it has memory of its own; an output whose root is an input shares that one's."""

    type: TensorType
    root: str
    device: str
    form: Form = PLAIN
    offset_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Size in memory, in its form; what is not known counts as one element."""
        if not self.type.is_static:
            return self.type.bytes
        return self.form.size_bytes(self.type.shape, self.type.dtype)

    def overlaps(self, other: PlannedTensor) -> bool:
        """Whether it shares bytes of their common root with another."""
        apart = self.offset_bytes - other.offset_bytes
        return -self.bytes < apart < other.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall(TaskCall):
    """A kernel's call: what computes it, in which lane, and what it waits for. `constants` names
    the packed constant of each operand that is one, by argument index; the result may be written
    over the operands that are `overwritable`, which are read at each place before."""

    candidate: Candidate
    lane: str = MAIN
    after: tuple[str, ...] = ()
    constants: Mapping[int, str] = field(default_factory=dict[int, str])
    overwritable: tuple[int, ...] = ()

    @property
    def task(self) -> TaskKey:
        """What is tuned: calls with equal workload and forms."""
        return self.workload.key, self.candidate.forms


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedConstant:
    """A constant as kernels read it: argument `index` of `workload`, packed for `candidate`.

    `sources` are the graph's constants behind the workload's constant arguments, by argument index.
    The name tells sources and packing, so that plans of one model may share a store of weights.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    workload: Workload
    candidate: Candidate
    index: int
    sources: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """Calls in an order that keeps every wait, tensors by name, lanes by name, and the packed
    constants in the order in which the compiled network takes them.

    Raises InternalError for a plan that cannot be carried out.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, PlannedTensor]
    calls: tuple[PlannedCall, ...]
    lanes: Mapping[str, Lane]
    constants: tuple[PackedConstant, ...] = ()

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise InternalError(f"a plan cannot be carried out: {fault}")

    @cached_property
    def earlier(self) -> tuple[int, ...]:
        """For each call, by position, the calls that have ended when it begins, as a set of
        bits."""
        ended, last, found = dict[str, int](), dict[str, int](), list[int]()
        for number, call in enumerate(self.calls):
            waits = (ended[name] for name in call.after)
            found.append(reduce(int.__or__, waits, last.get(call.lane, 0)))
            ended[call.name] = last[call.lane] = found[-1] | 1 << number
        return tuple(found)

    @cached_property
    def touched(self) -> dict[str, int]:
        """For each tensor with memory of its own in an arena, the calls that read or write it or
        what lies in it, as a set of bits."""
        touched: dict[str, int] = {}
        for number, call in enumerate(self.calls):
            for tensor in (*call.inputs, call.output):
                if tensor in self.tensors and self.in_arena(tensor):
                    root = self.tensors[tensor].root
                    touched[root] = touched.get(root, 0) | 1 << number
        return touched

    @cached_property
    def overwritten(self) -> dict[str, str]:
        """For each tensor whose memory is that of another one which nobody needs any more, that
        one: the first of those that are written over each other."""
        found: dict[str, str] = {}
        for number, call in enumerate(self.calls):
            for index in call.overwritable:
                old = call.inputs[index]
                if self._lies_alone(call, index) and self._is_over(old, call.output, number):
                    root = self.tensors[old].root
                    found[call.output] = found.get(root, root)
                    break
        return found

    def _lies_alone(self, call: PlannedCall, index: int) -> bool:
        """Whether an operand is no constant, and no other one of the call lies in its memory: that
        one may be read after the result is written."""
        roots = [
            None if at in call.constants else self.tensors[tensor].root
            for at, tensor in enumerate(call.inputs)
        ]
        return roots[index] is not None and roots.count(roots[index]) == 1

    def _is_over(self, old: str, new: str, number: int) -> bool:
        """Whether both tensors are all that their memory holds, nobody touches the old one after
        call `number` began, and nobody the new one before it ended."""
        places = self.tensors[old], self.tensors[new]
        roots = [self.touched.get(place.root) for place in places]
        if None in roots or places[0].root == places[1].root or places[1].root != new:
            return False
        whole = places[0].offset_bytes == 0 and places[0].device == places[1].device
        sizes = {tensor.bytes for tensor in (*places, self.tensors[places[0].root])}
        before, after = (calls & ~(1 << number) for calls in roots if calls is not None)
        ended = before & ~self.earlier[number] == 0
        return whole and len(sizes) == 1 and ended and self._all_behind(number, after)

    def _all_behind(self, number: int, calls: int) -> bool:
        """Whether a call has ended when any of these begin."""
        later = (n for n in range(len(self.calls)) if calls >> n & 1)
        return all(self.earlier[n] >> number & 1 for n in later)

    @cached_property
    def memory(self) -> dict[str, MemoryPlan]:
        """The arena of each device: where all tensors lie that are neither input nor output."""
        devices = {lane.device for lane in self.lanes.values()}
        return {device: self._placed(device) for device in devices}

    def _placed(self, device: str) -> MemoryPlan:
        found = plan_memory(self._buffers(device), self.earlier)
        there = {new: old for new, old in self.overwritten.items() if old in found.offsets}
        shared = {new: found.offsets[old] for new, old in there.items()}
        return replace(found, offsets=found.offsets | shared)

    def memory_with(self, device: str, more: Sequence[Buffer]) -> MemoryPlan:
        """The arena of a device with more buffers, placed around the tensors that lie there."""
        offsets = self.memory[device].offsets
        known = [(offsets[buffer.name], buffer) for buffer in self._buffers(device)]
        return plan_memory(more, self.earlier, known)

    def _buffers(self, device: str) -> list[Buffer]:
        using: dict[str, int] = {}
        for root, calls in self.touched.items():
            home = self.overwritten.get(root, root)
            using[home] = using.get(home, 0) | calls
        return [
            Buffer(name=root, bytes=self.tensors[root].bytes, calls=calls)
            for root, calls in using.items()
            if self.tensors[root].device == device
        ]

    @property
    def arena_bytes(self) -> int:
        """The arenas of all devices together."""
        return sum(memory.arena_bytes for memory in self.memory.values())

    def in_arena(self, tensor: str) -> bool:
        """Whether a tensor lies in an arena: not in memory that is handed in or out."""
        return self.tensors[tensor].root not in {*self.inputs, *self.outputs}

    @cached_property
    def symbols(self) -> dict[KernelKey, str]:
        """The name of every kernel, in order of first use."""
        anchors = {self.kernel(call): call.workload.anchor_name for call in self.calls}
        return {key: f"kernel_{n}_{name}" for n, (key, name) in enumerate(anchors.items())}

    def kernel(self, call: PlannedCall) -> KernelKey:
        """What the call's kernel is built from."""
        lane = self.lanes[call.lane]
        return call.workload.key, call.candidate, lane.device, lane.resources

    def symbol(self, call: PlannedCall) -> str:
        """The name of the call's kernel."""
        return self.symbols[self.kernel(call)]

    @cached_property
    def candidates(self) -> dict[TaskKey, Candidate]:
        """What computes each task, in order of first use; where calls of one task differ, the
        first of them."""
        first = {call.task: call.candidate for call in reversed(self.calls)}
        return {call.task: first[call.task] for call in self.calls}

    @cached_property
    def tasks(self) -> dict[TaskKey, Task]:
        """What is tuned, in order of first use."""
        return counted(
            Task(
                key=call.task,
                name=call.name,
                workload=call.workload,
                forms=call.candidate.forms,
                count=1,
                nodes=call.nodes,
            )
            for call in self.calls
        )

    @property
    def constant_names(self) -> list[str]:
        """The packed constants in the order in which the compiled network takes them."""
        return [constant.name for constant in self.constants]

    def on(self, lane: Lane) -> NetworkPlan:
        """A plan with one lane on another one. Raises InternalError for a plan with several."""
        if self.only_lane == lane:
            return self
        tensors = {name: replace(t, device=lane.device) for name, t in self.tensors.items()}
        return replace(self, tensors=tensors, lanes=dict.fromkeys(self.lanes, lane))

    @property
    def main(self) -> Lane:
        """The lane called `MAIN`, which may use all that the others use; raises InternalError where
        there are several and none is called so."""
        return self.lanes.get(MAIN) or self.only_lane

    @property
    def only_lane(self) -> Lane:
        """The lane of a plan that has one; raises InternalError for others."""
        if len(self.lanes) != 1:
            raise InternalError(f"a plan with {len(self.lanes)} lanes where one is expected")
        return next(iter(self.lanes.values()))


def _faults(plan: NetworkPlan) -> Iterator[str]:
    """What is wrong with a plan, in words."""
    yield from _wrong_waits(plan)
    if not all(tensor in plan.tensors for tensor in (*plan.inputs, *plan.outputs)):
        yield "an input or an output is no tensor of it"
    for name, tensor in plan.tensors.items():
        if not tensor.type.is_static and name not in plan.outputs:
            yield f"tensor {name!r} of unknown shape is no output"
        root = plan.tensors.get(tensor.root)
        if root is None or root.root != tensor.root:
            yield f"tensor {name!r} lies in {tensor.root!r}, which has no memory of its own"
        elif root.device != tensor.device:
            yield f"tensor {name!r} lies in {tensor.root!r} on another device"
        elif tensor.offset_bytes + tensor.bytes > root.bytes:
            yield f"tensor {name!r} ends behind {tensor.root!r}, in which it lies"
    yield from _conflicts(plan)


def _wrong_waits(plan: NetworkPlan) -> Iterator[str]:
    """Names that are taken twice or not there, and waits for what comes later."""
    ended: set[str] = set()
    for call in plan.calls:
        if call.name in ended:
            yield f"two calls have the name {call.name!r}"
        if call.lane not in plan.lanes:
            yield f"call {call.name!r} is in the lane {call.lane!r}, which is not there"
        for name in call.after:
            if name not in ended:
                yield f"call {call.name!r} waits for {name!r}, which does not come before it"
        ended.add(call.name)


def _conflicts(plan: NetworkPlan) -> Iterator[str]:
    """Tensors out of a lane's reach, and calls that touch the same bytes in no certain order though
    one of them writes."""
    accesses: dict[str, list[tuple[int, PlannedTensor, bool]]] = {}
    for number, call in enumerate(plan.calls):
        device = plan.lanes[call.lane].device
        ports = [t for index, t in enumerate(call.inputs) if index not in call.constants]
        for tensor, writes in (*((port, False) for port in ports), (call.output, True)):
            planned = plan.tensors.get(tensor)
            if planned is None:
                yield f"call {call.name!r} names {tensor!r}, which is no tensor"
                continue
            if planned.device != device and call.kind != "transfer":
                yield f"call {call.name!r} runs on {device!r}, its tensor {tensor!r} is elsewhere"
            others = accesses.setdefault(planned.root, [])
            before = [other for other in others if other[1].overlaps(planned)]
            written = writes or planned.root in plan.inputs or any(w for _, _, w in before)
            if not written:
                yield f"call {call.name!r} reads {tensor!r}, which nothing wrote before"
            for earlier, _, wrote in before:
                together = not plan.earlier[number] >> earlier & 1 and earlier != number
                if together and (wrote or writes):
                    other = plan.calls[earlier].name
                    yield f"calls {other!r} and {call.name!r} use {tensor!r} in no certain order"
            others.append((number, planned, writes))


ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Memory that some calls read or write: bit n of `calls` stands for call n."""

    name: str
    bytes: int
    calls: int

    @property
    def first(self) -> int:
        """The first of its calls."""
        return (self.calls & -self.calls).bit_length() - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Offsets in bytes within an arena of `arena_bytes`."""

    offsets: dict[str, int]
    arena_bytes: int


def aligned(size_bytes: int) -> int:
    """`size_bytes` rounded up to the alignment of vector loads."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_memory(
    buffers: Sequence[Buffer],
    earlier: Sequence[int],
    known: Sequence[tuple[int, Buffer]] = (),
) -> MemoryPlan:
    """Place all buffers around `known` ones, whose offsets stay; deterministic for equal input.

    `earlier` tells for each call which ones have ended when it begins, as bits.
    """
    placed = list(known)
    every = (*(buffer for _, buffer in known), *buffers)
    behind = {item.name: _ended_before(item, earlier) for item in every}
    for item in sorted(buffers, key=lambda entry: (-entry.bytes, entry.first, entry.name)):
        neighbours = sorted(
            (offset, offset + aligned(other.bytes))
            for offset, other in placed
            if item.calls & ~behind[other.name] and other.calls & ~behind[item.name]
        )
        position = 0
        for begin, end in neighbours:
            if begin - position >= aligned(item.bytes):
                break
            position = max(position, end)
        placed.append((position, item))
    return MemoryPlan(
        offsets={item.name: offset for offset, item in placed},
        arena_bytes=max((offset + aligned(item.bytes) for offset, item in placed), default=0),
    )


def _ended_before(buffer: Buffer, earlier: Sequence[int]) -> int:
    """The calls that have ended before any call of a buffer begins, as bits."""
    found, left = -1, buffer.calls
    while left:
        lowest = left & -left
        found &= earlier[lowest.bit_length() - 1]
        left ^= lowest
    return found
