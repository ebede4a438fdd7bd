"""The benchmark that executes odd shapes on the CPU: a sample of it, and that it sees faults."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice, product
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace

import numpy as np
import pytest

import cuda_bars
from cuda_shapes import FAMILIES, drawn, step, workload
from tilewright.core.forms import CHANNELS_LAST
from tilewright.core.records import Candidate
from tilewright.kernels.registry import applicable
from tilewright.testing.cuda_execution import compiler

H100 = cuda_bars.placement("cuda -model=H100")
pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [*((it, 7) for it in ("convolution", "dense", "rows", "attention")), ("codes", 8)],
)
def test_odd_shapes_are_right(kind: str, seed: int) -> None:
    task = FAMILIES[kind](np.random.default_rng(seed))
    covered, rng = cuda_bars.Covered(), np.random.default_rng(0)
    tried: list[str] = []
    for spec in applicable(task, H100.target, H100.resources):
        for settings in islice(covered.pick(spec, task, H100, rng), 1):
            candidate = Candidate(
                implementation=spec.name,
                settings=tuple(sorted(settings.items())),
                forms=cuda_bars.plain(task),
            )
            assert not cuda_bars.fault(task, candidate, H100)
            tried.append(spec.name)
    assert tried[1:], "TVM's own rules and at least one of ours"


def test_codes_are_summed_in_whole_numbers() -> None:
    drawn = [FAMILIES["codes"](np.random.default_rng(seed)) for seed in range(40)]
    kinds = {(task.anchor_name, task.arguments[0].type.dtype) for task in drawn}
    names = product(("dense", "batch_matmul", "conv2d"), ("int8", "uint8"))
    assert kinds == set(names) and {task.result.dtype for task in drawn} == {"int32"}


@pytest.mark.parametrize("kind", ["convolution", "depthwise", "windows", "stream"])
def test_images_of_odd_shapes_are_right_with_channels_last(kind: str) -> None:
    task = FAMILIES[kind](np.random.default_rng(7))
    covered, rng = cuda_bars.Covered(), np.random.default_rng(1)
    found = [
        candidate
        for spec in applicable(task, H100.target, H100.resources)
        if spec.name != cuda_bars.UNTUNED
        for candidate in cuda_bars.candidates(covered, spec, task, H100, rng)
        if CHANNELS_LAST in candidate.forms
    ]
    assert found
    for candidate in found[:2]:
        assert not cuda_bars.fault(task, candidate, H100)


def test_a_wrong_text_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum with the wrong sign, and barriers that are missing."""
    task = workload([(33, 24), (24, 17)], step("dense", 0, 1))
    candidate = Candidate(
        implementation=cuda_bars.UNTUNED, settings=(), forms=cuda_bars.plain(task)
    )
    made = cuda_bars.program(task, candidate, H100)
    assert "__syncthreads" in made.source
    for broken in (
        re.sub(r"(result_ptr\[.*\] = )(.*;)", r"\1 -\2", made.source, count=1),
        re.sub(r"__syncthreads\(\);", "", made.source),
    ):
        monkeypatch.setattr(
            cuda_bars, "program", lambda *_, text=broken: replace(made, source=text)
        )
        assert cuda_bars.fault(task, candidate, H100)


def test_draws_are_the_same_each_time_and_of_every_kind() -> None:
    texts = [task.text for _, task in drawn(40)]
    assert texts == [task.text for _, task in drawn(40)]
    assert len(set(texts)) > 35
    assert {kind for kind, _ in drawn(40)} == set(FAMILIES)


def test_what_was_never_tried_is_told() -> None:
    covered = cuda_bars.Covered()
    covered.offered = {("a", "tile", 4), ("a", "tile", 8)}
    covered.tried["a", "tile", 4] += 1
    assert covered.missing() == ["a.tile = 8"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["compile", "--only", "transposed"], "nothing is called transposed"),
        (["smooth", "--only", "cuda_rows"], "unrecognized arguments"),
        (["compile", "--only", "cuda_rows", "--page"], "leave out"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cuda_bars.main(given)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("part", ["shapes", "compile"])
def test_it_fails_where_nothing_was_looked_at(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda_bars, "get_context", lambda _: SimpleNamespace(Pool=ThreadPool))
    monkeypatch.setattr(cuda_bars, "tasks", lambda _: [])
    assert cuda_bars.main([part, "--count", "0"]) == 1
    assert "nothing was looked at" in capsys.readouterr().err
