"""A plan of one network on this CPU, served: an instance with all of the plan's cores runs its
lanes in one process. Where they crash or hang while they are compared with one call after the
other, that is what is served.

    server = plan_instance(read_plan("plan"), store, "auto", options)
    server.choice         Computed as planned, in one process; in turn: as planned 3.1 ms, …
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

from tilewright.core.errors import TilewrightError, first_line
from tilewright.core.events import Note, Stage
from tilewright.core.schedules import RunMode
from tilewright.core.scratch import PrivateFolder, scratch_folder
from tilewright.core.units import format_seconds
from tilewright.deploy.planned_network import PlannedWays, planned_ways, times_in_turn
from tilewright.deploy.ports import input_ports, output_ports
from tilewright.measure.networks import ToCompile, compile_all
from tilewright.measure.targeting import open_networks
from tilewright.plan.scheduling.plan_file import Plan
from tilewright.serving.crew import Instances
from tilewright.serving.layouts import Layout
from tilewright.serving.served import ServedNetwork
from tilewright.serving.server import Server, ServerOptions
from tilewright.store.base import Store

_PLANNED, _SEQUENTIAL = "parallel", "sequential"
_TOLD = {_PLANNED: "as planned", _SEQUENTIAL: "one call after the other"}


class PlanInstance(Instances):
    """One instance, of a plan: nothing else is there that it could be compared with. What it loads
    lies in `folder`, which is removed at the end."""

    def __init__(self, layout: Layout, folder: PrivateFolder) -> None:
        super().__init__(layout)
        self.here = ()
        self._folder = folder

    def stop(self, *, at_once: bool) -> None:
        super().stop(at_once=at_once)
        self._folder.close()


def plan_instance(plan: Plan, store: Store, mode: RunMode, options: ServerOptions) -> Server:
    """A server of the network of a plan: as planned ("parallel"), one call after the other on all
    cores ("sequential"), or what requests take less time in ("auto"), measured in turn in the
    process that computes them; one call after the other where the plan fails there. Raises as
    `planned_ways` and a `Server` do."""
    folder = scratch_folder()
    try:
        options.events(Stage(name="import", detail=plan.networks[0].model))
        ways = planned_ways(plan, store, mode)
        served = _compiled(ways, plan, folder, options)
        layout = (ways.placement.resources.threads,)
        compared = _compared(served, layout, options) if len(served) > 1 else _Compared()
        times_s = compared.times_s
        best = min(served, key=lambda way: times_s.get(way, 0.0))
        best = _SEQUENTIAL if compared.fault else best
        for way in served.keys() - {best}:
            shutil.rmtree(served[way].folder)
        told = ", ".join(f"{_TOLD[way]} {format_seconds(s)}" for way, s in times_s.items())
        told = f"as planned it failed on trial: {compared.fault}" if compared.fault else told
        told = f"in turn: {told}" if times_s else told
        choice = f"Computed {_TOLD[best]}, in one process{told and f'; {told}'}."
        return Server([served[best]], PlanInstance(layout, folder), options, choice)
    except BaseException:
        folder.close()
        raise


def _compiled(
    ways: PlannedWays, plan: Plan, folder: PrivateFolder, options: ServerOptions
) -> dict[str, ServedNetwork]:
    """The network in each way, compiled into the folder, under the name that it has in the plan."""
    network = ways.network
    waiting = {
        way: ToCompile(plan=planned, constants=ways.constants, folder=folder.path / way)
        for way, planned in ways.plans.items()
    }
    options.events(Stage(name="compile", detail=" and ".join(_TOLD[way] for way in waiting)))
    with open_networks(ways.placement) as runner:
        compile_all([runner], list(waiting.values()))
    return {
        way: ServedNetwork(
            name=plan.networks[0].name,
            inputs=input_ports(network),
            outputs=output_ports(network),
            folder=each.folder,
            constants=tuple(each.plan.constant_names),
        )
        for way, each in waiting.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Seconds of a request in each way, or why they could not be had."""

    times_s: Mapping[str, float] = field(default_factory=dict[str, float])
    fault: str = ""


def _compared(
    served: dict[str, ServedNetwork], layout: Layout, options: ServerOptions
) -> _Compared:
    """Both ways in one process, which may fail once: it is the plan that is on trial."""
    supervision = options.supervision
    once = replace(supervision, retries=0, start_s=supervision.trial_s)
    try:
        times_s = _in_turn(served, layout, replace(options, supervision=once))
    except TilewrightError as error:
        fault = first_line(error)
        options.events(Note(message=f"The plan fails, and is not carried out: {fault}."))
        return _Compared(fault=fault)
    return _Compared(times_s=times_s)


def _in_turn(
    served: dict[str, ServedNetwork], layout: Layout, options: ServerOptions
) -> dict[str, float]:
    """Seconds of a request in each way: medians of rounds in turn, of both in one process."""
    options.events(Stage(name="compare", detail="the plan, and one call after the other"))
    both = [replace(each, name=way) for way, each in served.items()]
    with Server(both, layout, options) as server:
        return times_in_turn({each.name: partial(_timed, server, each) for each in both})


def _timed(server: Server, network: ServedNetwork, repeats: int, warmup: int) -> list[float]:
    """Seconds of requests one after the other, behind some that do not count."""
    names, found = [port.name for port in network.inputs], list[float]()
    inputs = dict(zip(names, network.drawn_inputs(), strict=True))
    for _ in range(warmup + repeats):
        began_s = perf_counter()
        server.submit(network.name, inputs).result()
        found.append(perf_counter() - began_s)
    return found[warmup:]
