"""`explain` of a CUDA target, with made-up code in the place of TVM's.

The operator is a product of `m` rows; each row is a block of 256 threads with 64 registers. Eight
warps of 64 registers are a quarter of the 32 that an H100's multiprocessor has registers for, so it
holds four blocks, and its 132 multiprocessors 528.
"""

from __future__ import annotations

from math import ceil

import pytest

from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Note
from tilewright.core.predictions import TurningPoint
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CompilerReport, CudaCode, CudaKernel
from tilewright.hardware.target import parse_gpu
from tilewright.insight import cuda_explaining
from tilewright.insight.cuda_explaining import CudaExplainer, cuda_explainer
from tilewright.insight.single_operators import around
from tilewright.kernels.estimates import facts
from tilewright.kernels.registry import implementation
from tilewright.models import ModelOptions

ROWS = "op:dense[m={},k=64,n=64]"
WAVE = 528
REPORT = CompilerReport(
    registers=64, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0, shared_bytes=0
)


class Inspector:
    """A block for each row; fewer than 300 rows are reduced instead of tiled, with more stores.
    Without the compiler no registers are known, and of 264 rows it knows nothing."""

    compiled = made = 0

    def __init__(self, placement: object) -> None:
        del placement

    def __enter__(self) -> Inspector:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Nothing to stop."""

    def code(self, workload: Workload, candidate: Candidate, *, compiled: bool = True) -> CudaCode:
        rows, depth = workload.arguments[0].type.shape
        known = compiled and rows != WAVE // 2
        tiled = rows >= 300
        Inspector.compiled += compiled
        Inspector.made += 1
        kernel = CudaKernel(
            name="main_kernel",
            grid=(rows, 1, 1),
            block=(256, 1, 1),
            loads=depth * (1 + 1e-12 * rows),
            guarded=0.0,
            comparisons=0.0,
            stores=1.0 if tiled else 66.0,
            sectors=4.0,
            shared_bytes=0,
            report=REPORT if known else None,
        )
        return CudaCode(
            rule="Matmul" if tiled else "Reduction",
            kernels=(kernel,),
            source="",
            reason="" if known else "no nvcc here",
        )


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    monkeypatch.setattr(cuda_explaining, "CudaInspector", Inspector)
    monkeypatch.setattr(Inspector, "compiled", 0)
    monkeypatch.setattr(Inspector, "made", 0)
    return []


def explainer(heard: list[Event], target: str = "cuda -model=H100") -> CudaExplainer:
    return cuda_explainer(target, None, heard.append, ModelOptions(), "cuda_default")


def notes(heard: list[Event]) -> list[str]:
    return [event.message for event in heard if isinstance(event, Note)]


def test_an_operator_turns_where_a_wave_begins_and_where_the_rule_changes(
    heard: list[Event],
) -> None:
    """Around 528 rows, 17 values from 264 to 1056: one more wave at 561, another rule at 314."""
    found = explainer(heard).explain(ROWS.format(WAVE))
    assert (found.facts["waves"], found.facts["tail"]) == (1.0, 0.0)
    assert (found.facts["registers"], found.facts["blocks_per_multiprocessor"]) == (64, 4)
    rule, wave = found.turning_points
    assert (wave.parameter, wave.value, wave.fact) == ("m", 561, "waves")
    assert (wave.before, wave.after) == (1, 2)
    assert wave.ratio == pytest.approx(2 * WAVE / 561), "twice the time for 33 rows more"
    assert (rule.parameter, rule.value, rule.fact) == ("m", 314, "waves, Reduction to Matmul")
    assert (rule.before, rule.after) == (1, 1)
    assert rule.ratio == pytest.approx(264 / 314 * 65 / 130), "half as many loads and stores"
    assert Inspector.compiled == 1, "the compiler takes long: it is asked for the operator alone"
    assert (found.ratio, found.differences, found.reason) == (None, (), "")
    assert notes(heard) == []


def test_kernels_with_settings_turn_where_their_facts_do_and_no_code_is_made(
    heard: list[Event],
) -> None:
    ours = cuda_explainer("cuda -model=T4", None, heard.append, ModelOptions())
    found = ours.explain("op:dense[m=2048,k=256,n=512]")
    assert Inspector.made == 1, "of the operator itself"
    assert found.turning_points

    def told(point: TurningPoint, value: int) -> tuple[int, float]:
        sizes = {"m": 2048, "k": 256, "n": 512} | {point.parameter: value}
        text = "op:dense[{}]".format(",".join(f"{name}={size}" for name, size in sizes.items()))
        workload, candidate = ours.kernel(text)
        on, settings = ours.placement, [dict(candidate.settings)]
        spec = implementation(candidate.implementation)
        known = facts(spec, workload, on.target, on.resources, candidate.forms, settings)
        return ceil(known["waves"][0]), float(known["estimate_s"][0]) / workload.flop

    for point in found.turning_points:
        values = around({"m": 2048, "k": 256, "n": 512}[point.parameter])
        before = values[values.index(point.value) - 1]
        (waves, cost), (waves_after, cost_after) = told(point, before), told(point, point.value)
        assert (point.before, point.after) == (waves, waves_after)
        assert point.ratio == pytest.approx(cost_after / cost)


def test_the_time_is_that_of_the_datasheet(heard: list[Event]) -> None:
    """2 · 528 · 64 · 64 FLOP at 66.9 TFLOP/s, or (528 · 64 · 2 + 64 · 64) · 4 bytes at 3.35 TB/s:
    the bytes take longer."""
    found = explainer(heard).explain(ROWS.format(WAVE))
    assert found.latency_s == pytest.approx(4 * (2 * WAVE * 64 + 64 * 64) / 3.35e12)
    assert (found.source, found.family) == ("roofline", "dense")


def test_two_operators_differ_in_what_is_not_alike(heard: list[Event]) -> None:
    """Texts, what only one has, and zero against a number come first; then the largest ratios.
    Loads that differ in the thirteenth digit do not differ."""
    found = explainer(heard).explain(ROWS.format(WAVE), versus=ROWS.format(WAVE // 2))
    differences = {it.fact: (it.first, it.second) for it in found.differences}
    unlimited = {"rule", "tail", "registers", "spill_bytes", "stack_bytes", "limited_by"}
    assert set(list(differences)[: len(unlimited)]) == unlimited
    assert differences["rule"] == ("Matmul", "Reduction")
    assert differences["registers"] == (64, None)
    assert differences["limited_by"] == ("registers", "threads")
    assert differences["waves"] == (1.0, 0.25)
    ratios = list(differences)[len(unlimited) :]
    assert ratios[:2] == ["stores", "waves"], "66 times and four times; the others twice"
    assert differences["grid_blocks"] == (WAVE, WAVE // 2)
    assert not {"loads", "block_threads", "warp_fill", "kernels"} & set(differences)
    assert found.ratio == pytest.approx((2 * WAVE + 64) / (WAVE + 64))


def test_what_the_compiler_does_not_tell_is_said(heard: list[Event]) -> None:
    found = explainer(heard).explain(ROWS.format(WAVE // 2))
    assert found.reason == "no nvcc here" and "registers" not in found.facts
    assert notes(heard) == ["registers and spills are not known: no nvcc here"]


def test_a_gpu_of_unknown_size_has_no_waves(heard: list[Event]) -> None:
    found = explainer(heard, "cuda -arch=sm_90").explain(ROWS.format(WAVE))
    assert (found.turning_points, found.latency_s) == ((), None)
    assert notes(heard) == ["waves are not known: the target names no GPU, so its size is unknown"]


def test_what_is_refused(heard: list[Event]) -> None:
    made = explainer(heard)
    assert (made.gpu, made.options) == (parse_gpu("cuda -model=H100"), ModelOptions())
    with pytest.raises(UsageError, match="--confirm is for CPUs"):
        made.explain(ROWS.format(WAVE), confirm=True)
    with pytest.raises(UsageError, match="'zoo:mlp' is no operator"):
        made.explain("zoo:mlp")
    with pytest.raises(UsageError, match="tracker"):
        cuda_explainer("cuda -model=H100", "localhost:9190", heard.append, ModelOptions())
    with pytest.raises(UsageError, match="no implementation called 'cuda_stream'"):
        cuda_explainer(
            "cuda -model=H100", None, heard.append, ModelOptions(), "cuda_stream"
        ).explain(ROWS.format(WAVE))


def test_the_kernels_are_those_with_the_least_estimate(heard: list[Event]) -> None:
    """Settings and the modelled time are facts, too."""
    ours = cuda_explainer("cuda -model=H100", None, heard.append, ModelOptions())
    _, candidate = ours.kernel(ROWS.format(WAVE))
    assert candidate.implementation == "cuda_product"
    found = ours.explain(ROWS.format(WAVE))
    assert " split=" in str(found.facts["settings"])
    assert float(found.facts["modelled_s"]) > (found.latency_s or 0) > 0
