"""Links of devices behind a tracker: from copies into what plans count with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.core.errors import ModelError, StoreError, TargetError
from tilewright.core.events import Event, Note, Stage, discard
from tilewright.core.links import Way
from tilewright.core.processes import ChildTimeout, RemoteError
from tilewright.core.records import Placement
from tilewright.core.targets import threads_alone
from tilewright.hardware.device import local_instance
from tilewright.measure import links
from tilewright.measure.base import BoardLost
from tilewright.measure.links import LIMIT_S, copies_behind_tracker, keep_links, ways_of
from tilewright.store import open_store
from tilewright.store.base import Store
from tilewright.store.known_links import keep_link, known_link

PI = altered(PLACEMENT, access="rpc", instance="rpc:pi/10.0.0.1:9190")
COPIES = [(4, 3e-3, 1e-3), (1004, 8e-3, 3e-3), (4, 1e-3, 2e-3), (1004, 6e-3, 4e-3), (4, 2e-3, 9.0)]
"""A little tensor there takes 2 ms, back 2 ms; 1000 bytes more 5 and 1.5 ms more."""
THERE, BACK = Way(latency_s=2e-3, bytes_per_s=2e5), Way(latency_s=2e-3, bytes_per_s=1000 / 1.5e-3)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as opened:
        yield opened


def known(store: Store, placement: Placement = PI, machine: str | None = None) -> Any:
    return known_link(store, "rpc:pi", placement, machine or local_instance())


def test_ways_are_medians_of_little_copies_and_what_more_bytes_add() -> None:
    there, back = ways_of("rpc:pi", COPIES)
    assert (there.latency_s, back.latency_s) == (THERE.latency_s, BACK.latency_s)
    assert there.bytes_per_s == pytest.approx(THERE.bytes_per_s)
    assert back.bytes_per_s == pytest.approx(BACK.bytes_per_s)


@pytest.mark.parametrize("large", [(64, 1e-3, 5e-3), (64, 5e-3, 0.0), (64, nan, 5e-3)])
def test_what_gives_no_way_is_no_link(large: tuple[int, float, float]) -> None:
    with pytest.raises(TargetError, match="'rpc:pi' cannot be measured: 4 bytes took 0.001 s, and"):
        ways_of("rpc:pi", [(4, 1e-3, 1e-3), large])


def test_it_is_kept_by_day_device_and_machine_for_any_number_of_threads(store: Store) -> None:
    told: list[Event] = []
    assert known(store) is None
    keep_links(store, {"rpc:pi": PI}, told.append, copies=lambda _: COPIES)
    assert told == [Stage(name="measure the link to", detail="rpc:pi")]
    found = known(store)
    assert (found.there, found.back) == ways_of("rpc:pi", COPIES)
    assert (found.device, found.link_is, found.of) == ("rpc:pi", "measured", PI.device.instance)
    assert found.machine == local_instance() and len(found.day) == len("2026-11-29")
    assert known(store, replace(PI, resources=threads_alone(1))) == found
    assert known(store, machine="other") is None, "another machine's link"
    assert known(store, altered(PI, instance="rpc:pi/10.0.0.2:9190")) is None, "another tracker's"
    slower = [(size, 10 * there, 10 * back) for size, there, back in COPIES]
    keep_links(store, {"rpc:pi": PI}, discard, copies=lambda _: slower)
    assert known(store).there.latency_s == 2e-2, "the newest does not count"
    assert PI.device in store.devices()


def lost(_placement: Placement) -> links.Copies:
    raise TargetError("the device was lost: broken pipe")


def test_a_link_that_is_lost_leaves_what_was_known(store: Store) -> None:
    told: list[Event] = []

    def note() -> str:
        keep_links(store, {"rpc:pi": PI}, told.append, copies=lost)
        (said,) = (event.message for event in told if isinstance(event, Note))
        told.clear()
        return said

    lacking = "No tensor goes there from another device; --link rpc:pi=TIME,SIZE says what it takes"
    assert note() == f"the device was lost: broken pipe. {lacking}."
    assert known(store) is None
    keep_link(store, PI, local_instance(), THERE, BACK)
    day = known(store).day
    assert note().endswith(f"The plan counts with what was measured on {day}.")
    assert (known(store).there, known(store).back) == (THERE, BACK)
    with pytest.raises(TargetError, match="was lost: broken pipe"):
        keep_links(store, {"rpc:pi": PI}, discard, needed=True, copies=lost)


def test_nothing_is_measured_for_a_database_that_cannot_be_written(
    tmp_path: Path,
) -> None:
    open_store(tmp_path / "rows.db").close()
    store = open_store(tmp_path / "rows.db", readonly=True)
    told: list[Event] = []
    keep_links(store, {"rpc:pi": PI}, told.append, copies=lost)
    (note,) = told
    assert isinstance(note, Note) and "the database cannot be written. No tensor" in note.message
    with pytest.raises(StoreError, match="the database cannot be written"):
        keep_links(store, {"rpc:pi": PI}, discard, needed=True, copies=lost)
    store.close()


@pytest.mark.parametrize("broken", [{"latency_s": v} for v in (0.0, -1e-6, inf, nan, 1e3)])
def test_what_is_no_way_is_not_kept(store: Store, broken: dict[str, float]) -> None:
    for there, back in ((replace(THERE, **broken), BACK), (THERE, replace(BACK, bytes_per_s=0.0))):
        assert not keep_link(store, PI, local_instance(), there, back)
    assert store.placements() == []


@pytest.mark.parametrize(
    ("number", "value"),
    [("there_latency_s", -1.0), ("back_bytes_per_s", 0.0), ("since_1970_s", 1e13)],
)
def test_a_broken_value_is_refused(store: Store, number: str, value: float) -> None:
    keep_link(store, PI, local_instance(), THERE, BACK)
    key = replace(PI, resources=threads_alone(PI.target.cores)).key
    store.add_peak(key, f"link {local_instance()} {PI.device.instance} {number}", value)
    with pytest.raises(ModelError, match="of the link to 'rpc:pi' .* which cannot be"):
        known(store)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (BoardLost("Socket\nbroken pipe"), "broken pipe"),
        (ChildTimeout("no answer within 75 s"), "no answer within 75 s"),
        (RemoteError("RPCError", "no room:\nno space left", "trace"), "no space left"),
    ],
)
def test_a_device_that_dies_between_copies(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, reason: str
) -> None:
    asked: list[Any] = []

    class Board:
        def __init__(self, tracker: object, key: str, *, session_s: float) -> None:
            asked.append((str(tracker), key))
            assert session_s > LIMIT_S

        def __enter__(self) -> Board:
            return self

        def __exit__(self, *_: object) -> None:
            asked.append("stopped")

        def connect_for(self, placement: Placement, told: None, wait_s: float) -> None:
            asked.append(placement is PI and told is None and wait_s > 0)

        def request(self, message: tuple[str, ...], limit_s: float) -> None:
            asked.append((message, limit_s))
            raise failure

        def disconnect(self) -> None:
            asked.append("given back")

    monkeypatch.setattr(links, "Board", Board)
    with pytest.raises(TargetError) as found:
        copies_behind_tracker(PI)
    told = f"the link to {PI.device.instance} cannot be measured: {reason}"
    assert found.value.message == told
    assert found.value.exit_code == 3 and "--link DEVICE=TIME,SIZE" in (found.value.hint or "")
    address = ("10.0.0.1:9190", "pi")
    assert asked == [address, True, (("copies",), LIMIT_S), "given back", "stopped"]
