"""A network optimized over RPC on loopback against the same optimized on this machine directly.

    python benchmarks/remote_networks.py [--model zoo:resnet18] [--budget 5m] [--rounds 9]

It starts a tracker and TVM's own server on this machine, optimizes the network for that board and
for this machine with the same budget, each from an empty database, and compares three networks, in
turn: what was made for the board, run there and timed by its clock; the same, run here; what was
made for this machine, run here. Prints a table, the ratio of the first to the third with its
interval, and whether outputs agree. Ends with 1 where they do not, or the board takes more than 5 %
longer. Leave the machine alone meanwhile: it is the board, too. With `--out` what was made is kept,
and the next time only compared again.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tilewright
from tilewright.core.errors import TargetError
from tilewright.core.records import Placement
from tilewright.core.timings import Timing
from tilewright.deploy.opening import OpenedArtifact, open_artifact
from tilewright.graph.inputs import random_inputs
from tilewright.measure.boards import Tracker
from tilewright.measure.network_timing import Rounds, Runner, network_runner, time_together
from tilewright.measure.targeting import open_networks, placement_of

KEY, MOST_LONGER, ALLOWED = "loopback", 1.05, 1e-4
_REST_S = 0.5
THERE, BOTH, HERE = "made for the board, run there", "the same, run here", "made here, run here"


@contextmanager
def running(module: str, *words: str, **more: str) -> Generator[None]:
    """A module of TVM's as a program, killed at the end with all that it started."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--host", "127.0.0.1", *words],
        env={**os.environ, **more},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def board(port: int, threads: int, server: str) -> Generator[str]:
    """A tracker with one server of that many threads; the tracker's address."""
    ports = ("--port", str(port), "--port-end", str(port + 1))
    own = ("--port", str(port + 100), "--port-end", str(port + 200), "--silent")
    address = f"127.0.0.1:{port}"
    with (
        running("tvm.exec.rpc_tracker", *ports),
        running(server, *own, "--tracker", address, "--key", KEY, TVM_NUM_THREADS=str(threads)),
    ):
        deadline_s = time.monotonic() + 60.0
        while True:
            try:
                Tracker(host="127.0.0.1", port=port).servers(KEY)
                break
            except TargetError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)
        yield address


def optimized(model: str, budget: str, folder: Path, **where: str | None) -> OpenedArtifact:
    """The artifact of a network for a target, from an empty database."""
    with tilewright.open(db=folder.with_suffix(".db"), **where) as session:
        session.optimize(model, budget=budget, out=folder)
    return open_artifact(folder)


def with_rest(runner: Runner) -> Runner:
    """The same, and then time for the server's threads to fall asleep: they spin after a run, here
    on the cores that are timed next, and nobody tells when they are done."""

    def timed(repeats: int, warmup: int) -> Sequence[float]:
        samples_s = runner(repeats, warmup)
        time.sleep(_REST_S)
        return samples_s

    return timed


def compared(
    there: tuple[Placement, OpenedArtifact], here: tuple[Placement, OpenedArtifact], rounds: int
) -> tuple[dict[str, Timing], bool, float]:
    """Times in turn; whether the board and this machine compute the very same from one artifact;
    the largest difference between the two artifacts' outputs, relative to the largest value."""
    network = there[1].network(there[0])
    given = random_inputs(network.model.graph, 0)
    inputs = [given[name] for name in network.graph.inputs]
    with ExitStack() as stack:
        runners: dict[str, Runner] = {}
        outputs: dict[str, list[np.ndarray]] = {}
        for label, placement, artifact in (
            (THERE, *there),
            (BOTH, here[0], there[1]),
            (HERE, *here),
        ):
            networks = stack.enter_context(open_networks(placement))
            networks.load(label, artifact.folder, artifact.manifest.constants)
            outputs[label] = networks.run(label, inputs)
            runner = network_runner(networks, label, inputs)
            runners[label] = with_rest(runner) if label == THERE else runner
        timings = time_together(runners, Rounds(count=rounds))
    same = all(map(np.array_equal, outputs[THERE], outputs[BOTH]))
    apart = max(
        float(np.abs(one - other).max() / np.abs(other).max())
        for one, other in zip(outputs[THERE], outputs[HERE], strict=True)
    )
    return timings, same, apart


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table, the ratio, and whether outputs agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="zoo:resnet18")
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--port", type=int, default=21_900, help="where the tracker listens")
    parser.add_argument("--server", default="tvm.exec.rpc_server", help="the module that serves")
    parser.add_argument("--out", type=Path, help="where artifacts and databases are kept")
    options = parser.parse_args(arguments)
    here = placement_of("llvm", None, None)
    with (
        TemporaryDirectory() as scratch,
        board(options.port, here.resources.threads, options.server) as tracker,
    ):
        folder: Path = options.out or Path(scratch)
        target = f"rpc:{KEY}"
        far = optimized(
            options.model, options.budget, folder / "board", target=target, tracker=tracker
        )
        near = optimized(options.model, options.budget, folder / "here")
        there = placement_of(target, tracker, None)
        timings, same, apart = compared((there, far), (here, near), options.rounds)
    print("| network | time | rounds varied by |\n|---|---|---|")
    for label, timing in timings.items():
        print(f"| {label} | {1e3 * timing.latency_s:.3f} ms | {timing.variation:.1%} |")
    for other in (BOTH, HERE):
        ratio = timings[other].speedup_over(timings[THERE])
        bounds = f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio.low and ratio.high else "?"
        print(f"{THERE} / {other}: {ratio.value:.3f} ({bounds})")
    print(f"one artifact there and here: outputs {'equal' if same else 'DIFFER'}")
    print(f"the two artifacts: outputs within {apart:.1e} of the largest value")
    longer = timings[HERE].speedup_over(timings[THERE]).value > MOST_LONGER
    return int(longer or not same or apart > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
