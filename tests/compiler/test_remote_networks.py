"""Whole networks over TVM RPC against real servers on loopback."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.networks.graph_builder import Builder
from helpers.processes.rpc_processes import Farm, farm
from tilewright.compiler import remote
from tilewright.compiler.network import compile_network
from tilewright.compiler.remote import RemoteSession
from tilewright.core.errors import InputError, ModelError, TargetError
from tilewright.core.records import Placement
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array, Graph
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.tasks import fused_network
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import default_settings, lay_out
from tilewright.measure import networks, remote_networks
from tilewright.measure.boards import Tracker
from tilewright.measure.networks import NetworkWorker
from tilewright.measure.reference import PeersBeside, peer_beside
from tilewright.measure.remote_networks import BoardNetworks
from tilewright.measure.targeting import (
    open_measurer,
    open_networks,
    placement_of,
    usable_placement,
)


@pytest.fixture(scope="module")
def one() -> Iterator[Farm]:
    with farm(1) as found:
        yield found


def placement(of: Farm, key: str = "box") -> Placement:
    return usable_placement(placement_of(f"rpc:{key}", of.address, None))


def convolutions() -> Graph:
    """Two convolutions and a view of the input, with two outputs."""
    b = Builder()
    x = b.input(1, 8, 12, 12)
    y = b.add("relu", b.conv(x, 16))
    return b.graph(b.conv(y, 16), b.add("reshape", x, shape=(8, 144)))


def planned(graph: Graph, there: Placement) -> tuple[NetworkPlan, Mapping[str, Array]]:
    fused = fused_network(graph)
    forms = choose_forms(fused, there.target, there.resources)
    plan = lay_out(fused, forms, lane_of(there), default_settings(there))
    return plan, fused.graph.constants


class Compiled:
    """A network compiled for the board, with inputs and what this machine computes from them."""

    def __init__(self, graph: Graph, there: Placement, folder: Path) -> None:
        self.folder = folder
        self.plan, constants = planned(graph, there)
        given = random_inputs(graph, 0)
        self.inputs = [given[name] for name in self.plan.inputs]
        with BoardNetworks(there, Tracker(host="127.0.0.1", port=1), "none") as compiling:
            compiling.compile(self.plan, constants, folder)
        with NetworkWorker(there) as local:
            local.load("network", folder, self.plan.constant_names)
            self.expected = local.run("network", self.inputs)

    def load(self, runner: networks.NetworkRunner, name: str = "network") -> None:
        runner.load(name, self.folder, self.plan.constant_names)

    def is_right(self, runner: networks.NetworkRunner, name: str = "network") -> bool:
        found = runner.run(name, self.inputs)
        return all(map(np.array_equal, found, self.expected)) and len(found) == len(self.expected)


@pytest.fixture(scope="module")
def network(one: Farm, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(convolutions(), placement(one), tmp_path_factory.mktemp("network"))


def test_a_board_gives_what_this_machine_gives(one: Farm, network: Compiled) -> None:
    with open_networks(placement(one)) as there:
        network.load(there)
        network.load(there, "twin")
        assert network.is_right(there) and network.is_right(there, "twin")
        others = [-array for array in network.inputs]
        assert not np.array_equal(there.run("network", others)[0], network.expected[0])
        assert network.is_right(there)
        there.unload("twin")
        assert network.is_right(there)


def test_runs_are_timed_by_the_boards_clock(one: Farm, network: Compiled) -> None:
    with open_networks(placement(one)) as there:
        network.load(there)
        for warmup in (0, 1, 3):
            samples = there.time("network", network.inputs, repeats=5, warmup=warmup)
            assert len(samples) == 5 and min(samples) > 0
        assert there.repeat("network", network.inputs, 0.05) > 3
        peak = there.memory_peak(network.folder, network.plan.constant_names, network.inputs)
        assert peak.bytes is None and "does not tell" in peak.reason


def test_calls_are_timed_in_their_places(one: Farm, network: Compiled) -> None:
    with open_networks(placement(one)) as there:
        network.load(there)
        timed = there.time_calls("network", network.inputs, repeats=5)
        whole = min(there.time("network", network.inputs, repeats=20, warmup=1))
        assert network.is_right(there)
    assert [symbol for symbol, _ in timed] == [
        network.plan.symbol(call) for call in network.plan.calls
    ]
    assert all(0 < seconds < 0.1 for _, seconds in timed)
    assert sum(seconds for _, seconds in timed) < 100 * whole + 1e-3


def test_an_index_out_of_range_is_no_loss(one: Farm, tmp_path: Path) -> None:
    b = Builder()
    words = b.input(4, dtype="int64")
    table = b.constant(np.arange(40, dtype=np.float32).reshape(10, 4))
    graph = b.graph(b.add("gather", table, words, axis=0))
    found = Compiled(graph, placement(one), tmp_path)
    with open_networks(placement(one)) as there:
        found.load(there)
        assert found.is_right(there)
        with pytest.raises(InputError, match="is given an index"):
            there.run("network", [np.full(4, 10, np.int64)])
        assert found.is_right(there)


def test_weights_that_are_cut_short_are_told(one: Farm, network: Compiled, tmp_path: Path) -> None:
    for name in ("model.so", "weights.params"):
        (tmp_path / name).write_bytes((network.folder / name).read_bytes()[:-7])
    with (
        open_networks(placement(one)) as there,
        pytest.raises(ModelError, match="cut short"),
    ):
        there.load("network", tmp_path, network.plan.constant_names)


def test_what_a_board_cannot_link_is_told(one: Farm, network: Compiled, tmp_path: Path) -> None:
    (tmp_path / "broken.o").write_bytes(b"no object")
    with tarfile.open(tmp_path / remote.ARCHIVE, "w") as archive:
        archive.add(tmp_path / "broken.o", "broken.o")
    (tmp_path / "weights.params").write_bytes((network.folder / "weights.params").read_bytes())
    with open_networks(placement(one)) as there:
        with pytest.raises(TargetError, match="does not link the compiled network: on the device"):
            there.load("network", tmp_path, network.plan.constant_names)
        network.load(there)
        assert network.is_right(there)


def test_what_fails_on_a_board_is_no_bug_of_ours(one: Farm, network: Compiled) -> None:
    with open_networks(placement(one)) as there:
        network.load(there)
        with pytest.raises(TargetError, match="127.0.0.1:[0-9]* failed at run network"):
            there.run("network", [array[..., 1:].copy() for array in network.inputs])
        assert network.is_right(there)


def test_sessions_are_opened_anew_with_what_was_loaded(
    one: Farm, network: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_networks, "SESSION_S", 4.0)
    monkeypatch.setattr(networks, "RUN_TIMEOUT_S", 2.0)
    with open_networks(placement(one)) as there:
        network.load(there)
        time.sleep(4.5)
        assert network.is_right(there)


def test_a_board_is_there_for_networks_while_the_measurer_rests(
    one: Farm, network: Compiled
) -> None:
    with open_measurer(placement(one), seed=0) as measurer:
        measurer.start(workers=1)
        assert measurer.peaks()["flop_per_s"] > 0
        measurer.rest()
        with open_networks(placement(one)) as there:
            network.load(there)
            assert network.is_right(there)
        assert measurer.peaks()["flop_per_s"] > 0


def test_a_board_links_what_cannot_be_linked_here(
    one: Farm, tmp_path: Path, network: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "linker_of", lambda _target: None)
    there = placement(one)
    executable, _ = compile_network(network.plan, there.target)
    path = remote.export_network(executable, there.target, tmp_path)
    assert path.name == remote.ARCHIVE
    weights = (network.folder / "weights.params").read_bytes()
    (tmp_path / "weights.params").write_bytes(weights)
    lease = Tracker(host="127.0.0.1", port=one.tracker.port).request("box", 20.0)
    held = remote.RemoteNetworks(RemoteSession(lease.host, lease.port, lease.match, session_s=60.0))
    held.load("network", tmp_path, network.plan.constant_names)
    assert not path.exists() and (tmp_path / "model.so").is_file()
    for found, wanted in zip(held.run("network", network.inputs), network.expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    # built without the second function: nothing is known of single calls
    assert held.time_calls("network", network.inputs, 3) == []
    assert all(map(np.array_equal, held.run("network", network.inputs), network.expected))


@pytest.mark.parametrize(
    ("harm", "said"), [("freeze", "hangs: run network gave no answer"), ("kill", "was lost at run")]
)
def test_a_board_that_is_gone_is_told_soon(
    harm: str, said: str, network: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "RUN_TIMEOUT_S", 3.0)
    with farm(1) as alone, open_networks(placement(alone)) as there:
        network.load(there)
        assert network.is_right(there)
        act: Callable[[], None] = getattr(alone.servers[0], harm)
        act()
        began_s = time.monotonic()
        with pytest.raises(TargetError, match=said) as caught:
            there.run("network", network.inputs)
        assert time.monotonic() - began_s < 20.0
        assert "the same command" in (caught.value.hint or "")
        if harm == "kill":
            alone.add()
            assert network.is_right(there)


def test_a_stock_server_says_how_to_get_peers(one: Farm) -> None:
    with open_networks(placement(one)) as there:
        assert isinstance(there, PeersBeside)
        reason = peer_beside(there, "onnxruntime").available()
    assert reason is not None and "tilewright.measure.board_server" in reason


def test_peers_run_on_a_board_that_has_them(network: Compiled, tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    node = helper.make_node("Relu", ["x"], ["y"])
    shape = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
    graph = helper.make_graph([node], "relu", shape[:1], shape[1:])
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "relu.onnx")
    inputs = {"x": np.array([[-1, 0, 1], [2, -3, 4]], np.float32)}
    with farm(0) as boards:
        boards.add(kind="board")
        with open_networks(placement(boards)) as there:
            peer = peer_beside(there, "onnxruntime")
            assert peer.available() is None
            assert "openvino" in str(peer_beside(there, "openvino").available() or "openvino")
            peer.start(tmp_path / "relu.onnx", 2, (0, 1))
            assert peer.precision == "fp32"
            np.testing.assert_array_equal(peer.run(inputs)["y"], np.maximum(inputs["x"], 0))
            samples = peer.time(inputs, 5, 2)
            assert len(samples) == 5 and min(samples) > 0
            network.load(there)
            assert network.is_right(there)
            (tmp_path / "broken.onnx").write_bytes(b"no model")
            broken = peer_beside(there, "onnxruntime")
            with pytest.raises(TargetError, match="on the board, onnxruntime failed"):
                broken.start(tmp_path / "broken.onnx", 2, (0, 1))
            peer.stop()
            assert network.is_right(there)
            peer.time(inputs, 1, 1)
            boards.servers[0].kill()
            with pytest.raises(TargetError, match="was lost at"):
                peer.time(inputs, 1, 1)
            began_s = time.monotonic()
            peer.stop()
            assert time.monotonic() - began_s < 1.0, "it ended with its board"


def test_a_board_of_another_kind_is_refused(one: Farm, network: Compiled) -> None:
    more = replace(placement(one).resources, threads=64)
    with (
        open_networks(replace(placement(one), resources=more)) as there,
        pytest.raises(TargetError, match="another kind"),
    ):
        network.load(there)
