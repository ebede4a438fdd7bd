"""Results for the reports' tests."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.accounts import CallReport
from tilewright.core.comparisons import CompareResult, CompareRow
from tilewright.core.results import (
    CurvePoint,
    OptimizeResult,
    TaskReport,
    TaskSearchReport,
    Trial,
)

PEAK_FLOP_PER_S = 200e9
PEAK_BYTES_PER_S = 20e9

CONV = TaskReport(
    name="layer1.conv1",
    anchor="conv2d",
    implementation="conv2d_direct",
    count=3,
    latency_s=0.001,
    share=0.6,
    gflop_per_s=150.0,
    gbyte_per_s=5.0,
    bound="compute",
    key="c0ffee",
    settings={"output_block": 16, "unroll": True},
    layouts=("NCHW16c", "OIHW16i16o"),
    error=2e-7,
    error_bound=1e-5,
    spread=0.02,
    nodes=("Conv_0", "Relu_1"),
)
COPY = replace(
    CONV,
    name="concat",
    anchor="concatenate",
    implementation="general",
    count=1,
    share=0.1,
    gflop_per_s=0.0,
    gbyte_per_s=10.0,
    bound="memory",
    settings={},
    layouts=(),
    nodes=(),
    error=None,
    error_bound=None,
)
DENSE = replace(
    CONV, name="fc", anchor="dense", share=0.3, gflop_per_s=9.0, gbyte_per_s=18.0, bound="memory"
)
CALL = CallReport(
    name="layer1.conv1",
    task="c0ffee",
    operator="conv2d",
    implementation="conv2d_direct",
    inputs=(),
    layouts=("NCHW16c", "OIHW16i16o"),
    dtype="float32",
    shape=(1, 64, 56, 56),
    latency_s=0.001,
    in_place_s=0.0011,
    alive_bytes=1 << 20,
)
OPTIMIZED = OptimizeResult(
    model="zoo:small",
    target='{"kind":"llvm"}',
    threads=2,
    latency_s=0.005,
    baseline_latency_s=0.0075,
    reference_latency_s=0.006,
    speedup_vs_reference=1.2,
    speedup_vs_reference_low=1.15,
    speedup_vs_reference_high=1.25,
    speedup_vs_baseline=1.5,
    speedup_vs_baseline_low=1.4,
    speedup_vs_baseline_high=1.6,
    max_abs_error=3e-6,
    tasks=(COPY, CONV, DENSE),
    measurements=1200,
    failures=4,
    elapsed_s=119.0,
    artifact="tilewright-out/small",
    max_rel_error=1e-6,
    tasks_latency_s=0.0049,
    peak_flop_per_s=PEAK_FLOP_PER_S,
    peak_bytes_per_s=PEAK_BYTES_PER_S,
    planned_memory_bytes=3 << 20,
    weight_bytes=50 << 20,
    environment={"cpu": "some CPU", "tvm": "0.27"},
    seconds_by_phase={"import": 2.0, "tune": 100.0, "verify": 17.0},
)


def row(model: str, peer: str, speedup: float, precision: str = "fp32") -> CompareRow:
    return CompareRow(
        model=model,
        peer=peer,
        precision=precision,
        threads=2,
        latency_s=1.0,
        peer_latency_s=speedup,
        speedup=speedup,
        max_abs_error=None,
        max_rel_error=None,
    )


COMPARED = CompareResult(
    rows=(row("a", "onnxruntime", 1.2), row("a", "openvino", 0.4, "bf16")),
    geomean_speedup=1.2,
    skipped={"torch": "not installed"},
)


def trial(number: int, latency_s: float | None, **settings: int | str | bool) -> Trial:
    return Trial(
        number=number,
        elapsed_s=2.0 * number,
        latency_s=latency_s,
        implementation="conv2d_direct",
        settings=settings,
    )


def search(*trials: Trial, task: str = "layer1.conv1") -> TaskSearchReport:
    times = [t.latency_s for t in trials if t.latency_s is not None]
    best_s = min(times, default=None)
    return TaskSearchReport(
        task=task,
        key="c0ffee",
        first_s=0.002 if times else None,
        best_s=best_s,
        gain=0.002 / best_s if best_s else None,
        measurements=len(times),
        failures=len(trials) - len(times),
        converged=True,
        trials=trials,
    )


# The tile decides nearly everything, the order nothing; every fifth trial fails.
TRIALS = tuple(
    trial(
        n,
        None if n % 5 == 0 else 1e-3 * 2 ** (n % 3) * (1 + n % 2 / 100),
        tile=2 ** (n % 3),
        unroll=n % 2 == 0,
        order=("hw", "wh")[n // 2 % 2],
        fixed=7,
    )
    for n in range(1, 41)
)
SEARCH = search(*TRIALS)
CURVE = tuple(
    CurvePoint(
        measurements=8 * n,
        elapsed_s=10.0 * n,
        network_latency_s=None if n < 2 else 0.01 / n,
    )
    for n in range(1, 6)
)
