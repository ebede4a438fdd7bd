"""Results for the reports' tests."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.results import CompareResult, CompareRow, OptimizeResult, TaskReport

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
OPTIMIZED = OptimizeResult(
    model="zoo:small",
    target='{"kind":"llvm"}',
    threads=2,
    latency_s=0.005,
    baseline_latency_s=0.0075,
    reference_latency_s=0.006,
    speedup_vs_reference=1.2,
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
