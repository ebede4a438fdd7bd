"""Serve networks at full load: with processes killed at random, side by side against one after the
other, with requests put together to batches against one by one, and over two devices against one.

    python benchmarks/serving.py soak --seconds 600
    python benchmarks/serving.py soak --batches --seconds 600
    python benchmarks/serving.py soak --plan lanes --seconds 600
    python benchmarks/serving.py soak --plan parts --seconds 600
    python benchmarks/serving.py soak --plan networks --seconds 600
    python benchmarks/serving.py pairs --seconds 3 --rounds 5
    python benchmarks/serving.py batches --network zoo:lstm --seconds 1 --rounds 5
    python benchmarks/serving.py devices --seconds 2 --rounds 5

Networks are compiled with default settings into `--artifacts`, once, and plans are made there. The
devices are servers of TVM's on this machine, each on a core of its own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import psutil

import tilewright
from local_devices import devices
from tilewright.core.refusals import RequestFailed
from tilewright.core.schedules import PLAN_FILE
from tilewright.core.serving import Load
from tilewright.hardware.probe import allotted_cpus
from tilewright.plan.network_scheduling import Wanted
from tilewright.serving.load import drive, named_inputs, speedup
from tilewright.serving.server import Server

PAIRS = (
    ("squeezenet1_1", "mobilenet_v2"),
    ("squeezenet1_1", "resnet18"),
    ("mobilenet_v2", "googlenet"),
    ("resnet18", "googlenet"),
)
PLANS = {
    "lanes": (("googlenet",), Wanted(objective="latency"), "stages"),
    "parts": (("squeezenet1_1",), Wanted(objective="throughput"), "chain_dp"),
    "networks": (PAIRS[0], Wanted(objective="throughput"), None),
}
"""What is planned for this CPU, what for, and by whom: lanes in one process, a network in parts
that are processes, and two networks that are one each."""
SIZES = (1, 2, 4, 8)
BATCHED = ("zoo:mlp", "op:dense[m=1,k=2048,n=2048]")
"""Networks that are put together in a soak."""
_INPUTS, _SAME, _FLAT = 8, 1e-5, 1.1
"""How many inputs a network has in a soak; how far results in different batches may be off, of the
largest value; and how much more memory the second half may take than the first."""


def artifacts(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """The compiled networks by name, made where they are missing."""
    for name in names:
        if not (folder / name / "manifest.json").exists():
            with tilewright.open(db="memory:") as session:
                session.optimize(f"zoo:{name}", budget="0").save(folder / name)
    return {name: folder / name for name in names}


def batched_artifact(folder: Path, name: str) -> Path:
    """The network for all batch sizes, made where it is missing."""
    place = folder / f"{name.replace('/', ' ')} {SIZES}"
    if not (place / "shapes.json").exists():
        with tilewright.open(db="memory:") as session:
            grid = tilewright.ShapeGrid(batch=SIZES)
            session.optimize_shapes(name, grid, budget="0", out=place)
    return place


def planned(folder: Path, kind: str) -> Path:
    """A plan of one of the `PLANS`, made where it is missing."""
    place, (names, wanted, planner) = folder / f"plan {kind}", PLANS[kind]
    if not (place / PLAN_FILE).exists():
        with tilewright.open(db="memory:") as session:
            models = [f"zoo:{name}" for name in names]
            session.plan(models, ["llvm"], wanted=wanted, planner=planner, out=place)
    return place


class Soak:
    """Clients that count what becomes of every request, and somebody who kills processes, of a
    `plan` none that is just being started, and the next one when something was answered again: a
    device that does not start three times in a row is planned without, and there is no other; a
    request that ends three processes is not tried again.

    Each network has several inputs, so that an answer to another request is seen. Results are the
    same bits as before the kills, but for those of batches of other sizes, and of plans that are
    made anew for a device that became slow.
    """

    def __init__(self, server: Server, seconds: float, *, plan: bool = False) -> None:
        self.server, self.plan = server, plan
        self.inputs = {
            name: [named_inputs(each, seed) for seed in range(_INPUTS)]
            for name, each in server.networks.items()
        }
        self.expected = {
            name: [server.submit(name, each).result() for each in given]
            for name, given in self.inputs.items()
        }
        self.end_s = time.monotonic() + seconds
        self.fates: Counter[str] = Counter()
        self.kills, self.lock = 0, threading.Lock()

    def is_right(self, found: object, expected: object) -> bool:
        """Whether an answer, of one output or of several, is what it should be."""
        if isinstance(found, dict) and isinstance(expected, dict):
            return all(self.is_right(found[name], expected[name]) for name in expected)
        one, other = np.asarray(found), np.asarray(expected)
        if self.server.largest_batch == 1 and not self.plan:
            return np.array_equal(one, other)
        return np.allclose(one, other, rtol=0.0, atol=_SAME * np.abs(other).max())

    def client(self, seed: int) -> None:
        """Requests one after the other, each with a callback that counts its answers."""
        chance = random.Random(seed)
        while time.monotonic() < self.end_s:
            name, number = chance.choice(list(self.inputs)), chance.randrange(_INPUTS)
            answers, heard = list[int](), threading.Event()

            def hear(
                _: object, answers: list[int] = answers, heard: threading.Event = heard
            ) -> None:
                answers.append(1)
                heard.set()

            future = self.server.submit(name, self.inputs[name][number], timeout_s=None)
            future.add_done_callback(hear)
            try:
                right = self.is_right(future.result(600), self.expected[name][number])
                fate = "right" if right else "WRONG"
            except RequestFailed:
                fate = "ended three instances"
            except Exception as error:  # noqa: BLE001 - counted, whatever it is
                fate = f"LOST ({type(error).__name__})"
            heard.wait(60)  # who waits for a result has it before others are called
            with self.lock:
                self.fates[fate] += 1
                self.fates["answers"] += len(answers)
                self.fates["not answered once"] += len(answers) != 1

    def kill(self) -> None:
        """Kill or stop a process every 0.5 to 4 seconds."""
        chance = random.Random(1)
        while time.monotonic() < self.end_s:
            time.sleep(chance.uniform(0.5, 4.0))
            told = self.server.statistics().instances
            pids = self.ready() if self.plan else [each.pid for each in told if each.pid]
            if pids:
                sign = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
                wanted = self.answered() + len(pids) + 1
                os.kill(chance.choice(pids), sign)
                self.kills += 1
                while self.plan and self.answered() < wanted and time.monotonic() < self.end_s:
                    time.sleep(0.05)

    def answered(self) -> int:
        """How many requests have been."""
        return sum(each.answered for each in self.server.statistics().networks)

    def memory(self) -> tuple[list[int], list[int]]:
        """Resident bytes of this process every ten seconds, and the most that a worker had which
        was ready until the next time, where one was: they live for seconds, and are small while
        they start."""
        here: list[int] = []
        workers: list[int] = []
        while self.end_s > time.monotonic():
            here.append(psutil.Process().memory_info().rss)
            workers.append(0)
            next_s = min(self.end_s, time.monotonic() + 10)
            while time.monotonic() < next_s:
                workers[-1] = max(workers[-1], *map(_resident, self.ready()), 0)
                time.sleep(0.25)
        return here, [size for size in workers if size]

    def ready(self) -> list[int]:
        """The processes that compute, or could."""
        told = self.server.statistics().instances
        return [each.pid for each in told if each.pid and each.state in ("ready", "slow")]


def _resident(pid: int) -> int:
    """Bytes of a process that may just have been killed."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def _grows(what: str, sizes: Sequence[int]) -> bool:
    """Prints the memory, and whether its second half is larger than its first."""
    mebi = [size / 2**20 for size in sizes]
    later = mebi[1:] or mebi or [0.0]
    half = len(later) // 2
    halves = median(later[:half] or later), median(later[half:])
    print(f"memory of {what} in MiB, every 10 s: {', '.join(f'{size:.1f}' for size in mebi)}")
    print(f"median of the halves, without the first: {halves[0]:.1f}, {halves[1]:.1f}")
    return halves[1] > _FLAT * halves[0]


