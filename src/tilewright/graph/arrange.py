"""From fused calls and a layout per tensor to kernel calls over one memory arena.

Reshapes that do not change memory become views. A concatenation along the outermost real axis is
written in place by its producers: each writes its slice of the result, and only what cannot be
written there (a graph input, a tensor that lies in another concatenation already) is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, Form, channel_block, in_channel_blocks
from tilewright.graph.conversions import copying, with_conversions
from tilewright.graph.fused import FusedNetwork, TaskCall
from tilewright.graph.memory import ALIGNMENT_BYTES
from tilewright.graph.tasks import Task, TaskKey, counted
from tilewright.graph.tensor import TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """A kernel to run: the workload, the layout of each port (arguments, then the result)."""

    call: TaskCall
    forms: tuple[Form, ...]

    @property
    def task(self) -> Task:
        """What is tuned for it."""
        return Task(
            key=(self.call.workload.key, self.forms),
            name=self.call.name,
            workload=self.call.workload,
            forms=self.forms,
            count=1,
            nodes=self.call.nodes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A tensor inside another one's memory."""

    root: str
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCalls:
    """What is left to compute of a network: `calls` in order, and the `places` of tensors that
    live inside others. `forms` are of all its tensors, those of conversions and slices too."""

    network: FusedNetwork
    forms: Mapping[str, Form]
    calls: tuple[KernelCall, ...]
    places: Mapping[str, Place]

    @property
    def tasks(self) -> dict[TaskKey, Task]:
        """What is tuned, in order of first use."""
        return counted(call.task for call in self.calls)


def arrange(
    network: FusedNetwork,
    forms: Mapping[str, Form],
    wanted: Mapping[str, tuple[Form, ...]] | None = None,
) -> KernelCalls:
    """Decide conversions, views and in-place concatenations; what remains is a kernel call.

    `forms` names the layout of every tensor that calls read or write; constants are plain.
    `wanted` has the forms of ports of calls, by name, that want others than tensors lie in: those
    are converted first.
    """
    network, forms = with_conversions(network, forms, wanted or {})
    builder = _Builder(network, forms)
    for call in network.calls:
        builder.add(call)
    return KernelCalls(
        network=network,
        forms={**forms, **builder.slices},
        calls=tuple(builder.calls),
        places=builder.resolved(),
    )


class _Builder:
    def __init__(self, network: FusedNetwork, forms: Mapping[str, Form]) -> None:
        self.network = network
        self.forms = forms
        self.parents: dict[str, Place] = {}
        self.slices: dict[str, Form] = {}
        self.calls: list[KernelCall] = []
        self.written_in_place = self._plan_concatenations()

    def form(self, tensor: str) -> Form:
        return self.forms.get(tensor, PLAIN)

    def add(self, call: TaskCall) -> None:
        if call.workload.result.elements == 0:
            return
        if self._is_view(call):
            self.parents[call.output] = Place(root=call.inputs[0], offset_bytes=0)
            return
        offsets = self.written_in_place.get(call.output)
        if offsets is None:
            ports = tuple(self.form(t) for t in (*call.inputs, call.output))
            self.calls.append(KernelCall(call=call, forms=ports))
            return
        for position, (tensor, offset) in enumerate(zip(operands(call), offsets, strict=True)):
            if self.parents.get(tensor) != Place(root=call.output, offset_bytes=offset):
                self._copy(call, position, offset)

    def _copy(self, call: TaskCall, position: int, offset: int) -> None:
        tensor = operands(call)[position]
        kind = self.network.graph.types[tensor]
        slice_name = f"{call.output}/{position}"
        while slice_name in self.network.graph.types:
            slice_name += "/"
        self.parents[slice_name] = Place(root=call.output, offset_bytes=offset)
        self.slices[slice_name] = self.form(call.output)
        copied = TaskCall(
            name=f"{call.name}/{position}",
            workload=copying(kind),
            inputs=(tensor,),
            output=slice_name,
            nodes=call.nodes,
        )
        ports = (self.form(tensor), self.form(call.output))
        self.calls.append(KernelCall(call=copied, forms=ports))

    def _is_view(self, call: TaskCall) -> bool:
        source = self.form(call.inputs[0]) if call.inputs else PLAIN
        return is_view(self.network, call, source, self.form(call.output))

    def _plan_concatenations(self) -> dict[str, list[int]]:
        """For each concatenation done in place: the byte offset of each input."""
        producers = {call.output: call for call in self.network.calls}
        planned: dict[str, list[int]] = {}
        for call in reversed(self.network.calls):
            joined = operands(call) if is_concatenation(call) else []
            ports = tuple(self.form(tensor) for tensor in (*joined, call.output))
            offsets = offsets_in_place(self.network, call, ports)
            if offsets is None:
                continue
            for tensor, offset in zip(joined, offsets, strict=True):
                if self._can_move(tensor, call, producers):
                    self.parents[tensor] = Place(root=call.output, offset_bytes=offset)
            planned[call.output] = offsets
        return planned

    def _can_move(self, tensor: str, call: TaskCall, producers: Mapping[str, TaskCall]) -> bool:
        return (
            tensor not in self.parents
            and self.form(tensor) == self.form(call.output)
            and may_write_into(self.network, tensor, call, producers)
            and not self._is_view(producers[tensor])
        )

    def resolved(self) -> dict[str, Place]:
        """Every tensor that lies in another, with its outermost buffer."""
        return {tensor: self._resolve(tensor) for tensor in self.parents}

    def _resolve(self, tensor: str) -> Place:
        offset, current, hops = 0, tensor, 0
        while current in self.parents:
            place = self.parents[current]
            offset, current, hops = offset + place.offset_bytes, place.root, hops + 1
            if hops > len(self.parents):
                raise InternalError(f"tensor {tensor!r} lies inside itself")
        return Place(root=current, offset_bytes=offset)


