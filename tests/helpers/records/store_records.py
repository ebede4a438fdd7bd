"""Random records for the tests of the store."""

from __future__ import annotations

import json
import sqlite3

from hypothesis import strategies as st

from tilewright.core.codec import canonical_json
from tilewright.core.forms import PLAIN, parse_forms
from tilewright.core.records import (
    Candidate,
    Device,
    EnergyUse,
    Failure,
    Measurement,
    NetworkMeasurement,
    Outcome,
    PlacementKey,
    Protocol,
    Run,
    ShippedPlan,
)
from tilewright.core.targets import (
    Binding,
    ComputeUnit,
    MemoryLevel,
    Resources,
    Target,
    threads_alone,
)
from tilewright.store.base import Store

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SECONDS = st.floats(min_value=0, max_value=1e6, allow_nan=False)
FORMS = st.sampled_from(
    parse_forms("plain", "blocked16", "acdb", "BA16a16b2a", "plain:bfloat16", "blocked8:int8*1")
)
KNOB = st.one_of(st.integers(), st.booleans(), TEXT)

ONE, SHARED = threads_alone(1), Resources(cores=2, threads=4, kind="big")
RESOURCES = st.sampled_from([ONE, SHARED])
CPU_A, CPU_B, C = (
    PlacementKey(device_class=name, resources=ONE) for name in ("cpu-a", "cpu-b", "c")
)
BINDINGS = st.lists(st.integers(0, 255), max_size=4).map(lambda cpus: Binding(cpus=tuple(cpus)))
CANDIDATES = st.builds(
    Candidate,
    implementation=TEXT,
    settings=st.dictionaries(TEXT, KNOB, max_size=4).map(lambda knobs: tuple(knobs.items())),
    forms=st.lists(FORMS, max_size=3).map(tuple),
)
PROTOCOLS = st.builds(
    Protocol,
    warmup=st.integers(0, 9),
    repeats=st.integers(1, 9),
    sample_s=SECONDS,
    rotation_bytes=st.integers(0, 1 << 40),
    timeout_s=SECONDS,
    neighbours=st.integers(0, 3),
)
ENERGIES = st.builds(
    EnergyUse,
    method=TEXT.filter(bool),
    energy_j=st.none() | SECONDS,
    power_w=st.none() | SECONDS,
    idle_power_w=st.none() | SECONDS,
    reason=TEXT,
    samples_j=st.lists(SECONDS, max_size=3).map(tuple),
    runs=st.integers(0, 1 << 40),
    window_s=SECONDS,
)
MEASUREMENTS = st.builds(
    Measurement,
    workload_key=st.sampled_from(["conv2d-1", "dense-2"]),
    candidate=CANDIDATES,
    device_class=st.sampled_from(["cpu-a", "cpu-b"]),
    resources=RESOURCES,
    protocol=PROTOCOLS,
    kernel_hash=TEXT,
    samples_s=st.lists(SECONDS, min_size=1, max_size=5).map(tuple),
    build_s=SECONDS,
    versions=TEXT,
    created_at=SECONDS,
    run_id=st.none(),
    instance=TEXT,
    binding=BINDINGS,
    model=TEXT,
    energy=st.none() | ENERGIES,
)
NETWORKS = st.builds(
    NetworkMeasurement,
    network_key=st.just("net"),
    device_class=st.just("cpu-a"),
    resources=RESOURCES,
    model=TEXT,
    latency_s=SECONDS,
    planned_bytes=st.integers(0, 1 << 40),
    measured_bytes=st.none() | st.integers(0, 1 << 40),
    memory_method=TEXT,
    energy=st.none() | ENERGIES,
    versions=TEXT,
    created_at=SECONDS,
    instance=TEXT,
)
FAILURES = st.builds(
    Failure,
    workload_key=st.sampled_from(["conv2d-1", "dense-2"]),
    candidate=CANDIDATES,
    device_class=st.sampled_from(["cpu-a", "cpu-b"]),
    resources=RESOURCES,
    kind=st.sampled_from(["build", "timeout", "crash", "wrong result", "out of memory"]),
    message=TEXT,
    kernel_hash=TEXT,
    versions=TEXT,
    created_at=SECONDS,
    run_id=st.none(),
    instance=TEXT,
    binding=BINDINGS,
    model=TEXT,
)
OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(MEASUREMENTS, FAILURES)
RUNS = st.builds(
    Run,
    id=st.none(),
    command=TEXT,
    model=TEXT,
    network_key=st.just("net"),
    device_class=st.just("cpu-a"),
    resources=RESOURCES,
    seed=st.integers(),
    state=st.sampled_from(["running", "done", "interrupted"]),
    spent_s=SECONDS,
    measurements=st.integers(0, 1 << 40),
    failures=st.integers(0, 1 << 40),
    created_at=SECONDS,
)
PLANS = st.builds(
    lambda assignment: json.loads(canonical_json({"assignment": assignment})),
    st.dictionaries(TEXT, CANDIDATES, max_size=3),
)
SHIPPED = st.builds(
    ShippedPlan,
    network_key=st.just("net"),
    device_class=st.just("cpu-a"),
    resources=RESOURCES,
    model=TEXT,
    plan=PLANS,
    latency_s=SECONDS,
    numbers=st.dictionaries(TEXT, st.none() | SECONDS, max_size=3),
    created_at=SECONDS,
)
DEVICES = st.builds(
    Device,
    class_key=TEXT,
    instance=TEXT,
    target=st.builds(
        Target,
        kind=TEXT,
        model=TEXT,
        features=st.lists(TEXT, max_size=3).map(tuple),
        units=st.lists(st.builds(ComputeUnit), max_size=2).map(tuple),
        memory=st.lists(st.builds(MemoryLevel), max_size=3).map(tuple),
    ),
)


