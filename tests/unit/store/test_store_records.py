"""Records come out of the store as they went in."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.records.store_records import (
    CPU_A,
    CPU_B,
    DEVICES,
    NETWORKS,
    ONE,
    OUTCOMES,
    RUNS,
    SHIPPED,
    C,
    failure,
    failures,
    measurement,
    measurements,
)
from tilewright.core.records import (
    Device,
    Failure,
    Measurement,
    NetworkMeasurement,
    Outcome,
    PlacementKey,
    Run,
    ShippedPlan,
)
from tilewright.store import open_store
from tilewright.store.base import Archive
from tilewright.store.database import SqliteStore
from tilewright.store.interchange.tables import to_frame

FEW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def exact(value: object) -> str:
    """Equality that tells True from 1 and 1 from 1.0."""
    return repr(value)


@FEW
@given(given_outcomes=st.lists(OUTCOMES, max_size=8))
def test_outcomes_come_back_exactly_and_oldest_first(given_outcomes: list[Outcome]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        with open_store(path) as store:
            store.add(iter(given_outcomes))
        with open_store(path, readonly=True) as store:
            for key in ("conv2d-1", "dense-2"):
                for placement in {one.placement_key for one in given_outcomes}:
                    mine = [
                        o
                        for o in given_outcomes
                        if (o.workload_key, o.placement_key) == (key, placement)
                    ]
                    mine.sort(key=lambda o: (o.created_at, isinstance(o, Failure)))
                    good = [o for o in mine if isinstance(o, Measurement)]
                    bad = [o for o in mine if isinstance(o, Failure)]
                    assert exact(store.outcomes(key, placement)) == exact(mine)
                    assert exact(measurements(store, key, placement)) == exact(good)
                    assert exact(failures(store, key, placement)) == exact(bad)


def at(record: Run | ShippedPlan | NetworkMeasurement) -> PlacementKey:
    return PlacementKey(device_class=record.device_class, resources=record.resources)


@FEW
@given(run=RUNS, device=DEVICES, shipped=SHIPPED, network=NETWORKS)
def test_runs_devices_networks_and_shipments_come_back_exactly(
    run: Run, device: Device, shipped: ShippedPlan, network: NetworkMeasurement
) -> None:
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "a.db") as store:
        begun = store.begin_run(run)
        assert begun.id is not None
        assert exact(store.runs("net", at(run))) == exact([begun])
        store.add_device(device)
        store.add_device(device)
        assert exact(store.devices()) == exact([device])
        store.add_network(network)
        assert exact(store.networks("net", at(network))) == exact([network])
        assert store.networks("net", CPU_B) == []
        store.ship(shipped)
        assert store.shipped("net", at(shipped)) == shipped


def test_adding_the_same_outcome_twice_keeps_both(store: SqliteStore) -> None:
    as_protocol: Archive = store
    as_protocol.add([measurement(), failure(), measurement()])
    assert len(measurements(store, "conv2d-1", CPU_A)) == 2
    assert store.outcomes("conv2d-1", CPU_B) == []
    store.add([])


def test_an_undecodable_log_is_kept_escaped(store: SqliteStore) -> None:
    store.add([failure(message="bad \udcff byte, a \0 and an \x1b[31m")])
    (kept,) = failures(store, "conv2d-1", CPU_A)
    assert kept.message == "bad \\udcff byte, a \0 and an \x1b[31m"


def test_filters_and_frame(store: SqliteStore) -> None:
    assert to_frame(store.stored_measurements()).height == 0
    store.add([measurement(number=n, device_class=f"cpu-{n % 2}", run_id=n) for n in range(4)])
    assert [
        m.created_at
        for m in store.stored_measurements(placement=replace(CPU_A, device_class="cpu-1"))
    ] == [1, 3]
    assert store.stored_measurements(implementation="winograd") == []
    assert [m.run_id for m in store.stored_measurements(run_id=2)] == [2]
    zero = replace(CPU_A, device_class="cpu-0")
    frame = to_frame(store.stored_measurements(placement=zero, workload_key="conv2d-1"))
    assert frame.columns == to_frame([]).columns
    assert frame["latency_s"].to_list() == [0.002, 0.003]
    assert frame["samples_s"].to_list() == [[0.003, 0.001, 0.002], [0.003, 0.001, 2.002]]
    assert frame["settings"][0] == '{"tile":8,"unroll":true}'
    assert frame["rotation_bytes"][0] == measurement().protocol.rotation_bytes


def test_a_run_is_updated_and_the_newest_shipment_wins(store: SqliteStore) -> None:
    new = Run(
        command="optimize",
        model="m",
        network_key="net",
        device_class="c",
        resources=ONE,
        seed=0,
        state="running",
    )
    first, second = store.begin_run(new), store.begin_run(new)
    assert first.id != second.id
    done = replace(second, state="done", spent_s=2.5, measurements=7, failures=1)
    store.update_run(done)
    assert store.runs("net", C) == [first, done]
    assert store.shipped("net", C) is None
    for latency_s, created_at in ((1.0, 10.0), (2.0, 30.0), (3.0, 20.0)):
        store.ship(
            ShippedPlan(
                network_key="net",
                device_class="c",
                resources=ONE,
                model="m",
                plan={"assignment": {}},
                latency_s=latency_s,
                created_at=created_at,
            )
        )
    newest = store.shipped("net", C)
    assert newest is not None
    assert newest.latency_s == 2.0


def test_peaks_keep_the_newest_value(store: SqliteStore) -> None:
    assert store.peak(CPU_A, "flop_per_s") is None
    store.add_peak(CPU_A, "flop_per_s", 1e11)
    store.add_peak(CPU_A, "flop_per_s", 2e11)
    store.add_peak(CPU_B, "flop_per_s", 3e11)
    assert store.peak(CPU_A, "flop_per_s") == 2e11


def test_workloads_are_rebuilt_from_their_key(store: SqliteStore) -> None:
    from tilewright.graph.network import TensorType
    from tilewright.graph.workload import Argument, Step, Workload

    relu = Workload(
        arguments=(Argument(type=TensorType((1, 8))),), steps=(Step(operator="relu", inputs=(0,)),)
    )
    assert store.workload(relu.key) is None
    store.add_workload(relu)
    store.add_workloads([relu, relu])
    assert store.workload(relu.key) == relu
    assert store.info().tasks == 1
