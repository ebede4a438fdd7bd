"""Plans with devices behind a tracker: their links are measured, said, or nothing goes there."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import pytest

import tilewright
from helpers.fakes.placements import altered
from tilewright.core.errors import UsageError
from tilewright.core.links import DeviceLink, Way
from tilewright.core.planning import PlanningData
from tilewright.core.records import Placement
from tilewright.cost.blocks import LAUNCH_S
from tilewright.deploy.planning import Devices, Networks
from tilewright.hardware.device import local_instance, local_placement
from tilewright.hardware.remote import is_behind_tracker
from tilewright.models import ModelOptions
from tilewright.plan.host_links import hosts
from tilewright.plan.imagined_devices import DeviceTable, TableLink, TableRow, with_tables
from tilewright.plan.network_scheduling import (
    DeviceTerms,
    Wanted,
    links_of,
    scheduling_problem,
    way_to_host,
)
from tilewright.plan.planning_data import PlanningRequest, placements_of, planning_data
from tilewright.plan.scheduling import problem_file
from tilewright.plan.scheduling.answering import answer
from tilewright.report.planning import transfers_table
from tilewright.report.schedules import TRANSFERS, summary
from tilewright.store.known_links import keep_link

GPU = "cuda -model=H100"
THERE, BACK = Way(latency_s=3e-4, bytes_per_s=1e8), Way(latency_s=1e-4, bytes_per_s=5e7)


def board(name: str) -> Placement:
    """One like this machine, whose times are known."""
    return altered(local_placement(1), access="rpc", instance=f"{name}/10.0.0.1:9190")


@cache
def data(*devices: str, measured: tuple[str, ...] = ()) -> PlanningData:
    usual = [name for name in devices if not is_behind_tracker(name)]
    known = placements_of(usual, None, 1) if usual else {}
    places = {name: known[name] if name in known else board(name) for name in devices}
    request = PlanningRequest(ModelOptions(), "default", 1e-2)
    with tilewright.open(db="memory:") as session:
        for name in measured:
            keep_link(session.records, places[name], local_instance(), THERE, BACK)
        return planning_data("zoo:mlp", places, request, session.records, lambda _: None)


def links(found: PlanningData, **terms: Any) -> dict[tuple[str, str], tuple[float, float, Any]]:
    said = {name.replace("_", ":"): DeviceTerms(link=link) for name, link in terms.items()}
    problem = scheduling_problem([found], Wanted(terms=said))
    return {
        (way.origin, way.destination): (way.latency_s, way.bytes_per_s, way.link_is)
        for way in problem.links
    }


def test_both_directions_of_a_measured_link_count() -> None:
    found = data("llvm", "rpc:pi", measured=("rpc:pi",))
    assert links(found) == {
        ("llvm", "rpc:pi"): (3e-4, 1e8, "measured"),
        ("rpc:pi", "llvm"): (1e-4, 5e7, "measured"),
    }
    assert links(found, rpc_pi=(1e-3, 1e6)) == {
        ("llvm", "rpc:pi"): (1e-3, 1e6, None),
        ("rpc:pi", "llvm"): (1e-3, 1e6, None),
    }
    here, there = found.devices
    assert (here.link, here.host_latency_s) == (None, None)
    assert (there.host_latency_s, there.host_bytes_per_s) == (3e-4, 1e8)
    assert [way.source for way in found.transfers] == ["exact", "exact"]
    assert way_to_host(found, "llvm") == (0.0, inf)
    assert way_to_host(found, "rpc:pi", back=True) == (1e-4, 5e7)
    assert [row["link_is"] for row in transfers_table(found).records] == ["measured"] * 2


def test_between_two_devices_both_links_count_or_nothing_is_sent() -> None:
    both = data("rpc:a", "rpc:b", measured=("rpc:a", "rpc:b"))
    latency_s, speed, mark = links(both)["rpc:a", "rpc:b"]
    assert (latency_s, mark) == (pytest.approx(4e-4), "measured")
    assert speed == pytest.approx(1 / (1 / 5e7 + 1 / 1e8), abs=1)
    one = data("rpc:a", "rpc:b", measured=("rpc:a",))
    assert links(one) == {} == links(one, rpc_a=(1e-3, 1e6)), "the other is no host"
    (there, back) = links(one, rpc_b=(1e-3, 1e6)).values()
    assert there[:2] == (pytest.approx(1.1e-3), pytest.approx(1 / (1 / 5e7 + 1e-6)))
    assert back[:2] == (pytest.approx(1.3e-3), pytest.approx(1 / (1 / 1e8 + 1e-6)))


def test_a_board_beside_a_gpu_is_no_host_of_it() -> None:
    assert links(data(GPU, "rpc:pi")) == {}
    found = links(data(GPU, "rpc:pi", measured=("rpc:pi",)))
    assert found[GPU, "rpc:pi"][0] == pytest.approx(LAUNCH_S + 3e-4)
    assert found["rpc:pi", GPU][0] == pytest.approx(LAUNCH_S + 1e-4)
    assert {mark for *_, mark in found.values()} == {"bound"}, "one of both is"


def test_a_table_beside_a_board_goes_over_both_links() -> None:
    rows = (TableRow(family="dense", latency_s=1e-6),)
    table = DeviceTable(format="", rows=rows, link=TableLink(2e-5, 4e9))
    (found,) = with_tables([data("rpc:pi", measured=("rpc:pi",))], {"npu": table})
    ways = links(found)
    assert ways["npu", "rpc:pi"][0] == pytest.approx(2e-5 + 3e-4)
    assert ways["rpc:pi", "npu"] == (
        pytest.approx(1.2e-4),
        pytest.approx(1 / (2.5e-10 + 2e-8)),
        None,
    )


def test_inputs_are_here_whichever_device_is_named_first() -> None:
    found = data("rpc:pi", "llvm", measured=("rpc:pi",))
    assert hosts(found.devices) == ["llvm"]
    problem = scheduling_problem([found], Wanted())
    (given,) = (call for call in problem.calls if call.name.startswith("input "))
    assert [mode.device for mode in given.modes] == ["llvm"]
    assert problem_file.parse_problem(problem_file.format_problem(problem)) == problem


def test_a_plan_tells_what_is_measured_said_and_a_bound() -> None:
    found = data("llvm", "rpc:pi", "rpc:b", GPU, measured=("rpc:pi",))
    wanted = Wanted(terms={"rpc:b": DeviceTerms(link=(1e-3, 1e8))})
    pi, b, card = links_of([found], wanted)
    assert (pi.there, pi.back, pi.link_is) == (THERE, BACK, "measured") and pi.day
    assert (card.device, card.link_is, card.of) == (GPU, "bound", "PCIe 5.0 x16")
    assert b == DeviceLink(device="rpc:b", there=b.back, back=b.there, of="--link")
    result = answer(scheduling_problem([found], wanted), "sequential", 1.0).result
    told = {
        row["name"]: row["shown"] for row in summary(replace(result, links=(pi, b, card))).records
    }
    ways = "300 µs, 100 MB/s there, 100 µs, 50 MB/s back"
    assert told["link rpc:pi"] == f"{ways} (measured from this machine on {pi.day})"
    assert told["link rpc:b"] == "1 ms, 100 MB/s (as --link says)"
    assert told[f"link {GPU}"].endswith("63 GB/s (at least, by PCIe 5.0 x16)")


def test_transfers_of_a_plan_say_what_their_time_is() -> None:
    found = data("llvm", "rpc:pi", measured=("rpc:pi",))
    there = scheduling_problem([found], Wanted())
    calls = tuple(
        replace(call, task="", modes=call.modes[-1:]) if len(call.modes) > 1 else call
        for call in there.calls
    )
    result = answer(replace(there, calls=calls), "heft", 1.0).result
    marks = {way.link_is for way in result.transfers}
    assert len(result.transfers) == 2 and marks == {"measured"}
    assert "measured" in str(TRANSFERS.of(result.transfers).records)


def networks(*names: str, copies: int = 1, **wanted: Any) -> Networks:
    places = {name: board(name) for name in names}
    return Networks(
        models=("zoo:mlp",),
        devices=Devices(placements=places, copies=dict.fromkeys(names, copies)),
        predicted=PlanningRequest(ModelOptions(), "default", 1e-2),
        wanted=Wanted(**wanted),
    )


def test_which_links_are_measured() -> None:
    said = {"rpc:a": DeviceTerms(link=(1e-3, 1e6)), "rpc:b": DeviceTerms(idle_w=1.0)}
    assert list(networks("rpc:a", "rpc:b", terms=said).unsaid_links) == ["rpc:b"]
    assert list(networks("rpc:a", "llvm").unsaid_links) == ["rpc:a"]
    assert networks("rpc:a").unsaid_links == {}, "nothing is sent anywhere"
    assert list(networks("rpc:a", copies=2).unsaid_links) == ["rpc:a"]
    assert list(networks("rpc:a", measured_links=True).unsaid_links) == ["rpc:a"]
    for name in ("llvm", "rpc:a"):
        none = networks(name, terms={"rpc:a": said["rpc:a"]}, measured_links=True)
        with pytest.raises(UsageError, match="--link measured is for devices behind a tracker"):
            _ = none.unsaid_links
