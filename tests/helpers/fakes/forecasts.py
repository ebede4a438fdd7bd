"""What the fake session answers to `collect`, `fit`, `predict` and `explain`."""

from __future__ import annotations

from tilewright.core.planning import (
    PlanningCall,
    PlanningData,
    PlanningDevice,
    PlanningMode,
    PlanningTensor,
    Transfer,
)
from tilewright.core.predictions import (
    CollectResult,
    ExplainResult,
    FactDifference,
    Factor,
    FitResult,
    FittedFamily,
    NetworkForecast,
    OperatorForecast,
    PredictResult,
    SweepResult,
    SweepRow,
    ThreadsResult,
    ThreadTime,
    TurningPoint,
)
from tilewright.core.sufficient_cores import CoresResult, CoresRow, SufficientCores, TimeOnCores

COLLECTED = CollectResult(samples=20, known=3, failures=1, complete=True, elapsed_s=12.5)
FITTED = FitResult(
    device_class="some-cpu-2t",
    folder="known.models",
    families=(
        FittedFamily(family="conv2d", rows=4000, reach=0.2, data_hash="0123abcd"),
        FittedFamily(family="softmax", rows=0, reach=None, data_hash="", error="too few"),
    ),
    elapsed_s=9.0,
)
PREDICTED = PredictResult(
    model="resnet50",
    target="llvm",
    threads=2,
    settings="default",
    network=NetworkForecast(
        latency_s=0.03,
        latency_low_s=0.028,
        latency_high_s=0.033,
        power_w=None,
        energy_j=None,
        peak_memory_bytes=10**8,
    ),
    operators=(
        OperatorForecast(
            name="conv1",
            family="conv2d",
            implementation="conv2d_direct",
            count=2,
            latency_s=0.001,
            low_s=0.0009,
            high_s=0.0012,
            source="model",
        ),
    ),
)
PLANNING = PlanningData(
    model="lstm",
    settings="default",
    devices=(
        PlanningDevice(
            name="llvm",
            kind="cpu",
            device_class="some-cpu-2t",
            threads=2,
            network=PREDICTED.network,
            energy_reason="too few energies",
        ),
        PlanningDevice(
            name="cuda -model=H100",
            kind="cuda",
            device_class="h100-132t",
            threads=132,
            network=None,
            refused="nothing computes it",
        ),
    ),
    inputs=("x",),
    outputs=("y",),
    calls=(
        PlanningCall(
            name="loop",
            task="lstm-0123",
            family="lstm",
            inputs=("x",),
            output="y",
            modes=(PlanningMode(device="llvm", implementation="recurrent_loop", latency_s=1e-3),),
        ),
    ),
    tensors=(
        PlanningTensor(name="x", dtype="float32", shape=(1, 4), bytes=16),
        PlanningTensor(name="y", dtype="float32", shape=(1, 8), bytes=32),
    ),
    conversions=(),
    transfers=(
        Transfer(
            origin="llvm",
            destination="cuda -model=H100",
            latency_s=2.5e-6,
            bytes_per_s=63e9,
            link="PCIe 5.0 x16",
        ),
        Transfer(
            origin="cuda -model=H100",
            destination="llvm",
            latency_s=None,
            bytes_per_s=None,
            link="unknown",
        ),
    ),
)
EXPLAINED = ExplainResult(
    name="op:conv2d[c=64]",
    family="conv2d",
    latency_s=0.001,
    source="model",
    factors=(
        Factor(name="implementation", importance=0.2, rank_correlation=None, effects={"rows": 1.0}),
        Factor(
            name="tile_width",
            importance=0.7,
            rank_correlation=-0.9,
            effects={"1": 3.0},
            permutation_importance=0.42,
            partial_dependence={"1": 2.5},
        ),
    ),
    turning_points=(
        TurningPoint(
            parameter="out", value=65, fact="op.out_whole", before=1.0, after=0.81, ratio=1.2
        ),
    ),
    facts={"implementation": "conv2d_direct", "op.padding": 4.0},
    ratio=1.5,
    differences=(FactDifference(fact="op.padding", first=4.0, second=None, share=0.8),),
)
THREADS = ThreadsResult(
    model="zoo:mlp",
    measured=(ThreadTime(threads=2, latency_s=0.002), ThreadTime(threads=1, latency_s=0.001)),
    best_threads=1,
    loss_of_all=1.0,
)
SWEPT = SweepResult(
    operator="op:conv2d[c=64,pad=1]",
    parameter="pad",
    rows=(
        SweepRow(
            value=0,
            latency_s=0.001,
            predicted_s=0.0011,
            roof_s=0.0005,
            implementation="conv2d_direct",
            facts={"op.border_share": 0.0},
        ),
        SweepRow(
            value=1,
            latency_s=None,
            predicted_s=0.0012,
            roof_s=0.0006,
            implementation="conv2d_direct",
            facts={"op.border_share": 0.07},
        ),
    ),
)

CORES = CoresResult(
    model="op:relu[shape=8]",
    machine_cores=2,
    cores=(1, 2, 4),
    rows=tuple(
        CoresRow(
            task="op:relu[shape=8]",
            count=1,
            implementation="generic",
            beside=beside,
            held="",
            source="measured",
            times=tuple(
                TimeOnCores(
                    cores=cores,
                    predicted_s=1e-3 / cores,
                    low_s=0.9e-3 / cores,
                    high_s=1.2e-3 / cores,
                    measured_s=1e-3 / cores if (cores, beside) in measured else None,
                    extrapolated=cores > 2,
                )
                for cores in (1, 2, 4)
            ),
            points=(
                SufficientCores(
                    gain=0.05,
                    measured=2 if beside == "none" else None,
                    told=1 if beside == "none" else None,
                    steps=-1 if beside == "none" else None,
                    predicted=4,
                    low=2,
                    high=4,
                    extrapolated=True,
                ),
            ),
        )
        for measured in [{(1, "none"), (2, "none"), (1, "stream")}]
        for beside in ("none", "stream")
    ),
    unmeasured=("another",),
)
