"""NVIDIA's GPUs in this machine, whose kernels run in child processes of this one; and those that
are not here: kernels for them are compiled, looked at and predicted.

    --target cuda                the first GPU here
    --target 'cuda -card=1'      the second one, in the driver's order
    --target 'cuda -model=H100'  the first H100 here; without one, what its datasheet says
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from tilewright.compiler.cuda import compilers, nvidia
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Device, Placement
from tilewright.core.results import ControlRow, TargetRow
from tilewright.core.targets import Binding, Target, threads_alone
from tilewright.core.units import format_bytes
from tilewright.hardware.cards import Card, busy_share, card_target
from tilewright.hardware.device import ELSEWHERE, class_key
from tilewright.hardware.gpu_controls import gpu_control_rows
from tilewright.hardware.gpus import gpu_target, is_cuda
from tilewright.hardware.meters import KernelEnergy
from tilewright.hardware.probe import allotted_cpus
from tilewright.hardware.target import parse_gpu
from tilewright.measure import base, kernels
from tilewright.measure.cuda_networks import CudaNetworks
from tilewright.measure.networks import NetworkRunner

_NAME = "cuda"
_NUMBERED = re.compile(rf"{_NAME}(?:\s+-card=(\d+))?")
_BUSY_SHARE = 0.05
_EXAMPLE = "'cuda -model=H100'"
_MOST_BUILDERS = 16
"""NVIDIA's compilers take a second or two for a kernel, more than a round of one task asks for."""
_AT_ONCE = 2
"""Kernels that each builder makes before the first of them is timed: the more, the less do those
that have finished wait for the slowest."""


class CudaMeasurer(kernels.KernelMeasurer):
    """Measures candidates on a GPU of this machine. Its workers have no limit of memory: a driver
    reserves far more than it uses. Nobody waits for their threads to sleep: events on the GPU time
    kernels, which threads of a CPU do not slow down."""

    def __init__(
        self, placement: Placement, *, seed: int = 0, energy: KernelEnergy | None = None
    ) -> None:
        builders = min(_MOST_BUILDERS, max(1, len(placement.binding.cpus)))
        super().__init__(
            placement, seed=seed, builders=builders, memory_limit_bytes=0, energy=energy
        )
        self.at_once = _AT_ONCE * builders
        self._opened: dict[int, int | None] = {}

    def rest(self) -> None:
        """Return at once."""

    def _rest(self, workers: Iterable[int]) -> None:
        self._restless.difference_update(workers)

    def _build(self, job: base.Job) -> None:
        """Build a candidate; a worker opens the GPU with its first, beside the others."""
        super()._build(job)
        worker = self._workers[job.worker]
        if job.failure is None and self._opened.get(job.worker) != worker.pid:
            self._opened[job.worker] = worker.pid
            with suppress(ChildError, RemoteError):  # who times the kernel is told the same
                worker.request(("open_gpu", job.slot), base.START_TIMEOUT_S)

    def peaks(self) -> dict[str, float]:
        """What the datasheet says of the ordinary units, and the card of its memory: nothing is
        measured for it."""
        target = self.placement.target
        _, l2, memory = target.memory
        per_cycle = target.units[0].operations_per_cycle * target.cores
        return {
            "flop_per_s": per_cycle * target.clock_hz,
            "bytes_per_s": memory.bytes_per_s,
            "cache_bytes_per_s": l2.bytes_per_s,
        }


