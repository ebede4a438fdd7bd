"""`benchmarks/plans_on_a_card.py` as far as it goes without a GPU: parts for a CPU and a GPU are
compiled, run without TVM's compiler on a card that is simulated, compared and reported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import helper

import plans_on_a_card
from card.archive import lines
from card.plans_told import Asked, as_measured, own_s, report, without_pauses
from helpers.networks.onnx_models import model_of, normal
from plans_on_a_card import alone_on, main
from tilewright.core.errors import TargetError
from tilewright.deploy.compiled_parts import CompiledPart
from tilewright.plan.scheduling.parts import Link, Mode, ScheduledCall, ScheduleDevice, Wait
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.simulator import simulate
from tilewright.serving.flows import Span
from tilewright.serving.staying import Copied
from tilewright.testing.cuda_execution import compiler

GPU = "cuda -model=H100"
ON_GPU = ("left", "right")
MODEL = model_of(
    [
        helper.make_node("Gemm", ["x", "stem.w"], ["stem"], "stem"),
        helper.make_node("Gemm", ["stem", "left.w"], ["left"], "left"),
        helper.make_node("Gemm", ["stem", "right.w"], ["right"], "right"),
        helper.make_node("Sub", ["left", "right"], ["y"], "y"),
    ],
    {"x": (1, 64)},
    constants={
        "stem.w": normal(64, 70, seed=1),
        "left.w": normal(70, 5, seed=2),
        "right.w": normal(70, 5, seed=3),
    },
)
RUN = """
import sys
import tvm
assert not hasattr(tvm, "relax"), "TVM has its compiler"
from importlib.abc import MetaPathFinder
class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("onnx", "onnxruntime", "rich", "ortools"):
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Absent())
import plans_on_a_card
plans_on_a_card.main(sys.argv[1:])
"""


def spread(problem: SchedulingProblem, planner: str) -> Schedule:
    """The schedule with some calls on the GPU, where nothing gains by that."""

    def told(mode: Mode, call: str) -> Mode:
        seconds = 1e-4 if (call in ON_GPU) == (mode.device == GPU) else 1e-2
        return replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds)

    calls = tuple(
        replace(call, task="", modes=tuple(told(mode, call.name) for mode in call.modes))
        for call in problem.calls
    )
    return schedule_with(planner, replace(problem, calls=calls, handoff_s=0.0))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
def test_the_whole_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans_on_a_card, "without_handoffs", spread)
    onnx.save(MODEL, tmp_path / "small.onnx")
    plans, out = tmp_path / "plans", tmp_path / "results.jsonl"
    cards = ["--on", "simulated", "--model", "H100", "--cores", "1"]
    main(["prepare", str(tmp_path / "small.onnx"), *cards, "--file", str(plans), "--runtime"])
    assert not list(plans.rglob("*.params")), "weights are made where they are used"
    out.write_text('{"part": "beg', encoding="utf-8")  # a kill cut it short
    asked = ["run", "--on", "simulated", "--plans", str(plans), "--out", str(out), "--rounds", "1"]
    path = os.pathsep.join([str(plans / "runtime"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", RUN, *asked], check=True, env=environment)  # noqa: S603
    found = list(lines(out))
    assert not [line for line in found if line["part"] == "failed"]
    ways = [line["way"] for line in found if line["part"] == "time"]
    assert ways == ["alone on llvm", f"alone on {GPU}", "split"]
    same = {line["way"]: line["error"] for line in found if line["part"] == "same"}
    assert same.keys() == {*ways} and max(same.values()) < 1e-5
    (split,) = (e for e in found if e["part"] == "simulated" and e["way"] == "split")
    assert {each["device"] for each in split["parts"]} == {"llvm", GPU}
    assert split["simulated_s"] > 0 and split["to_gpu_s"] > 0 and split["handoff_s"] > 0
    main(asked)
    assert list(lines(out)) == found, "what is done is not done again"
    capsys.readouterr()
    main(["report", str(out)])
    told = capsys.readouterr().out
    assert "| small | split |" in told and "| small | alone on llvm | 1 llvm |" in told


CPU = "llvm"


def part(name: str, device: str, after: tuple[int, ...], expected_s: float) -> CompiledPart:
    return CompiledPart(
        name=name,
        network="net",
        place=(device, (0,)),
        inputs=(),
        outputs=(),
        folder=Path(name),
        constants=(),
        after=after,
        expected_s=expected_s,
        calls=(name,),
    )


PARTS = [part("a", CPU, (), 1e-3), part("b", GPU, (0,), 4e-3)]


def two_calls(**devices: Sequence[str]) -> SchedulingProblem:
    """`b` reads `a`; each takes 1 ms on the CPU and 4 ms on the GPU."""
    calls = tuple(
        ScheduledCall(
            name=name,
            network="net",
            output_bytes=64,
            modes=tuple(
                Mode(device=device, latency_s=s, low_s=s, high_s=s, kernel="some")
                for device, s in ((CPU, 1e-3), (GPU, 4e-3))
                if device in devices.get(name, (CPU, GPU))
            ),
        )
        for name in "ab"
    )
    return SchedulingProblem(
        devices=tuple(
            ScheduleDevice(name=name, kind=kind, cores=1)
            for name, kind in ((CPU, "cpu"), (GPU, "cuda"))
        ),
        calls=calls,
        waits=(Wait(before="a", after="b", bytes=64),),
        links=tuple(
            Link(origin=one, destination=other, latency_s=1e-6, bytes_per_s=1e10)
            for one, other in ((CPU, GPU), (GPU, CPU))
        ),
        handoff_s=1e-3,
    )


def test_a_device_alone_is_promised_its_own_times() -> None:
    problem = two_calls()
    assert simulate(problem, alone_on(problem, GPU)).objective == pytest.approx(8e-3)
    assert simulate(problem, alone_on(problem, CPU)).objective == pytest.approx(2e-3)


def test_a_plan_is_carried_out_in_thought_with_what_parts_copies_and_hand_offs_took() -> None:
    """`a` on the CPU took twice what was promised, `b` on the GPU half of it, a hand-off half of
    what was planned."""
    problem = two_calls()
    mixed = schedule_with("sequential", two_calls(a=[CPU], b=[GPU]))
    slots = (replace(slot, mode=int(slot.call == "b")) for slot in mixed.slots)
    schedule = without_pauses(problem, replace(mixed, slots=tuple(slots)))
    really = as_measured(problem, PARTS, {"a": 2e-3, "b": 2e-3}, {True: 3e-4, False: 0.0}, 5e-4)
    assert simulate(really, schedule).objective == pytest.approx(2e-3 + 3e-4 + 5e-4 + 2e-3)


def test_a_hand_off_is_what_lies_between_parts_of_several_places_and_at_both_ends() -> None:
    copy = Copied(tensor="a", to_device=True, begin_s=4.0, end_s=4.5)
    spans = (
        Span(part="a", network="net", place=(CPU, (0,)), begin_s=1.0, end_s=3.0),
        Span(part="b", network="net", place=(GPU, (0,)), begin_s=4.0, end_s=6.0, copies=(copy,)),
    )
    asked = Asked(began_s=0.5, ended_s=6.25, spans=spans)
    assert list(asked.handoffs_s(PARTS)) == [0.5, 1.0, 0.25]
    assert list(own_s("b", [asked])) == [1.5]


def test_ways_are_told_beside_the_better_device() -> None:
    def line(part: str, way: str, **more: object) -> dict[str, object]:
        return {"part": part, "network": "net", "way": way, **more}

    found = [
        line("promised", "alone on a", promised_s=2e-3, parts={"a": 1}),
        line("promised", "planned", promised_s=1e-3, parts={"a": 1, "b": 1}),
        line("time", "alone on a", samples_s=[3e-3] * 3),
        line("time", "planned", samples_s=[2e-3] * 3),
        line("simulated", "planned", simulated_s=1.9e-3, handoff_s=1e-4),
        line("same", "planned", error=1e-7),
    ]
    rows = report(found).splitlines()
    assert rows[2] == "| net | alone on a | 1 a | 2.000 | 3.000 | 3.000 | 1.00 | – | – | – |"
    assert rows[3].endswith("| 1.000 | 2.000 | 2.000 | 1.50 | 0.95 | 100 | 1.0e-07 |")


def test_nothing_else_is_compiled_where_a_device_is_lost(tmp_path: Path) -> None:
    from card.plans import CarriedParts

    parts = CarriedParts.__new__(CarriedParts)
    with pytest.raises(TargetError, match="nothing else was compiled"):
        parts.left({"llvm"}, {})
    assert parts.fastest_alone() is None
