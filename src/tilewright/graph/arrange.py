"""From fused calls and a layout per tensor to kernel calls over one memory arena.

Where a reader wants a tensor in another layout, a copy of it is a call of its own. Reshapes that do
not change memory become views, and so do slices along the outermost real axis. A concatenation
along that axis is written in place by its producers: each writes its part of the result, and only
what cannot be written there (a graph input, a tensor that lies in another one already) is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.core.forms import PLAIN, Form, channel_block, in_channel_blocks
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import TensorType
from tilewright.graph.plan import ALIGNMENT_BYTES
from tilewright.graph.tasks import Task, TaskKey, counted
from tilewright.graph.workload import Argument, Step, Workload


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
class Allocation:
    """Where a tensor lies that has no memory of its own: so far inside that of tensor `root`."""

    root: str
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCalls:
    """What is left to compute of a network: `calls` in order, and the `allocations` of tensors that
    live inside others. `forms` are of all its tensors, those of conversions and of copies into
    concatenations too."""

    network: FusedNetwork
    forms: Mapping[str, Form]
    calls: tuple[KernelCall, ...]
    allocations: Mapping[str, Allocation]

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
        forms={**forms, **builder.copied},
        calls=tuple(builder.calls),
        allocations={tensor: builder.resolved(tensor) for tensor in builder.parents},
    )


def copying(kind: TensorType) -> Workload:
    """A tensor as it is: with two layouts, the change from one to the other."""
    return Workload(
        arguments=(Argument(type=kind),),
        steps=(Step(operator="identity", inputs=(0,)),),
    )


def with_conversions(
    network: FusedNetwork, forms: Mapping[str, Form], wanted: Mapping[str, tuple[Form, ...]]
) -> tuple[FusedNetwork, dict[str, Form]]:
    """The network with a copy of every tensor that a call wants in another layout.

    `forms` names the layout each tensor is written in, `wanted` the layouts of the ports of calls
    by name (calls left out read what is there). x@blocked32 = identity(x) goes right before its
    first reader; readers that want the same share it. Returns the network and all layouts.
    """
    graph = network.graph
    types, placed = dict(graph.types), dict(forms)
    copies: dict[tuple[str, Form], str] = {}
    calls: list[TaskCall] = []
    for call in network.calls:
        ports = wanted.get(call.name, ())
        inputs = list(call.inputs)
        for index, (tensor, form) in enumerate(zip(call.inputs, ports, strict=False)):
            if tensor in graph.constants or forms.get(tensor, PLAIN) == form:
                continue
            if (tensor, form) not in copies:
                copied = f"{tensor}@{form}"
                while copied in types:
                    copied += "@"
                types[copied], placed[copied] = types[tensor], form
                copies[tensor, form] = copied
                calls.append(
                    TaskCall(
                        name=copied,
                        workload=copying(types[tensor]),
                        inputs=(tensor,),
                        output=copied,
                        nodes=call.nodes,
                        kind="conversion",
                    )
                )
            inputs[index] = copies[tensor, form]
        calls.append(replace(call, inputs=tuple(inputs)))
    return FusedNetwork(graph=replace(graph, types=types), calls=tuple(calls)), placed


class _Builder:
    """`parents` has the tensor right around each that lies inside another one's memory, `copied`
    the layout of each copy of an operand in a concatenation."""

    def __init__(self, network: FusedNetwork, forms: Mapping[str, Form]) -> None:
        self.network = network
        self.forms = forms
        self.parents: dict[str, Allocation] = {}
        self.copied: dict[str, Form] = {}
        self.calls: list[KernelCall] = []
        self.written_in_place = self._plan_concatenations()

    def add(self, call: TaskCall) -> None:
        if call.workload.result.elements == 0:
            return
        offset = self._offset_as_view(call)
        if offset is not None:
            self.parents[call.output] = Allocation(root=call.inputs[0], offset_bytes=offset)
        elif call.output in self.written_in_place:
            offsets = self.written_in_place[call.output]
            for position, (tensor, offset) in enumerate(zip(operands(call), offsets, strict=True)):
                part = Allocation(root=call.output, offset_bytes=offset)
                if self.parents.get(tensor) != part:
                    self._copy(call, position, part)
        else:
            cache = cache_in_place(self.network, call)
            if cache is not None:
                self.parents[call.output] = Allocation(root=cache, offset_bytes=0)
            self._append(call)

    def _append(self, call: TaskCall) -> None:
        forms = map(self._form, (*call.inputs, call.output))
        self.calls.append(KernelCall(call=call, forms=tuple(forms)))

    def _form(self, tensor: str) -> Form:
        return self.copied.get(tensor) or self.forms.get(tensor, PLAIN)

    def _copy(self, call: TaskCall, position: int, part: Allocation) -> None:
        tensor, part_name = operands(call)[position], f"{call.output}/{position}"
        while part_name in self.network.graph.types:
            part_name += "/"
        self.parents[part_name] = part
        self.copied[part_name] = self._form(call.output)
        self._append(
            TaskCall(
                name=f"{call.name}/{position}",
                workload=copying(self.network.graph.types[tensor]),
                inputs=(tensor,),
                output=part_name,
                nodes=call.nodes,
            )
        )

    def _offset_as_view(self, call: TaskCall) -> int | None:
        source = self._form(call.inputs[0]) if call.inputs else PLAIN
        return view_offset(self.network, call, source, self._form(call.output))

    def _plan_concatenations(self) -> dict[str, list[int]]:
        """For each concatenation done in place: the byte offset of each input."""
        producers = {call.output: call for call in self.network.calls}
        planned: dict[str, list[int]] = {}
        for call in reversed(self.network.calls):
            joined = operands(call) if is_concatenation(call) else []
            ports = tuple(self._form(tensor) for tensor in (*joined, call.output))
            offsets = offsets_in_place(self.network, call, ports)
            if offsets is None:
                continue
            for tensor, form, offset in zip(joined, ports[:-1], offsets, strict=True):
                if (
                    tensor not in self.parents
                    and form == ports[-1]
                    and may_write_into(self.network, tensor, call, producers)
                    and self._offset_as_view(producers[tensor]) is None
                ):
                    self.parents[tensor] = Allocation(root=call.output, offset_bytes=offset)
            planned[call.output] = offsets
        return planned

    def resolved(self, tensor: str) -> Allocation:
        """Where a tensor that lies in another is, in its outermost buffer."""
        found = Allocation(root=tensor, offset_bytes=0)
        while found.root in self.parents:
            parent = self.parents[found.root]
            offset = found.offset_bytes + parent.offset_bytes
            found = Allocation(root=parent.root, offset_bytes=offset)
        return found


def may_be_view(call: TaskCall) -> bool:
    """Whether a call does nothing in some layouts."""
    names = [step.operator for step in call.workload.steps]
    return bool(call.inputs) and (names == ["slice"] or {*names} <= {"reshape", "identity"})


def same_memory(kind: TensorType, one: Form, other: Form) -> bool:
    """Whether a tensor's memory is the same in two layouts."""
    alike = one.dtype == other.dtype and _row_major(kind, one) and _row_major(kind, other)
    return one == other or alike


