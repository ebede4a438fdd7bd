"""Several devices of a kind, and devices by tables: planned with, simulated, not run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tilewright.cli.main import main
from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.planning import PlanningData
from tilewright.cost.blocks import LAUNCH_S
from tilewright.deploy.planned_network import is_for_one_process
from tilewright.plan.imagined_devices import (
    DeviceTable,
    TableLink,
    TableRow,
    copies_of,
    names_of,
    read_table,
    with_tables,
)
from tilewright.plan.network_scheduling import DeviceTerms, Wanted, scheduling_problem
from tilewright.plan.scheduling.parts import Link, Objective
from tilewright.plan.scheduling.plan_file import read_plan

H100, SMALL = "cuda -model=H100", "zoo:squeezenet1_1"
EXAMPLE = Path(__file__).parents[3] / "docs" / "reference" / "accelerator.json"


def chain(folder: Path) -> str:
    """Eight convolutions, one after the other, of the same shapes and weights."""
    weight = numpy_helper.from_array(np.full((256, 256, 3, 3), 1e-3, np.float32), "weight")
    nodes = [
        helper.make_node("Conv", [f"t{n}", "weight"], [f"t{n + 1}"], f"conv{n}", pads=[1] * 4)
        for n in range(8)
    ]
    ends = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 256, 56, 56))]
        for name in ("t0", "t8")
    ]
    graph = helper.make_graph(nodes, "chain", *ends, [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, folder / "chain.onnx")
    return str(folder / "chain.onnx")


def test_eight_devices_of_a_kind_let_requests_follow_sooner(tmp_path: Path) -> None:
    wanted = Wanted(objective="throughput", terms={H100: DeviceTerms(price_per_hour=2.0)})
    with tilewright.open(db="memory:") as session:
        found = session.plan(
            chain(tmp_path), [f"8*{H100}"], planner="chain_dp", wanted=wanted, out=tmp_path
        )
        assert [device.name for device in found.devices] == names_of(H100, 8)
        assert found.sequential is not None and found.sequential / found.value > 3
        used = {slot.device for slot in found.slots}
        assert len(used) > 3 and {(w.origin, w.destination) for w in found.transfers}
        plan = read_plan(tmp_path)
        assert {device.price_per_hour for device in plan.problem.devices} == {2.0}
        slower = session.simulate(tmp_path, slower=dict.fromkeys(used, 2.0))
        assert found.latency_s < slower.latency_s
        with pytest.raises(TargetError, match="is one of 8 that were planned with"):
            session.open_plan(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "is no number") for text in ("0*llvm", "two*llvm", "3*", "*llvm", "²*llvm")),
        *((f"{digits}*llvm", "are more .* than") for digits in ("65", "1000000", "9" * 5000)),
    ],
)
def test_what_is_no_number_of_devices(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        copies_of([text])


def test_the_documented_table_is_planned_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = tmp_path / "a=b.json"
    example.write_bytes(EXAMPLE.read_bytes())
    words = ("plan", SMALL, "--devices", "llvm", "--table", f"npu={example}", "--threads", "2")
    where = ("--planner", "heft", "--out", str(tmp_path), "--db", "memory:")
    assert main([*words, *where]) == 0
    assert "bound, " in capsys.readouterr().out
    plan = read_plan(tmp_path)
    on = {slot.call: plan.schedule.mode_of(plan.problem, slot.call) for slot in plan.schedule.slots}
    first = on["features.0"]
    assert (first.device, first.latency_s, first.energy_j) == ("npu", 8e-5, 2.4e-4)
    assert first.marks == {
        "latency": "measured", "energy": "measured", "memory": "measured", "bandwidth": "bound",
    }  # fmt: skip
    pool, squeeze = on["features.2"], on["features.3.squeeze"]
    assert (pool.latency_s, squeeze.low_s, squeeze.high_s) == (1e-5, 2e-5, 4e-5)
    assert pool.marks["latency"] == "predicted", "nobody says that it was measured"
    assert squeeze.marks["latency"] == "predicted" and squeeze.marks["energy"] == "bound"
    (there,) = (link for link in plan.problem.links if link.destination == "npu")
    assert (there.latency_s, there.bytes_per_s) == (2e-5, pytest.approx(4e9))
    with tilewright.open(db="memory:") as session:
        assert session.simulate(tmp_path, slower={"npu": 2.0}).latency_s > plan.schedule.latency_s
        with pytest.raises(TargetError, match="'npu', which is known by a table") as refused:
            session.open_plan(tmp_path)
    assert refused.value.exit_code == 3


def test_a_table_that_goes_by_the_name_of_this_cpu(tmp_path: Path) -> None:
    table = tmp_path / "fast.csv"
    table.write_text("family,latency_s\ndense,1e-9\n")
    with tilewright.open(db="memory:") as session:
        session.plan("zoo:mlp", [H100], tables={"llvm": table}, out=tmp_path / "plan")
        assert is_for_one_process(read_plan(tmp_path / "plan")) is False
        with pytest.raises(TargetError, match="'llvm', which is known by a table"):
            session.open_plan(tmp_path / "plan")


def test_beside_a_gpu_both_links_count() -> None:
    with tilewright.open(db="memory:", threads=1) as session:
        data = session.planning_data("zoo:mlp", ["llvm", H100])
    table = msgspec.structs.replace(read_table(EXAMPLE), rows=(row(data.calls[0].name),))
    (found,) = with_tables([data], {"npu": table})
    ways = {(way.origin, way.destination): way for way in found.transfers}
    for ends in (("npu", H100), (H100, "npu")):
        assert ways[ends].latency_s == pytest.approx(2e-5 + LAUNCH_S)
        assert ways[ends].bytes_per_s == pytest.approx(1 / (1 / 4e9 + 1 / 63e9))
    (unknown,) = with_tables([data], {"npu": msgspec.structs.replace(table, link=None)})
    assert {w.bytes_per_s for w in unknown.transfers if "npu" in (w.origin, w.destination)} == {
        None
    }


def row(call: str) -> TableRow:
    return TableRow(call=call, latency_s=1e-6)


def npu(*rows: TableRow, link: tuple[float, float] | None = (2e-5, 4e9)) -> DeviceTable:
    return DeviceTable(format="", rows=rows, link=link and TableLink(*link))


def links(data: PlanningData, **terms: tuple[float, float]) -> dict[tuple[str, str], Link]:
    wanted = Wanted(terms={name: DeviceTerms(link=link) for name, link in terms.items()})
    found = scheduling_problem([data], wanted).links
    return {(link.origin, link.destination): link for link in found}


def test_nothing_is_sent_where_one_of_two_links_is_unknown() -> None:
    with tilewright.open(db="memory:", threads=1) as session:
        near, alone = (
            session.planning_data("zoo:mlp", names) for names in (["llvm", H100], [H100])
        )
    own = row(near.calls[0].name)
    (two,) = with_tables([near], {"one": npu(own, link=None), "other": npu(own)})
    assert not {("one", "other"), ("other", "one")} & links(two).keys()
    ways = links(two, one=(1e-3, 1e9))
    assert ways["one", "other"].latency_s == pytest.approx(1e-3 + 2e-5)
    assert ways[H100, "one"].latency_s == pytest.approx(1e-3 + LAUNCH_S)
    assert ways["llvm", "one"].bytes_per_s == pytest.approx(1e9)
    (without,) = with_tables([alone], {"npu": npu(own, link=None)})
    assert links(without) == {} == links(without, **{H100: (1e-5, 1e9)})
    assert links(without, npu=(1e-3, 1e9))[H100, "npu"].latency_s == pytest.approx(1e-3 + LAUNCH_S)


def test_the_link_of_each_of_two_gpus_counts_without_a_cpu() -> None:
    other = "cuda -model=A100"
    with tilewright.open(db="memory:", threads=1) as session:
        data = session.planning_data("zoo:mlp", [H100, other])
    usual = links(data)[H100, other]
    assert usual.bytes_per_s == pytest.approx(1 / (1 / 63e9 + 1 / 31.5e9), rel=1e-6)
    one = links(data, **{other: (1e-3, 1e9)})
    assert one.keys() == {(H100, other), (other, H100)}
    for way in one.values():
        assert way.latency_s == pytest.approx(LAUNCH_S + 1e-3)
        assert way.bytes_per_s == pytest.approx(1 / (1 / 63e9 + 1 / 1e9))
    both = links(data, **{other: (1e-3, 1e9), H100: (2e-3, 2e9)})[other, H100]
    assert both.latency_s == pytest.approx(3e-3)


def test_rows_of_calls_are_of_one_of_several_networks() -> None:
    with tilewright.open(db="memory:", threads=1) as session:
        data = session.planning_data("zoo:mlp", ["llvm"])
    first = data.calls[0]
    several = [data, data]
    found = with_tables(several, {"npu": npu(row(f"{data.model} 2/{first.name}"))})
    assert [len(each.calls[0].modes) for each in found] == [1, 2]
    for names, kind, said in (
        (several, "call", first.name),
        (several, "call", f"{data.model} 2/fc9"),
        ([data], "call", f"{data.model}/fc9"),
        ([data], "task", "dense-0"),
        ([data], "task", "danse-0123456789abcdef"),
        ([data], "family", "danse"),
        ([data], "family", "depthwise_int8"),
        ([data], "family", "conv2d_uint8"),
        ([data], "family", "dense_float33"),
    ):
        other = TableRow(family=first.family, latency_s=1e-6)
        wrong = msgspec.structs.replace(row(""), **{kind: said})
        with pytest.raises(ModelError, match=f"row 2 .* is of the {kind} '{said}', which is not"):
            with_tables(names, {"npu": npu(other, wrong)})


def test_a_table_for_many_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of other networks are counted; among them those that may be misspelt are told."""
    with tilewright.open(db="memory:", threads=1) as session:
        data = session.planning_data("zoo:mlp", ["llvm"])
    told: list[str] = []

    def tell(event: object) -> None:
        told.append(str(getattr(event, "message", "")))

    kinds = ("conv2d", "depthwise_float16", "dense_int8", "elementwise")
    others = [TableRow(family=kind, latency_s=1e-6) for kind in kinds]
    others.append(TableRow(task="conv2d-4b6b381535862816", latency_s=1e-6))
    rows = (row("mlp/fc1"), row("resnet18/fc1"), row("fc4"), *others)
    (found,) = with_tables([data], {"npu": npu(*rows)}, tell)
    assert [len(call.modes) for call in found.calls] == [2, 1, 1]
    assert told == ["7 of 8 rows of the table of 'npu' are for other networks."]
    with_tables([data], {"npu": npu(row("fcc2"), row("fc1"))}, tell)
    assert told[1:] == [
        "1 of 2 rows of the table of 'npu' are for other networks. Row 1 is of 'fcc2': is it 'fc2'?"
    ]
    with pytest.raises(ModelError, match="names no call of mlp\n") as refused:
        with_tables([data], {"npu": npu(*rows[1:])})
    assert (refused.value.hint or "").startswith("There are fc1, fc2, fc3, …; predict")
    with pytest.raises(ModelError, match="names no call of mlp, mlp 2\n") as refused:
        with_tables([data, data], {"npu": npu(*rows[1:])})
    assert (refused.value.hint or "").startswith("There are mlp/fc1, mlp/fc2, mlp/fc3, …")
    table = tmp_path / "npu.csv"
    table.write_text("call,latency_s\nmlp/fc1,1e-6\nresnet18/conv1,1e-6\n")
    where = ("--planner", "heft", "--db", "memory:", "--threads", "1")
    assert main(["plan", "zoo:mlp", "--devices", "llvm", "--table", f"npu={table}", *where]) == 0
    assert "1 of 2 rows of the table of 'npu' are for other networks" in capsys.readouterr().err


