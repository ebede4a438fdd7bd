"""From a plan to a network for GPUs: the kernels' texts compiled, every argument given its place.

Beside the tensors of the plan, the arena holds what kernels of several launches keep between them,
and a copy of each tensor of indices that a call reads: a kernel in front of the call brings what is
out of range to the end of it, and notes that in a word of its own. A kernel that read where nothing
is would end all work on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tilewright.compiler.builders.cuda import program_of
from tilewright.compiler.cuda import guards
from tilewright.compiler.cuda.compilers import Compiled
from tilewright.compiler.cuda.network import (
    CudaModule,
    CudaNetwork,
    IndexCheck,
    Place,
    PlacedLaunch,
    PlacedTensor,
)
from tilewright.compiler.network import OUTSIDE
from tilewright.core.element_types import element_type
from tilewright.core.errors import TargetError
from tilewright.core.targets import Target
from tilewright.graph.inputs import IndexUse, argument_uses
from tilewright.graph.network import TensorType
from tilewright.graph.plan import Buffer, MemoryPlan, NetworkPlan, PlannedCall, aligned
from tilewright.hardware.cards import broken_limit
from tilewright.hardware.gpus import CudaLaunch, CudaProgram
from tilewright.kernels.cuda.base import CUDA
from tilewright.kernels.registry import builder_of

CompileText = Callable[[str, str], Compiled]
"""(CUDA C++, architecture) → a cubin, or why there is none."""

_WORD_BYTES = 4


def network_of(
    plan: NetworkPlan, target: Target, compile_text: CompileText, *, jobs: int = 1
) -> CudaNetwork:
    """The network of a plan with one lane on a GPU; `jobs` texts are compiled at a time.

    Raises TargetError for calls that something else than a CUDA kernel computes, and for a text
    that is refused, or that nothing here compiles.
    """
    _refuse_others(plan)
    resources = plan.only_lane.resources
    called = {plan.symbol(call): call for call in reversed(plan.calls)}
    programs = {
        symbol: program_of(called[symbol].workload, called[symbol].candidate, target, resources)
        for symbol in plan.symbols.values()
    }
    placing = _Placing(plan, programs)
    launches = [launch for number in range(len(plan.calls)) for launch in placing.launches(number)]
    sources = list(placing.modules)
    with ThreadPoolExecutor(jobs) as threads:
        done = list(threads.map(lambda text: compile_text(text, target.architecture), sources))
    for text, compiled in zip(sources, done, strict=True):
        if not compiled.binary:
            raise TargetError(
                f"the CUDA text of {placing.modules[text]} cannot be compiled: {compiled.reason}"
            )
    for each in launches:
        report = done[each.module].reports.get(each.launch.kernel)
        broken = broken_limit(each.launch, target.limits, report)
        if broken is not None:
            raise TargetError(f"no GPU starts call {plan.calls[each.call].name!r}: {broken}")
    return CudaNetwork(
        arch=target.architecture,
        arena_bytes=placing.words_at + _WORD_BYTES * len(placing.checks),
        workspaces={
            symbol: sum(size * _bytes(dtype) for size, dtype in program.workspaces.values())
            for symbol, program in programs.items()
        },
        inputs=tuple(placing.tensor(name) for name in plan.inputs),
        outputs=tuple(placing.tensor(name) for name in plan.outputs),
        constants=tuple(
            PlacedTensor(
                name=constant.name,
                type=TensorType(constant.shape, constant.dtype),
                place=placing.constants[constant.name],
            )
            for constant in plan.constants
        ),
        calls=tuple((call.name, plan.symbol(call)) for call in plan.calls),
        launches=tuple(launches),
        checks=tuple(placing.checks),
        modules=tuple(
            CudaModule(name=name, source=text, binary=compiled.binary)
            for (text, name), compiled in zip(placing.modules.items(), done, strict=True)
        ),
    )


def _refuse_others(plan: NetworkPlan) -> None:
    """Raise TargetError that names the first call that is no CUDA kernel's."""
    for call in plan.calls:
        builder = builder_of(call.candidate)
        if builder != CUDA:
            raise TargetError(
                f"call {call.name!r} ({call.workload.key}) is computed by "
                f"{call.candidate.implementation!r}, which {builder!r} builds: a network on a GPU "
                "consists of CUDA kernels only",
                hint="`tilewright profile MODEL` lists its operators; one that has no CUDA kernel "
                "must be left out of the model, or the network be run on a CPU.",
            )