def may_be_view(call: TaskCall) -> bool:
    """Whether a call does nothing in some layouts."""
    moves = all(step.operator in ("reshape", "identity") for step in call.workload.steps)
    return moves and bool(call.inputs)


def same_memory(kind: TensorType, one: Form, other: Form) -> bool:
    """Whether a tensor's memory is the same in two layouts."""
    return one == other or (_row_major(kind, one) and _row_major(kind, other))


def is_view(network: FusedNetwork, call: TaskCall, source: Form, target: Form) -> bool:
    """Whether a call does nothing when its data is laid out as `source`, its result as `target`."""
    if not may_be_view(call):
        return False
    graph = network.graph
    if call.output in network.pinned or call.inputs[0] in graph.constants:
        return False
    kinds = graph.types
    return _row_major(kinds[call.inputs[0]], source) and _row_major(kinds[call.output], target)


def is_concatenation(call: TaskCall) -> bool:
    """Whether a call does nothing but join tensors."""
    steps = call.workload.steps
    return len(steps) == 1 and steps[0].operator == "concat"


def offsets_in_place(
    network: FusedNetwork, call: TaskCall, ports: tuple[Form, ...]
) -> list[int] | None:
    """Where in a concatenation's result each operand begins, in bytes, when written in place.

    None where that cannot be: `ports` are the layouts of the operands and of the result.
    """
    if not is_concatenation(call) or call.output in network.pinned:
        return None
    types = network.graph.types
    joined = operands(call)
    if not _outermost(call, [types[t].shape for t in (*joined, call.output)], ports):
        return None
    sizes = [types[tensor].bytes for tensor in joined]
    offsets = [sum(sizes[:position]) for position in range(len(sizes))]
    return None if any(offset % ALIGNMENT_BYTES for offset in offsets) else offsets


def may_write_into(
    network: FusedNetwork, tensor: str, call: TaskCall, producers: Mapping[str, TaskCall]
) -> bool:
    """Whether the producer of an operand may write it into a concatenation's result, given that
    both have one layout: nothing else pins it, and it is joined once."""
    fixed = tensor in network.pinned
    return not fixed and operands(call).count(tensor) == 1 and tensor in producers


def _outermost(call: TaskCall, shapes: list[tuple[int, ...]], ports: tuple[Form, ...]) -> bool:
    """Whether the joined axis is the outermost of the result's memory."""
    axis = call.workload.steps[0].integer("axis")
    if not all(map(in_channel_blocks, ports)):
        return False
    block = channel_block(ports[-1])
    if any(extent != 1 for extent in shapes[0][:axis]):
        return False
    if block:
        return axis == 1 and not any(shape[1] % block for shape in shapes)
    return not any(channel_block(form) for form in ports)


def operands(call: TaskCall) -> list[str]:
    """The tensors of a lone concatenation in order; one may come twice."""
    return [call.inputs[index] for index in call.workload.steps[0].inputs]


def _row_major(kind: TensorType, form: Form) -> bool:
    """Whether memory equals that of the plain form."""
    if not in_channel_blocks(form):
        return False
    if not channel_block(form):
        return True
    return all(extent == 1 for extent in kind.shape[2:])