def measurement(
    *,
    number: int = 0,
    workload_key: str = "conv2d-1",
    device_class: str = "cpu-a",
    threads: int = 1,
    kernel_hash: str = "h1",
    versions: str = "",
    run_id: int | None = None,
) -> Measurement:
    """A plain measurement; `number` tells it from others and is its time."""
    return Measurement(
        workload_key=workload_key,
        candidate=Candidate(
            implementation="direct", settings=(("tile", 8), ("unroll", True)), forms=(PLAIN,)
        ),
        device_class=device_class,
        resources=threads_alone(threads),
        protocol=Protocol(),
        kernel_hash=kernel_hash,
        samples_s=(0.003, 0.001, 0.002 + number),
        build_s=0.5,
        versions=versions,
        created_at=float(number),
        run_id=run_id,
    )


def failure(*, number: int = 0, message: str = "segmentation fault") -> Failure:
    """A plain failure."""
    return Failure(
        workload_key="conv2d-1",
        candidate=Candidate(implementation="direct", settings=(("tile", 99),), forms=(PLAIN,)),
        device_class="cpu-a",
        resources=threads_alone(1),
        kind="crash",
        message=message,
        created_at=float(number),
    )


def measurements(store: Store, workload_key: str, placement: PlacementKey) -> list[Measurement]:
    """The successes among the outcomes of a workload, oldest first."""
    return store.stored_measurements(workload_key=workload_key, placement=placement)


def failures(store: Store, workload_key: str, placement: PlacementKey) -> list[Failure]:
    """The failures among them, oldest first."""
    known = store.outcomes(workload_key, placement)
    return [outcome for outcome in known if isinstance(outcome, Failure)]


def shipped_plan() -> ShippedPlan:
    """What shipped for a network, in the form of before schema version 6."""
    candidate = Candidate(implementation="direct", settings=(("tile", 8),), forms=(PLAIN,))
    assignment = {"conv2d-1@plain": candidate}
    layouts = {"layouts": {"x": "blocked32"}, "ports": {"conv": ["blocked16", "plain"]}}
    return ShippedPlan(
        network_key="network",
        device_class="cpu-a",
        resources=threads_alone(1),
        model="zoo:one",
        plan={"assignment": json.loads(canonical_json(assignment)), **layouts},
        latency_s=0.002,
        numbers={"max_rel_error": 1e-6},
        created_at=3.0,
    )


def without_plans(connection: sqlite3.Connection) -> None:
    """Bring the table of shipments to what it was before schema version 6."""
    for name in ("assignment", "artifact_hash"):
        connection.execute(f"ALTER TABLE shipments ADD COLUMN {name} VARCHAR DEFAULT '' NOT NULL")
    for number, text in connection.execute("SELECT id, plan FROM shipments").fetchall():
        plan = json.loads(text)
        assignment = canonical_json(plan.pop("assignment"))
        row = (assignment, canonical_json(plan) if plan else "", number)
        connection.execute("UPDATE shipments SET assignment = ?, plan = ? WHERE id = ?", row)
