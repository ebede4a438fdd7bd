"""What networks take beside each other; fields of the JSON contract."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBeside:
    """A call of the network in its place: seconds alone, and while something ran beside."""

    name: str
    alone_s: float
    beside_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideResult:
    """What a network and its `partner`, which ran on `threads` other cores meanwhile, take alone
    and beside each other; medians of rounds in turn.

    Slowdowns are how many times as long either takes beside the other; `spread` is by how much
    those of the rounds differ at most. `joint_gain` is how many times as much both get done in a
    second as one after the other on these same cores: the sum of the speeds that are left to them.
    """

    partner: str
    threads: int
    alone_s: float
    beside_s: float
    slowdown: float
    partner_alone_s: float
    partner_beside_s: float
    partner_slowdown: float
    spread: float
    joint_gain: float
    calls: tuple[CallBeside, ...] = ()