@dataclass(slots=True)
class _Placing:
    """Resolves the arguments of launches. `modules` are names by text, `checks` the words that tell
    of indices out of range, which begin `words_at` in the arena."""

    plan: NetworkPlan
    programs: dict[str, CudaProgram]
    modules: dict[str, str] = field(default_factory=dict[str, str])
    checks: list[IndexCheck] = field(default_factory=list[IndexCheck])
    constants: dict[str, Place] = field(init=False)
    words_at: int = 0
    _memory: MemoryPlan = field(init=False)

    def __post_init__(self) -> None:
        self.constants = {
            it.name: Place(
                memory="constant", number=number, bytes=TensorType(it.shape, it.dtype).bytes
            )
            for number, it in enumerate(self.plan.constants)
        }
        own = [
            Buffer(name=_own(number, name), bytes=size, calls=1 << number)
            for number, call in enumerate(self.plan.calls)
            for name, size in self._kept(call).items()
        ]
        self._memory = self.plan.memory_with(self.plan.only_lane.device, own)
        self.words_at = aligned(self._memory.arena_bytes)

    def tensor(self, name: str) -> PlacedTensor:
        """A tensor of the plan, by its type and where it lies."""
        return PlacedTensor(name=name, type=self.plan.tensors[name].type, place=self._place(name))

    def _place(self, tensor: str) -> Place:
        planned = self.plan.tensors[tensor]
        offset, size = planned.offset_bytes, planned.bytes
        for memory, names in (("input", self.plan.inputs), ("output", self.plan.outputs)):
            if planned.root in names:
                number = names.index(planned.root)
                return Place(memory=memory, number=number, offset_bytes=offset, bytes=size)
        offset += self._memory.offsets[planned.root]
        return Place(memory="arena", offset_bytes=offset, bytes=size)

    def launches(self, number: int) -> Iterator[PlacedLaunch]:
        """The launches of a call, behind those that look at its indices."""
        call = self.plan.calls[number]
        symbol = self.plan.symbol(call)
        program = self.programs[symbol]
        places = {
            f"argument{index}": self._operand(call, index) for index in range(len(call.inputs))
        }
        places["result"] = self._place(call.output)
        kept = {name: self._own(number, name, size) for name, size in self._kept(call).items()}
        for use in _guarded(call):
            name, copy = f"argument{use.port}", kept.pop(_copy(use))
            yield self._check(number, use, places[name], copy)
            places[name] = copy
        module = self._module(program.source, symbol)
        for launch in program.launches:
            if 0 not in launch.grid:
                yield _placed(number, module, launch, places | kept)

    def _operand(self, call: PlannedCall, index: int) -> Place:
        if index in call.constants:
            return self.constants[call.constants[index]]
        return self._place(call.inputs[index])

    def _own(self, number: int, name: str, size: int) -> Place:
        offset = self._memory.offsets[_own(number, name)]
        return Place(memory="arena", offset_bytes=offset, bytes=size)

    def _kept(self, call: PlannedCall) -> dict[str, int]:
        """Bytes of what a call's launches have in the arena beside its operands, by name."""
        program = self.programs[self.plan.symbol(call)]
        kinds = {name: size * _bytes(dtype) for name, (size, dtype) in program.workspaces.items()}
        copies = {_copy(use): call.workload.arguments[use.port].type for use in _guarded(call)}
        return kinds | {name: kind.bytes for name, kind in copies.items()}

    def _module(self, text: str, name: str) -> int:
        """The number of the module with a text, which is called by the first who asks."""
        self.modules.setdefault(text, name)
        return list(self.modules).index(text)

    def _check(self, number: int, use: IndexUse, given: Place, kept: Place) -> PlacedLaunch:
        """The launch that brings a call's indices into their ranges."""
        call = self.plan.calls[number]
        kind = call.workload.arguments[use.port].type
        text = guards.guard_text(kind, use.ranges)
        offset = self.words_at + _WORD_BYTES * len(self.checks)
        word = Place(memory="arena", offset_bytes=offset, bytes=_WORD_BYTES)
        message = f"{call.name!r} {OUTSIDE} {', '.join(map(str, use.ranges))}"
        self.checks.append(IndexCheck(place=word, message=message))
        places = {"indices": given, "kept": kept, "outside": word}
        module = self._module(text, f"guard_{len(self.checks)}")
        return _placed(number, module, guards.LAUNCH, places)


def _placed(
    number: int, module: int, launch: CudaLaunch, places: Mapping[str, Place]
) -> PlacedLaunch:
    """A launch with the places of those arrays that it names."""
    arrays = {name: places[name] for name in launch.arguments if isinstance(name, str)}
    return PlacedLaunch(call=number, module=module, launch=launch, arrays=arrays)


def _own(number: int, name: str) -> str:
    """The name of what a call keeps in the arena; tensors have no line breaks in theirs."""
    return f"{number}\n{name}"


def _copy(use: IndexUse) -> str:
    return f"indices of {use.port}"


def _guarded(call: PlannedCall) -> list[IndexUse]:
    """The operands of a call that are indices and no constants."""
    return [use for use in argument_uses(call.workload) if use.port not in call.constants]


def _bytes(dtype: str) -> int:
    return element_type(dtype).bytes