def served(folder: Path, batched: Sequence[str], plan: str | None) -> Server:
    """What a soak is of: a plan, carried out as it says, else networks, in batches where some are
    named."""
    if plan:
        return tilewright.serve(planned(folder, plan), instances="parallel")
    found = {name: batched_artifact(folder, name) for name in batched}
    return tilewright.serve(found or artifacts(folder, PAIRS[0]), instances="2x1")


def soak(folder: Path, seconds: float, batched: Sequence[str], plan: str | None = None) -> bool:
    """Full load, kills at random; prints what became of the requests, and the memory. Whether each
    was answered once and right, and the memory is flat."""
    with served(folder, batched, plan) as server:
        print(server.choice)
        run = Soak(server, seconds, plan=plan is not None)
        clients = 8 * min(4, server.largest_batch)
        threads = [threading.Thread(target=run.client, args=(seed,)) for seed in range(clients)]
        threads.append(threading.Thread(target=run.kill))
        for thread in threads:
            thread.start()
        here, workers = run.memory()
        for thread in threads:
            thread.join()
        told = server.statistics()
    print(f"{seconds:g} s, {run.kills} kills, {dict(run.fates)}")
    for each in told.networks:
        print(each)
    for each in told.instances:
        print(each)
    bad = [each for each, count in run.fates.items() if count and each not in ("right", "answers")]
    for what, sizes in (("the server", here), ("the largest worker", workers)):
        if _grows(what, sizes):
            bad.append(f"memory of {what} that grows")
    print("FAILED: " + ", ".join(bad) if bad else "Each request was answered once, and right.")
    return not bad


