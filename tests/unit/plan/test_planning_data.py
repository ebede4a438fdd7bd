"""What a planner needs of several devices: calls, modes, forms, transfers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import tilewright
from helpers.fakes.measuring import measured
from helpers.plugins.simulated_gpu import h100
from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.events import Event, Note
from tilewright.core.planning import PlanningData, PlanningMode
from tilewright.core.records import EnergyUse
from tilewright.cost.blocks import LAUNCH_S
from tilewright.hardware.datasheets import LIMITS
from tilewright.hardware.gpus import gpu_target
from tilewright.hardware.links import host_link
from tilewright.hardware.target import parse_gpu
from tilewright.models import ModelOptions
from tilewright.plan.planning_data import IN_PLACE
from tilewright.plan.preparation import prepare

H100, T4, ORIN = "cuda -model=H100", "cuda -model=T4", "cuda -model=Orin"
SMALL = "zoo:squeezenet1_1"


@cache
def found(model: str = SMALL, devices: tuple[str, ...] = ("llvm", H100)) -> PlanningData:
    with tilewright.open(db="memory:", threads=1) as session:
        return session.planning_data(model, devices)


def modes_on(data: PlanningData, device: str) -> dict[str, PlanningMode]:
    return {call.name: mode for call in data.calls for mode in call.modes if mode.device == device}


def test_calls_can_run_in_their_order_and_read_tensors_that_are_there() -> None:
    data = found()
    there = {*data.inputs}
    for call in data.calls:
        assert {*call.inputs} <= there
        there.add(call.output)
        assert [mode.device for mode in call.modes] == ["llvm", H100]
    assert {*data.outputs} <= there == {tensor.name for tensor in data.tensors}
    image = next(tensor for tensor in data.tensors if tensor.name == data.inputs[0])
    assert (image.shape, image.bytes) == ((1, 3, 224, 224), 4 * 3 * 224 * 224)


@pytest.mark.parametrize("device", ["llvm", H100])
def test_modes_say_what_predict_says(device: str) -> None:
    threads = 1 if device == "llvm" else None
    with tilewright.open(db="memory:", threads=threads, target=device) as session:
        alone = session.predict(SMALL)
    data = found()
    of_device = next(each for each in data.devices if each.name == device)
    assert of_device.network == alone.network and not of_device.refused
    assert of_device.energy_reason == alone.energy_reason
    known = {each.name: each for each in alone.operators}
    modes = modes_on(data, device)
    for name in known.keys() & modes.keys():
        mode, operator = modes[name], known[name]
        assert (mode.latency_s, mode.low_s, mode.high_s, mode.source, mode.implementation) == (
            *(operator.latency_s, operator.low_s, operator.high_s),
            *(operator.source, operator.implementation),
        )
    assert len(known.keys() & modes.keys()) == len(known)


def test_what_is_joined_in_place_on_one_device_is_a_kernel_on_none() -> None:
    modes = modes_on(found(), "llvm")["features.3.concat"]
    assert modes.implementation == IN_PLACE
    assert (modes.latency_s, modes.energy_j, modes.forms) == (0.0, 0.0, ())


def test_weights_are_those_of_the_network() -> None:
    cpu, gpu = (
        sum(mode.weight_bytes for mode in modes_on(found(), device).values())
        for device in ("llvm", H100)
    )
    assert gpu == 4 * 1_235_496 < cpu, "Winograd's weights are larger than the network's"


def test_forms_change_both_ways_and_only_where_they_differ() -> None:
    data = found()
    assert {one.device for one in data.conversions} == {"llvm"}, "kernels of GPUs are row-major"
    ends = {(one.tensor, one.before, one.after) for one in data.conversions}
    assert ends == {(tensor, after, before) for tensor, before, after in ends}
    calls, modes = {call.name: call for call in data.calls}, modes_on(data, "llvm")
    shapes = {tensor.name: tensor.shape for tensor in data.tensors}
    for name, mode in modes.items():
        result = calls[name].output
        if mode.forms and mode.forms[-1] != "plain":
            is_row = shapes[result][2:] == (1, 1)
            assert is_row != ((result, mode.forms[-1], "plain") in ends)
    assert all(one.latency_s > 0 for one in data.conversions)


def test_ways_between_devices_are_bounds_by_their_links() -> None:
    data = found("zoo:mlp", ("llvm", H100, T4, ORIN))
    ways = {(one.origin, one.destination): one for one in data.transfers}
    assert len(ways) == 12
    assert ways["llvm", H100].bytes_per_s == ways[H100, "llvm"].bytes_per_s == 63e9
    assert ways["llvm", T4].link == "PCIe 3.0 x16"
    through_the_host = ways[H100, T4]
    assert through_the_host.bytes_per_s == pytest.approx(1 / (1 / 63e9 + 1 / 15.75e9))
    assert through_the_host.latency_s == 2 * LAUNCH_S
    assert ways["llvm", ORIN].bytes_per_s is None and ways[ORIN, H100].latency_s is None


@pytest.mark.parametrize("arch", LIMITS)
def test_every_gpu_has_a_link_or_no_memory_of_its_own(arch: str) -> None:
    assert (host_link(gpu_target(parse_gpu(f"cuda -arch={arch}"))) is None) == (arch == "sm_87")


def test_what_was_measured_of_a_gpu_is_believed_with_its_energy(tmp_path: Path) -> None:
    placement = h100()
    network = prepare("zoo:mlp", ModelOptions(), placement)
    where = {"device_class": placement.device.class_key, "resources": placement.resources}
    with tilewright.open(db=tmp_path / "t.db") as session:
        session.store.add_workloads([call.workload for call in network.plan.calls])
        for call in network.plan.calls:
            use = EnergyUse(method="made up", energy_j=2e-3, power_w=100.0)
            row = measured(call.workload, call.candidate, 1e-5, energy=use, **where)
            session.store.add([row])
        data = session.planning_data("zoo:mlp", [H100])
    assert [(m.latency_s, m.energy_j, m.source) for m in modes_on(data, H100).values()] == [
        (1e-5, 2e-3, "exact")
    ] * 3
    assert data.devices[0].energy_reason == "" and data.transfers == ()


def test_a_call_that_a_device_cannot_compute_has_no_mode_there() -> None:
    """Recurrent layers have no kernel for GPUs."""
    operator = "op:lstm[steps=3,k=8,hidden=16]"
    data = found(operator, (H100, "llvm"))
    gpu, cpu = data.devices
    assert gpu.network is None and "nothing computes" in gpu.refused
    assert cpu.network is not None and cpu.refused == ""
    missing = [call for call in data.calls if H100 not in [mode.device for mode in call.modes]]
    assert missing and all("lstm" in call.name or call.family == "recurrent" for call in missing)
    with pytest.raises(ModelError, match="nothing computes"):
        found(operator, (H100,))


def test_devices_that_are_none() -> None:
    with tilewright.open(db="memory:") as session:
        with pytest.raises(UsageError, match="'llvm' is named twice"):
            session.planning_data("zoo:mlp", ["llvm", H100, "llvm"])
        with pytest.raises(UsageError, match="no device is named"):
            session.planning_data("zoo:mlp", [])
        with pytest.raises(TargetError, match="no datasheet of the GPU 'H1000'"):
            session.planning_data("zoo:mlp", ["llvm", "cuda -model=H1000"])


def test_notes_name_the_device_they_are_about() -> None:
    told: list[Event] = []
    with tilewright.open(db="memory:", events=told.append) as session:
        session.planning_data("zoo:mlp", [T4, H100])
    notes = [event.message for event in told if isinstance(event, Note)]
    assert [note.split(":")[0] for note in notes] == [T4, H100]