def view_offset(network: FusedNetwork, call: TaskCall, source: Form, target: Form) -> int | None:
    """Where in its operand's memory a call's result begins, in bytes, when the call does nothing
    since its data is laid out as `source`, its result as `target`; None where it does something."""
    kinds = network.graph.types
    if (
        not may_be_view(call)
        or call.output in network.pinned
        or call.inputs[0] in network.graph.constants
        or source.dtype != target.dtype
    ):
        return None
    if call.workload.steps[0].operator == "slice":
        return _slice_offset(call, source) if source == target else None
    alike = _row_major(kinds[call.inputs[0]], source) and _row_major(kinds[call.output], target)
    return 0 if alike else None


def _slice_offset(call: TaskCall, form: Form) -> int | None:
    """Where a slice of a tensor begins in its memory, in bytes; None where it is no whole piece of
    it, or does not begin as kernels want their operands to."""
    step, whole, part = call.workload.steps[0], call.workload.types[0], call.workload.result
    starts, steps = step.integers("starts"), step.integers("steps")
    axis = next((at for at, extent in enumerate(whole.shape) if extent != 1), 0)
    block = channel_block(form) if in_channel_blocks(form) else 0
    inner = part.shape[axis + 1 :] == whole.shape[axis + 1 :]
    alike = inner and set(steps) == {1} and (axis == 1 or not block) and in_channel_blocks(form)
    if not alike or starts[axis] % (block or 1) or part.shape[axis] % (block or 1):
        return None
    ahead = form.size_bytes((*part.shape[:axis], starts[axis], *part.shape[axis + 1 :]), part.dtype)
    return None if ahead % ALIGNMENT_BYTES else ahead


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
    sizes = [
        form.size_bytes(types[tensor].shape, types[tensor].dtype)
        for tensor, form in zip(joined, ports, strict=False)
    ]
    offsets = [sum(sizes[:position]) for position in range(len(sizes))]
    return None if any(offset % ALIGNMENT_BYTES for offset in offsets) else offsets


def may_write_into(
    network: FusedNetwork, tensor: str, call: TaskCall, producers: Mapping[str, TaskCall]
) -> bool:
    """Whether the producer of an operand may write it into a concatenation's result, given that
    both have one layout: nothing else pins it, and it is joined once."""
    free = tensor not in network.pinned and tensor in producers
    return free and operands(call).count(tensor) == 1


def _outermost(call: TaskCall, shapes: list[tuple[int, ...]], ports: tuple[Form, ...]) -> bool:
    """Whether the joined axis is the outermost of the result's memory."""
    axis = call.workload.steps[0].integer("axis")
    alike = all(map(in_channel_blocks, ports)) and len({form.dtype for form in ports}) == 1
    if not alike or any(size != 1 for size in shapes[0][:axis]):
        return False
    block = channel_block(ports[-1])
    if block:
        return axis == 1 and not any(shape[1] % block for shape in shapes)
    return not any(channel_block(form) for form in ports)


def cache_in_place(network: FusedNetwork, call: TaskCall) -> str | None:
    """The input in whose memory a call's result lies, since it is that cache with new rows, an
    output of the network, and nobody else reads what the input was."""
    if [step.operator for step in call.workload.steps] != ["cache_write"]:
        return None
    cache, graph = call.inputs[call.workload.steps[0].inputs[0]], network.graph
    readers = [each for other in network.calls for each in other.inputs].count(cache)
    handed_on = cache in graph.inputs and graph.outputs.count(call.output) == 1
    return cache if handed_on and readers == 1 and cache not in graph.outputs else None


def operands(call: TaskCall) -> list[str]:
    """The tensors of a lone concatenation in order; one may come twice."""
    return [call.inputs[index] for index in call.workload.steps[0].inputs]


def _row_major(kind: TensorType, form: Form) -> bool:
    """Whether memory equals that of the plain form."""
    flat = all(extent == 1 for extent in kind.shape[2:])
    return in_channel_blocks(form) and (flat or not channel_block(form))