def pairs(folder: Path, seconds: float, rounds: int, wanted: Sequence[str]) -> None:
    """Each pair on two instances of one core and on one of two cores, in turn."""
    for pair in [each.split("+") for each in wanted] or PAIRS:
        found = artifacts(folder, pair)
        with (
            tilewright.serve(found, instances="2x1") as shared,
            tilewright.serve(found, instances="sequential") as sequential,
        ):
            loads = [
                [drive(server, seconds, 4) for server in (shared, sequential)]
                for _ in range(rounds)
            ]
            alone = [_alone(server) for server in (shared, sequential)]
        direct = _direct(found, seconds)
        print(_row(pair, loads, alone, direct), flush=True)


def _alone(server: Server) -> float:
    """Seconds that one request for each network takes on an instance, nothing beside it."""
    total_s = 0.0
    for name, network in server.networks.items():
        inputs = named_inputs(network, 0)
        samples_s: list[float] = []
        for _ in range(30):
            began_s = time.perf_counter()
            server.submit(name, inputs).result()
            samples_s.append(time.perf_counter() - began_s)
        total_s += median(samples_s)
    return total_s


def _direct(found: dict[str, Path], seconds: float) -> float:
    """Pairs per second of calls in this process on all cores, without a server."""
    networks = [tilewright.load(folder) for folder in found.values()]
    calls = [
        (network, [np.ones(port.shape, port.dtype) for port in network.input_ports])
        for network in networks
    ]
    for network, inputs in calls * 5:
        network(*inputs)
    began_s = time.perf_counter()
    for count in itertools.count(1):  # noqa: B007
        for network, inputs in calls:
            network(*inputs)
        if time.perf_counter() - began_s > seconds:
            break
    return count / (time.perf_counter() - began_s)


def _row(
    pair: Sequence[str], loads: list[list[Load]], alone: Sequence[float], direct: float
) -> str:
    rates = [
        median(sum(each.throughput_per_s for each in load.networks) / 2 for load in side)
        for side in zip(*loads, strict=True)
    ]
    ratios = sorted(found for two in loads if (found := speedup(*two)) is not None)
    return (
        f"| {' + '.join(pair)} | {rates[0]:.1f} | {rates[1]:.1f} | {direct:.1f} | "
        f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | "
        f"{2 * alone[1] / alone[0]:.2f} |"
    )


def batches(folder: Path, seconds: float, rounds: int, networks: Sequence[str]) -> None:
    """Each network alone on two instances of one core and on one of two cores, with all batch sizes
    and with none, in turn, at 8 and 16 clients."""
    for name in networks:
        place = batched_artifact(folder, name)
        for layout in ("2x1", "1x2"):
            with (
                tilewright.serve({name: place}, instances=layout) as together,
                tilewright.serve({name: place}, instances=layout, batches=1) as alone,
            ):
                for clients in (8, 16):
                    loads = [
                        [drive(server, seconds, clients) for server in (together, alone)]
                        for _ in range(rounds)
                    ]
                    print(_batched_row(name, layout, clients, loads), flush=True)
                told = together.statistics()
                print(told.networks[0].batches, told.instances[0].batches_s, flush=True)