def test_a_table_of_commas_and_a_link_by_flag(tmp_path: Path) -> None:
    table = tmp_path / "npu.csv"
    with tilewright.open(db="memory:") as session:
        calls = [call.name for call in session.planning_data("zoo:mlp", ["llvm"]).calls]
        table.write_text(f"call,latency_s,energy_j\n{calls[0]},1e-6,\n{calls[1]},2e-6,3e-6\n")
        plain = table.read_bytes()
        table.write_bytes(b"\xef\xbb\xbf" + plain)  # as spreadsheets write it
        rows = read_table(table).rows
        assert [(row.latency_s, row.energy_j) for row in rows] == [(1e-6, None), (2e-6, 3e-6)]
        wanted = Wanted(terms={"npu": DeviceTerms(link=(1e-5, 1e9))})
        session.plan(
            "zoo:mlp", ["llvm"], tables={"npu": table}, wanted=wanted, out=tmp_path / "plan"
        )
        problem = read_plan(tmp_path / "plan").problem
        assert len(problem.links) == 2
        for way in problem.links:
            assert (way.latency_s, way.bytes_per_s) == (1e-5, pytest.approx(1e9))
        with pytest.raises(UsageError, match="'llvm' is named twice"):
            session.plan("zoo:mlp", ["llvm"], tables={"llvm": table})
        with pytest.raises(ModelError, match="names no call of"):
            session.plan(SMALL, ["llvm"], tables={"npu": table})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "missing required field"),
        ('{"format": "other", "rows": []}', "its format is 'other'"),
        ('{"format": "tilewright device table 1", "rows": [{"latency_s": 1}]}', "row 1 has not"),
        ('{"format": "tilewright device table 1", "rows": [], "x": 1}', "unknown field"),
        ('{"format": "tilewright device table 1", "rows": [], "kind": "cpu"}', "kind is 'cpu'"),
    ],
)
def test_what_is_no_table(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(ModelError, match=said):
        read_table(tmp_path / "table.json")
    with pytest.raises(ModelError, match="table"):
        read_table(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('"latency_s": -1', "row 1 has -1.0 as latency_s"),
        ('"latency_s": 1, "workspace_bytes": -4', "row 1 has -4 as workspace_bytes"),
        ('"latency_s": 1, "low_s": 2', "row 1 has a latency_s that is not between"),
    ],
)
def test_rows_that_no_device_has(tmp_path: Path, row: str, said: str) -> None:
    text = f'{{"format": "tilewright device table 1", "rows": [{{"family": "dense", {row}}}]}}'
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(ModelError, match=said):
        read_table(tmp_path / "table.json")
    for number in ("nan", "inf"):
        (tmp_path / "table.csv").write_text(f"family,latency_s\ndense,1\ndense,{number}\n")
        with pytest.raises(ModelError, match=f"row 2 has {number} as latency_s"):
            read_table(tmp_path / "table.csv")