class _Cuda:
    name = _NAME
    here = True
    runs_networks = True
    note = ""

    def placement(self, target: str, tracker: str | None, threads: int | None) -> Placement | None:
        """A GPU here, else one that is only described. Raises TargetError for a target that names
        nothing known, and for `cuda` alone where no GPU is here."""
        if not is_cuda(target):
            return None
        if tracker is not None:
            raise UsageError("A tracker is for rpc: targets; a CUDA target is none.")
        if threads is not None:
            raise UsageError(
                "--threads is for CPUs: a kernel gets all multiprocessors of a GPU.",
                hint="Leave out --threads.",
            )
        numbered = _NUMBERED.fullmatch(target.strip())
        if numbered:
            return placement_on(_card_here(int(numbered[1] or 0)))
        described = gpu_target(parse_gpu(target))
        try:
            cards = nvidia.find_cards()
            return placement_on(cards[nvidia.number_of(cards, described)])
        except TargetError:
            return _placed(described, ELSEWHERE, "described")

    def rows(self, threads: int | None) -> Sequence[TargetRow]:
        try:
            cards = nvidia.find_cards()
        except TargetError as error:
            return (TargetRow(name=_NAME, usable=False, detail=error.message),)
        if not cards:
            return (TargetRow(name=_NAME, usable=False, detail=nvidia.NO_GPU),)
        models = [card.model for card in cards]
        return tuple(
            _row(card, _named(number, models.index(card.model), card))
            for number, card in enumerate(cards)
        )

    def refusal(self, placement: Placement) -> None:
        """None: the target was made here, of what is known of GPUs."""

    def measurer(
        self, placement: Placement, *, seed: int, energy: KernelEnergy | None = None
    ) -> base.Measurer:
        missing = compilers.missing_compiler()
        if missing:
            raise TargetError(f"kernels for GPUs cannot be compiled: {missing}")
        return CudaMeasurer(placement, seed=seed, energy=energy)

    def networks(self, placement: Placement) -> NetworkRunner:
        return CudaNetworks(placement)


def cannot_run(target: Target) -> TargetError:
    """The error for a GPU that is not here: what is missing."""
    try:
        cards = nvidia.find_cards()
        nvidia.number_of(cards, target)
    except TargetError as error:
        return TargetError(
            f"kernels for the {target.model} cannot run on this machine: {error.message}",
            hint=error.hint
            or "They can be looked at: `tilewright show op:... --cuda --target ...`.",
        )
    return TargetError(f"the {target.model} came while nobody looked", hint="Try again.")


def busy(placement: Placement) -> str:
    """What should be known of a GPU before anything of ours runs there: that something else does.
    Empty where nothing is known."""
    card = card_of(placement)
    share = busy_share(card.identity) if card else None
    if card is None or share is None or share < _BUSY_SHARE:
        return ""
    return (
        f"Another process uses the {card.name} ({share:.0%} of the time just now); times may be "
        "too long."
    )


def card_of(placement: Placement) -> Card | None:
    """The card that a placement is on; None where that is no card in this machine."""
    with suppress(TargetError):
        cards = {card.instance: card for card in nvidia.find_cards()}
        return cards.get(placement.device.instance)
    return None


def control_rows() -> tuple[ControlRow, ...]:
    """What can be set on the GPUs here, and whether this process may; without one, why not."""
    try:
        cards, missing = nvidia.find_cards(), nvidia.NO_GPU
    except TargetError as error:
        cards, missing = (), error.message
    return gpu_control_rows(cards, missing)


def _card_here(number: int) -> Card:
    """The card of a number in the driver's order; `cuda` alone means the first one."""
    try:
        cards = nvidia.find_cards()
        if not cards:
            raise TargetError(nvidia.NO_GPU)
    except TargetError as error:
        described = f"A GPU that is not here can be described: --target {_EXAMPLE}."
        hint = " ".join(filter(None, (error.hint, described)))
        raise TargetError(error.message, hint=hint) from None
    if number >= len(cards):
        here = ", ".join(f"{each}: {card.name}" for each, card in enumerate(cards))
        raise TargetError(f"there is no GPU {number} in this machine, but {here}")
    nvidia.check_age(cards[number])
    return cards[number]


def placement_on(card: Card) -> Placement:
    """All of a card that is here."""
    return _placed(card_target(card), card.instance, _NAME)


def _placed(target: Target, instance: str, access: str) -> Placement:
    return Placement(
        device=Device(class_key=class_key(target), instance=instance, target=target, access=access),
        resources=threads_alone(target.cores),
        binding=Binding(cpus=allotted_cpus()),
    )


def _named(number: int, first: int, card: Card) -> str:
    """How a person names a card whose model's first one has the number `first`."""
    if not number:
        return _NAME
    return f"cuda -model={card.model}" if number == first else f"cuda -card={number}"


def _row(card: Card, name: str) -> TargetRow:
    size = f"{card.multiprocessors} multiprocessors, {format_bytes(card.memory_bytes)}"
    try:
        nvidia.check_age(card)
        target = card_target(card)
    except TargetError as error:
        return TargetRow(name=name, usable=False, detail=f"{card.name}: {error.message}")
    return TargetRow(
        name=name, usable=True, detail=f"{card.name}: {card.arch}, {size}", target=target.tvm
    )


CUDA = _Cuda()
