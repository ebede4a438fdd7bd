"""ONNX Runtime as the reference of a race: its results from this machine, its time from the device.

Where networks run on another machine, results are still compared with those that this one computes;
the reference is timed on that device only where it has peers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from tilewright.core import errors, records
from tilewright.graph.network import Array
from tilewright.hardware.device import local_placement
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.peers.base import Peer, Tensors, make_peer

REFERENCE = "onnxruntime"


@runtime_checkable
class PeersBeside(Protocol):
    """What runs networks on another machine, and knows of peers there."""

    def peer(self, name: str) -> Peer:
        """A peer on that machine, not started."""
        ...


def peer_beside(runner: NetworkRunner, name: str) -> Peer:
    """A peer, not started, on the machine where networks run."""
    return runner.peer(name) if isinstance(runner, PeersBeside) else make_peer(name)


def checking_placement(runner: NetworkRunner, placement: records.Placement) -> records.Placement:
    """Where a peer computes what results are compared with: on this machine."""
    return local_placement() if isinstance(runner, PeersBeside) else placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the reference computes of each of the inputs, and the started peer that can be timed
    beside networks; None, and why, where there is none."""

    expected: Sequence[Tensors]
    timed: Peer | None
    untimed: str = ""


def open_reference(
    stack: ExitStack,
    own: Peer,
    runner: NetworkRunner,
    placement: records.Placement,
    model: Path,
    inputs: Sequence[Mapping[str, Array]],
) -> Reference:
    """Run the reference on this machine, where it is `own`, and start it where networks run;
    `stack` stops it.

    Raises TargetError where it cannot be used on this machine, EngineRefused for a model that it
    does not run.
    """
    stack.callback(own.stop)
    where = checking_placement(runner, placement)
    own.start(model, where.resources.threads, where.binding.cpus)
    expected = [own.run(each) for each in inputs]
    if not isinstance(runner, PeersBeside):
        return Reference(expected=expected, timed=own)
    own.stop()
    there = runner.peer(REFERENCE)
    reason = there.available()
    if reason is None:
        stack.callback(there.stop)
        try:
            there.start(model, placement.resources.threads, placement.binding.cpus)
        except errors.TargetError as error:
            reason = error.message
    timed = there if reason is None else None
    return Reference(expected=expected, timed=timed, untimed=reason or "")
