"""The link between this machine and a device behind a tracker, measured and kept.

keep_links(store, {"rpc:pi": placement}, events)     310 µs and 11.8 MB/s there
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from tilewright.core.errors import StoreError, TargetError, first_line, last_line
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.links import Way
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.hardware.device import local_instance
from tilewright.hardware.remote import remote_place
from tilewright.measure.boards import Board, Tracker
from tilewright.measure.remote import BUSY_WAIT_S
from tilewright.store.base import Store
from tilewright.store.known_links import is_way, keep_link, known_link

LIMIT_S = 75.0
"""A link of which copies take longer counts as one that cannot be measured."""
_SESSION_S = 90.0
Copies = Sequence[tuple[int, float, float]]
"""Of each copy the bytes, and the seconds of the way there and back."""


def keep_links(
    store: Store,
    placements: Mapping[str, Placement],
    events: EventSink,
    *,
    needed: bool = False,
    copies: Callable[[Placement], Copies] | None = None,
) -> None:
    """Measure the links of devices behind trackers, by name, and keep them in a store. A note says
    which could not be measured, and what plans count with instead; where they are `needed`
    TargetError is raised instead, StoreError for a store that cannot be written. `copies` are made
    by default to a device that the tracker hands out."""
    for name, placement in placements.items():
        try:
            if store.readonly:
                raise StoreError(
                    f"the link to {name!r} is not measured: the database cannot be written",
                    hint="--db names another one.",
                )
            events(Stage(name="measure the link to", detail=name))
            there, back = ways_of(name, (copies or copies_behind_tracker)(placement))
            keep_link(store, placement, local_instance(), there, back)
        except (TargetError, StoreError) as error:
            if needed:
                raise
            events(Note(message=f"{first_line(error)}. {_instead(store, name, placement)}"))


def _instead(store: Store, name: str, placement: Placement) -> str:
    """What a plan counts with where a link could not be measured."""
    known = known_link(store, name, placement, local_instance())
    if known is not None:
        return f"The plan counts with what was measured on {known.day}."
    return f"No tensor goes there from another device; --link {name}=TIME,SIZE says what it takes."


def ways_of(name: str, copies: Copies) -> tuple[Way, Way]:
    """The ways to a device and back, from copies of tensors of two sizes, by their medians: a
    latency is what the smaller ones take, and the others take longer by their bytes. Raises
    TargetError where that gives no way."""
    little, large = min(copies)[0], max(copies)[0]
    found: list[Way] = []
    for direction in (1, 2):
        short_s, long_s = (
            median(copy[direction] for copy in copies if copy[0] == size)
            for size in (little, large)
        )
        more_s = long_s - short_s
        way = Way(latency_s=short_s, bytes_per_s=(large - little) / more_s if more_s > 0 else 0.0)
        if not is_way(way):
            raise TargetError(
                f"the link to {name!r} cannot be measured: {little} bytes took {short_s:g} s, and "
                f"{large} bytes {long_s:g} s",
                hint="Measure again, or say what it takes: --link DEVICE=TIME,SIZE.",
            )
        found.append(way)
    there, back = found
    return there, back


def copies_behind_tracker(placement: Placement) -> Copies:
    """Copies to a device of a tracker's key and back. Raises TargetError where none can be had, or
    it is lost meanwhile."""
    key, host, port = remote_place(placement.device)
    with Board(Tracker(host, port), key, session_s=_SESSION_S) as board:
        board.connect_for(placement, None, BUSY_WAIT_S)
        try:
            return board.request(("copies",), LIMIT_S)
        except (ChildError, RemoteError) as error:
            raise TargetError(
                f"the link to {placement.device.instance} cannot be measured: {last_line(error)}",
                hint="Does its server still run? --link DEVICE=TIME,SIZE says what the link takes.",
            ) from error
        finally:
            board.disconnect()
