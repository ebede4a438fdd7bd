"""Whether requests that run together are answered as each alone is.

    a b c d  →  A B C D     and with other requests beside a and c,
    a x c y  →  A · C ·     the same A and C, bit for bit

That padding changes nothing, as `optimize` tries, does not say so: zeros add nothing to a sum over
all rows. One request would have part of another one's in its answer then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from tilewright.core.errors import TargetError, first_line
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.graph.network import Array
from tilewright.hardware.probe import allotted_cpus, default_threads
from tilewright.measure.checking import compare_outputs
from tilewright.measure.networks import network_error
from tilewright.serving.batches import run_message
from tilewright.serving.layouts import placed
from tilewright.serving.served import ServedNetwork
from tilewright.serving.slots import SharedSlots

_LIMIT_S = 300.0
_Results = list[list[Array]]
"""The outputs of each request."""
_Run = Callable[[int, Sequence[int]], _Results]
"""Runs requests, by their slots, in a batch of a size."""


def dependence(network: ServedNetwork, worker: str) -> str:
    """Why requests for a network must not run together, empty where drawn ones may: in each size
    the same results whatever lies beside them, bit for bit, and those of each alone as far as sizes
    may differ.

    `worker` is the module of instances. Raises what the start of an instance raises.
    """
    most, plan = network.batches.sizes[-1], network.plan
    (cpus,) = placed((default_threads(),), allotted_cpus())
    slots = SharedSlots.create(2 * most, plan.size_bytes)
    places = [place for place in plan.outputs if place is not None]
    with Child(worker, cpus=cpus, inherited=(slots.descriptor,)) as child:

        def run(size: int, chosen: Sequence[int]) -> _Results:
            child.request_again(run_message(network.name, size, chosen), _LIMIT_S)
            return [[slots.view(slot, place).copy() for place in places] for slot in chosen]

        try:
            child.request(("prepare", slots.descriptor, *slots.shape, cpus), _LIMIT_S)
            child.request_again(network.to_load.message, _LIMIT_S)
            for slot in range(2 * most):
                slots.write(slot, plan, network.drawn_inputs(slot))
            return _fault(network, run)
        except RemoteError as error:
            raise network_error(error, "the trial of batches") from error
        except ChildError as error:
            raise TargetError(f"batches cannot be tried: {first_line(error)}") from error
        finally:
            slots.close()


def _fault(network: ServedNetwork, run: _Run) -> str:
    most = network.batches.sizes[-1]
    alone = [run(1, (slot,))[0] for slot in range(most)]
    for size in network.batches.sizes[1:]:
        together = run(size, range(size))
        if any(not _is_close(network, *each) for each in zip(together, alone, strict=False)):
            return f"because results in a batch of {size} are not those of each alone"
        # of any two places, one is kept once while the other one has another request
        for bit, kept in product(range((size - 1).bit_length()), (0, 1)):
            stays = [(place >> bit) % 2 == kept for place in range(size)]
            chosen = [place if stay else place + most for place, stay in enumerate(stays)]
            found = zip(together, run(size, chosen), stays, strict=True)
            if not all(_is_same(before, now) for before, now, stay in found if stay):
                return f"because results in a batch of {size} depend on its other rows"
    return ""


def _is_same(before: Sequence[Array], now: Sequence[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(before, now, strict=True))


def _is_close(network: ServedNetwork, together: Sequence[Array], alone: Sequence[Array]) -> bool:
    """Whole numbers may be the places of values that are nearly equal, and are left out."""
    pairs = [
        (a, b)
        for a, b in zip(together, alone, strict=True)
        if not np.issubdtype(b.dtype, np.integer)
    ]
    names = tuple(map(str, range(len(pairs))))
    error = compare_outputs([a for a, _ in pairs], [b for _, b in pairs], names).max_rel_error
    return error <= network.batches.max_error
