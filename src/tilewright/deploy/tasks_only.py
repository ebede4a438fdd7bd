"""What `optimize` and `search` answer for a remote device: tuned tasks, no network that ships.

Whole networks do not run over RPC, so nothing is compiled into an artifact, compared or checked as
a whole; every winner was checked on the device. The network's time is the sum of its tasks'.
"""

from __future__ import annotations

from tilewright.core.errors import NegativeVerdict
from tilewright.core.records import Placement
from tilewright.core.results import OptimizeResult
from tilewright.graph.plan_result import PlanResult
from tilewright.measure.peaks import Peaks
from tilewright.models.prepared import PreparedNetwork
from tilewright.report.task_rows import task_reports

NOTE = (
    "Whole networks do not run over RPC: the tasks were tuned and checked on the device, their "
    "times are added up, and no artifact was written."
)
_MISSING = (
    "{} of {} tasks were never measured on the device: the network's time and the shares leave "
    "them out. A larger --budget measures them."
)


def tasks_only(
    network: PreparedNetwork, tuned: PlanResult, peaks: Peaks, placement: Placement
) -> OptimizeResult:
    """The result of tuning alone; raises NegativeVerdict when no task has a time."""
    if all(tuned.call(call.name).alone is None for call in tuned.plan.calls):
        raise NegativeVerdict(
            "no task was ever measured on the device",
            hint="Give a --budget above 0; `tilewright db info` tells what is stored.",
        )
    rows = task_reports(tuned, peaks)
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
        weight_bytes=network.weight_bytes,
        network_key=network.key,
        warnings=(NOTE, *([_MISSING.format(missing, len(rows))] if missing else [])),
    )
