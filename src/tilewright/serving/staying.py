"""What of a part's tensors stays on a GPU, and what is copied between it and this machine's memory.

stem  on the CPU            stem is copied to the GPU, for left
left  on the GPU            left stays there, for right, and nobody else reads it
right on the GPU, after what the CPU makes of stem           right is copied back, for the head
head  on the CPU
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilewright.deploy.compiled_parts import CompiledPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """The tensors of a part, by their names: its `inputs` and `outputs`; those that other parts on
    the same device read, too, which are `kept` there; inputs that are `only_here`, made there and
    in no other memory; and outputs that are `sent` to this machine's memory, where somebody else
    reads them."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kept: frozenset[str]
    only_here: frozenset[str]
    sent: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A tensor that was copied between this machine's memory and a device's, from when to when on
    the monotonic clock."""

    tensor: str
    to_device: bool
    begin_s: float
    end_s: float


def staying(parts: Sequence[CompiledPart], number: int, wanted: Collection[str]) -> Stays:
    """What stays of a part's tensors, by its number among those of its network; `wanted` are the
    network's outputs."""
    part = parts[number]
    beside = [each for n, each in enumerate(parts) if each.place == part.place and n != number]
    read_here = {tensor for each in beside for tensor in each.inputs}
    elsewhere = {t for each in parts if each.place != part.place for t in each.inputs}
    sent = elsewhere | set(wanted)
    made_here = {tensor for each in beside for tensor in each.outputs}
    return Stays(
        inputs=part.inputs,
        outputs=part.outputs,
        kept=frozenset(read_here.intersection((*part.inputs, *part.outputs))),
        only_here=frozenset(part.inputs) & made_here - sent,
        sent=frozenset(part.outputs) & sent,
    )