def _batched_row(name: str, layout: str, clients: int, loads: list[list[Load]]) -> str:
    sides = [[load.networks[0] for load in side] for side in zip(*loads, strict=True)]
    rates = [median(each.throughput_per_s for each in side) for side in sides]
    waits = [1e3 * median(each.latency_p50_s or 0.0 for each in side) for side in sides]
    slow = [1e3 * median(each.latency_p99_s or 0.0 for each in side) for side in sides]
    ratios = sorted(found for two in loads if (found := speedup(*two)) is not None)
    return (
        f"| {name} | {layout} | {clients} | {rates[0]:.1f} | {rates[1]:.1f} | "
        f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | "
        f"{waits[0]:.1f} and {waits[1]:.1f} ms | {slow[0]:.1f} and {slow[1]:.1f} ms |"
    )


def over_devices(
    folder: Path, seconds: float, rounds: int, port: int, names: Sequence[str]
) -> None:
    """Each network on one device and on two, and on as many instances here, in turn,
    each time with four clients."""
    first, second, *_ = allotted_cpus()
    keys, cpus = ("one", "two", "two"), (first, first, second)
    with devices(port, keys, cpus) as address:
        for name in names:
            found = artifacts(folder, [name])
            with (
                tilewright.serve(found, devices=["rpc:one"], tracker=address) as one,
                tilewright.serve(found, devices=["rpc:two"] * 2, tracker=address) as two,
                tilewright.serve(found, instances="1x1") as here,
                tilewright.serve(found, instances="2x1") as both,
            ):
                servers = (one, two, here, both)
                loads = [[drive(server, seconds, 4) for server in servers] for _ in range(rounds)]
            print(_devices_row(name, loads), flush=True)


def _devices_row(name: str, loads: list[list[Load]]) -> str:
    sides = zip(*loads, strict=True)
    rates = [median(load.networks[0].throughput_per_s for load in side) for side in sides]
    failed = sum(each.failed for load in loads for side in load for each in side.networks)
    gains: list[str] = []
    for first in (0, 2):
        found = [speedup(two[first + 1], two[first]) for two in loads]
        ratios = sorted(ratio for ratio in found if ratio is not None)
        gains.append(f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return (
        f"| {name} | {rates[0]:.1f} | {rates[1]:.1f} | {gains[0]} | {rates[2]:.1f} | "
        f"{rates[3]:.1f} | {gains[1]} | {failed} failed |"
    )


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("soak", "pairs", "batches", "devices"))
    parser.add_argument("--artifacts", type=Path, default=Path("serving-artifacts"))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pair", action="append", default=[], help="a+b; four by default")
    parser.add_argument(
        "--network", action="append", default=[], help="zoo:lstm; of devices resnet18"
    )
    parser.add_argument("--batches", action="store_true", help="a soak of networks in batches")
    parser.add_argument("--plan", choices=tuple(PLANS), help="a soak of a plan")
    parser.add_argument("--port", type=int, default=19190, help="for devices: of their tracker")
    asked = parser.parse_args()
    if any(len(set(each.split("+"))) != 2 for each in asked.pair):
        parser.error("--pair takes two networks, as in squeezenet1_1+resnet18")
    if asked.plan and (asked.batches or asked.network):
        parser.error("--plan has networks of its own: leave out --batches and --network")
    if asked.what == "soak":
        names = asked.network or (BATCHED if asked.batches else ())
        if not soak(asked.artifacts, asked.seconds, names, asked.plan):
            raise SystemExit(1)
    elif asked.what == "devices":
        every = dict.fromkeys(name for pair in PAIRS for name in pair)
        names = asked.network or list(every)
        over_devices(asked.artifacts, asked.seconds, asked.rounds, asked.port, names)
    elif asked.what == "batches":
        batches(asked.artifacts, asked.seconds, asked.rounds, asked.network or ["zoo:lstm"])
    else:
        pairs(asked.artifacts, asked.seconds, asked.rounds, asked.pair)


if __name__ == "__main__":
    main()
