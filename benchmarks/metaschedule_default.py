"""MetaSchedule on one task, in its own default settings.

    python benchmarks/metaschedule_default.py --trials 64 < workload.json

The workload's text, as `tilewright` stores it, is read from standard input or `--workload FILE`.
All ports have plain layouts, as in TVM without tilewright. MetaSchedule builds and times with its
own builder and runner; its best candidate is then timed by our protocol. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Failure, Measurement, Placement, Protocol
from tilewright.graph.workload import Workload, parse_workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.metaschedule import NAME, TRACE
from tilewright.measure.kernels import KernelMeasurer


def _die_with_parent() -> None:
    """For MetaSchedule's workers, which would outlive a killed parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def tune(
    workload: Workload, placement: Placement, trials: int, seed: int
) -> tuple[str | None, int]:
    """The trace of MetaSchedule's best candidate, and how many trials gave a time."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from tilewright.compiler.lower.generic import trace_start
    from tilewright.compiler.metaschedule.search import trace_text

    module = trace_start(
        workload, (PLAIN,) * (len(workload.arguments) + 1), placement.target, placement.resources
    )
    # its own count stops at a `let` expression
    function = module["main"].with_attr("estimated_flops", max(1, workload.flop))
    module = tvm.IRModule({"main": function})
    target = tvm.target.Target(placement.tvm_target)
    workers = ms.utils.cpu_count(logical=False)  # its default
    with tempfile.TemporaryDirectory() as folder:
        database = ms.tir_integration.tune_tir(
            module,
            target,
            folder,
            trials,
            builder=ms.builder.LocalBuilder(max_workers=workers, initializer=_die_with_parent),
            runner=ms.runner.LocalRunner(initializer=_die_with_parent),
            seed=seed + 1,
        )
        best = database.query_tuning_record(module, target, "main")
        timed = [record for record in database.get_all_tuning_records() if record.run_secs]
        return (None if best is None else trace_text(best.trace)), len(timed)


def measured(
    workload: Workload, placement: Placement, trace: str, protocol: Protocol
) -> Measurement | Failure:
    """The candidate under our protocol."""
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    candidate = Candidate(implementation=NAME, settings=((TRACE, trace),), forms=forms)
    with KernelMeasurer(placement, builders=1) as measurer:
        (outcome,) = measurer.measure(workload, [candidate], protocol)
        return outcome


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="-", help="file with the workload's text")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=None, help="default: tilewright's")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Tune, time the best, print."""
    options = _options()
    source = sys.stdin.read() if options.workload == "-" else Path(options.workload).read_text()
    workload = parse_workload(source)
    placement = local_placement(options.threads)
    os.environ["TVM_NUM_THREADS"] = str(
        placement.resources.threads
    )  # TVM reads it when it is imported
    answers = os.dup(1)
    os.dup2(2, 1)  # MetaSchedule's log goes to standard output
    began_s = time.perf_counter()
    trace, timed = tune(workload, placement, options.trials, options.seed)
    wall_s = time.perf_counter() - began_s
    outcome = None if trace is None else measured(workload, placement, trace, Protocol())
    found = isinstance(outcome, Measurement)
    result: dict[str, Any] = {
        "workload": workload.key,
        "trials": options.trials,
        "timed": timed,
        "threads": placement.resources.threads,
        "best_s": outcome.latency_s if found else None,
        "samples_s": list(outcome.samples_s) if found else [],
        "failure": outcome.message if isinstance(outcome, Failure) else "",
        "wall_s": wall_s,
    }
    os.write(answers, (json.dumps(result) + "\n").encode())


if __name__ == "__main__":
    main()