@pytest.mark.parametrize(("objective", "kept"), [("latency", True), ("throughput", False)])
def test_a_gain_over_several_devices_that_is_not_sure(
    tmp_path: Path, objective: Objective, kept: bool
) -> None:
    """A device that is faster at one half of a network, and slower at the other, as far as anybody
    knows: each of its times may be half as long or twice."""
    table = tmp_path / "npu.csv"
    with tilewright.open(db="memory:", threads=1) as session:
        model = chain(tmp_path)
        calls = session.planning_data(model, ["llvm"]).calls
        half = len(calls) // 2
        times_s = [
            (call.name, (0.8 if number < half else 3.0) * call.modes[0].latency_s)
            for number, call in enumerate(calls)
        ]
        lines = [f"{name},{s},{s / 2},{2 * s}" for name, s in times_s]
        table.write_text("\n".join(["call,latency_s,low_s,high_s", *lines, ""]))
        wanted = Wanted(terms={"npu": DeviceTerms(link=(1e-6, 1e12))}, objective=objective)
        found = session.plan(model, ["llvm"], tables={"npu": table}, wanted=wanted, seconds=1)
    assert ("auto keeps all calls one after the other on 'llvm'" in found.note) == kept
    assert len({slot.device for slot in found.slots}) == (1 if kept else 2)
