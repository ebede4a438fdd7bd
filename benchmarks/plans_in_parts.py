"""Serve two networks by plans over two devices of one core each, behind a tracker on this machine,
against processes here.

    python benchmarks/plans_in_parts.py [--seconds 2] [--rounds 3]

The devices are servers of TVM's with one thread each; the kernel may move them. Compared, in turn,
under the same closed loop: both networks on two devices as planned for throughput (whole networks
on either device, or parts of them); the same cut in the middle whatever the planner thinks; one
network with a copy on each device; one device alone; one process here of one core and of two, and
two of one core. Prints answers per second, median of the rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import tilewright
from local_devices import devices
from tilewright.plan.network_scheduling import DeviceTerms, Wanted
from tilewright.plan.scheduling.plan_file import Plan, read_plan, write_plan
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.serving.load import drive
from tilewright.serving.serve import plan_server
from tilewright.serving.server import Server
from tilewright.session import Session

NETWORKS = ("squeezenet1_1", "resnet18")
KEYS = ("a", "b", "c")
LINK = DeviceTerms(link=(3e-3, 3e8))
"""About what a call over a session costs here beside its kernels, copies of the arrays counted."""
_CLIENTS = 4


def planned(session: Session, models: Sequence[str], keys: Sequence[str], folder: Path) -> None:
    """Make a plan for the throughput of models on devices, kept in a folder."""
    names = [f"rpc:{key}" for key in keys]
    wanted = Wanted(objective="throughput", terms=dict.fromkeys(names, LINK))
    session.plan([f"zoo:{m}" for m in models], names, wanted=wanted, out=folder, planner="heft")


def cut_in_the_middle(plan: Plan, folder: Path) -> Path:
    """The plan with the first half of each network's work on the first device."""
    problem, calls, done_s = plan.problem, [], dict[str, float]()
    first, second = (device.name for device in problem.devices)
    total_s = {
        name: sum(c.modes[0].latency_s for c in problem.calls if c.network == name)
        for name in {call.network for call in problem.calls}
    }
    for call in problem.calls:
        done_s[call.network] = done_s.get(call.network, 0.0) + call.modes[0].latency_s
        device = first if done_s[call.network] < total_s[call.network] / 2 else second
        modes = tuple(
            mode if mode.device == device else replace(mode, latency_s=1.0, low_s=1.0, high_s=1.0)
            for mode in call.modes
        )
        calls.append(replace(call, task="", modes=modes))
    changed = replace(problem, calls=tuple(calls))
    moved = replace(plan, problem=changed, schedule=schedule_with("heft", changed))
    folder.mkdir()
    write_plan(moved, folder / "schedule.json")
    return folder


def servers(session: Session, folder: Path, stack: ExitStack) -> dict[str, Server]:
    """All that is compared, by what it is called."""

    def served(place: Path) -> Server:
        return stack.enter_context(plan_server(place, session.records, mode="parallel"))

    planned(session, NETWORKS, "ab", folder / "both")
    planned(session, NETWORKS[:1] * 2, "ab", folder / "copies")
    planned(session, NETWORKS, "c", folder / "alone")
    artifacts: dict[str, Path] = {}
    for name in NETWORKS:
        artifacts[name] = folder / name
        with tilewright.open(db="memory:") as own:
            own.optimize(f"zoo:{name}", budget="0").save(artifacts[name])
    found = {
        f"here, {layout}": stack.enter_context(tilewright.serve(artifacts, instances=layout))
        for layout in ("1x1", "1x2", "2x1")
    }
    found["one device"] = served(folder / "alone")
    found["two devices, as planned"] = served(folder / "both")
    return found


def told(title: str, rates: Sequence[float]) -> None:
    print(f"{title}: {median(rates):.1f} answers per second ({min(rates):.1f} to {max(rates):.1f})")


def compare(found: dict[str, Server], seconds: float, rounds: int) -> None:
    """Drive all in turn, and print what they answered."""
    rates: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, server in found.items():
            load = drive(server, seconds, _CLIENTS)
            rates[name].append(sum(each.throughput_per_s for each in load.networks))
    for name, each in rates.items():
        told(name, each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=19190)
    asked = parser.parse_args()
    with TemporaryDirectory() as name, devices(asked.port, KEYS) as address:
        folder = Path(name)
        with tilewright.open(db="memory:", tracker=address) as session:
            with ExitStack() as stack:
                compare(servers(session, folder, stack), asked.seconds, asked.rounds)
            plan = read_plan(folder / "both")
            cut = cut_in_the_middle(plan, folder / "cut")
            with plan_server(cut, session.records, mode="parallel") as server:
                compare({"two devices, each network on both": server}, asked.seconds, asked.rounds)
            with plan_server(folder / "copies", session.records, mode="parallel") as server:
                title = f"two devices, each with a copy of {NETWORKS[0]}"
                compare({title: server}, asked.seconds, asked.rounds)


if __name__ == "__main__":
    main()
