"""What `optimize` and `search` answer for a remote device: tuned tasks, no network that ships.

Whole networks do not run over RPC, so nothing is compiled into an artifact, compared or checked as
a whole; every winner was checked on the device. The network's time is the sum of its tasks'.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.errors import NegativeVerdict
from tilewright.core.records import Placement
from tilewright.core.results import OptimizeResult
from tilewright.graph.tasks import TaskKey
from tilewright.measure.peaks import Peaks
from tilewright.models.prepared import PreparedNetwork
from tilewright.report.task_rows import Times, task_reports
from tilewright.search.winners import Winner

NOTE = (
    "Whole networks do not run over RPC: the tasks were tuned and checked on the device, their "
    "times are added up, and no artifact was written."
)
_MISSING = (
    "{} of {} tasks were never measured on the device: the network's time and the shares leave "
    "them out. A larger --budget measures them."
)


def tasks_only(
    network: PreparedNetwork, winners: Mapping[TaskKey, Winner], peaks: Peaks, placement: Placement
) -> OptimizeResult:
    """The result of tuning alone; raises NegativeVerdict when no task has a time."""
    chosen = {key: winner.candidate for key, winner in winners.items()}
    measured = {k: w.measurement for k, w in winners.items() if w.measurement is not None}
    if not measured:
        raise NegativeVerdict(
            "no task was ever measured on the device",
            hint="Give a --budget above 0; `tilewright db info` tells what is stored.",
        )
    checks = {key: w.check for key, w in winners.items() if w.check is not None}
    rows = task_reports(network.tasks, chosen, Times(alone=measured), checks, peaks)
    total_s = sum(row.calls_s or 0.0 for row in rows)
    missing = sum(row.calls_s is None for row in rows)
    return OptimizeResult(
        model=network.model.name,
        target=placement.tvm_target,
        threads=placement.resources.threads,
        latency_s=total_s,
        baseline_latency_s=None,
        reference_latency_s=None,
        speedup_vs_reference=None,
        max_abs_error=None,
        tasks=rows,
        measurements=0,
        failures=0,
        elapsed_s=0.0,
        artifact="",
        tasks_latency_s=total_s,
        peak_flop_per_s=peaks.flop_per_s,
        peak_bytes_per_s=peaks.bytes_per_s,
        weight_bytes=sum(a.nbytes for a in network.graph.constants.values()),
        network_key=network.key,
        warnings=(NOTE, *([_MISSING.format(missing, len(rows))] if missing else [])),
    )
