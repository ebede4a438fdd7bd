"""Sides of a comparison get the same number of candidates, and its tables tell who is faster."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import convolution_sides as sides
import units_and_layouts as benchmark
import units_and_layouts_tables as tables
from convolution_sides import BEST, DRAWN, MORE, Layer, Side
from helpers.kernels.convolutions import conv
from tilewright.core.forms import CHANNELS_LAST, channel_block
from tilewright.core.records import Placement
from tilewright.graph.evaluate import run_workload
from tilewright.graph.workload import Workload
from tilewright.hardware.device import described_placement

POINTWISE = conv((1, 64, 14, 14), 64, (1, 1), "bru")
SQUARE = conv((1, 64, 14, 14), 64, (3, 3), "bu", padding=(1,) * 4)


@pytest.fixture(autouse=True)
def processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on every machine."""
    levels = {"AVX-512": "x86-64-v4", "AVX2": "x86-64-v3"}

    def described(unit: str) -> Placement:
        return described_placement({"kind": "llvm", "mcpu": levels[unit]}, 1)

    monkeypatch.setattr(sides, "placement", described)
    sides.families.cache_clear()


@pytest.mark.parametrize("side", sides.SIDES, ids=lambda side: side.name)
@pytest.mark.parametrize("task", [POINTWISE, SQUARE])
def test_every_side_gets_the_same_number_of_different_candidates(
    task: Workload, side: Side
) -> None:
    chosen = sides.choices_of(task, side)
    assert len(set(chosen)) == len(chosen) == BEST + DRAWN
    assert sides.choices_of(task, side) == chosen, "the same again, whoever asks"
    for _, candidate in chosen:
        ends = candidate.forms[0], candidate.forms[-1]
        if side.layout == "NHWC":
            assert ends == (CHANNELS_LAST, CHANNELS_LAST)
        else:
            blocks = [channel_block(form) > 0 for form in ends]
            assert blocks == [side.layout == "NCHWc"] * 2
    registers = sides.placement(side.unit).target.vector_registers
    tiles = [f.tile(i) for f in sides.families(task, side) for i in (0, -1)]
    assert all(rows * vectors < registers for rows, vectors, _ in tiles)  # pyright: ignore


def test_the_best_come_first_and_each_tile_once() -> None:
    (family, *_) = sides.families(POINTWISE, Side("AVX2", "NCHWc"))
    found = list(islice(sides.best_first(family, np.random.default_rng(0)), BEST))
    assert family.estimates_s[found].tolist() == sorted(family.estimates_s[found])
    assert family.estimates_s[found[0]] == family.estimates_s.min()
    assert len({family.tile(index) for index in found}) == BEST


def test_a_pointwise_convolution_is_a_product_of_rows_of_pixels() -> None:
    product = sides.as_product(POINTWISE)
    assert product is not None and sides.as_product(SQUARE) is None
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a.type.shape, np.float32) for a in POINTWISE.arguments]
    rows = [a.reshape(p.type.shape) for a, p in zip(arrays, product.arguments, strict=True)]
    expected = run_workload(POINTWISE, arrays)
    found = run_workload(product, rows).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    names = {f.name for f in sides.families(POINTWISE, Side("AVX-512", "NCHW"))}
    assert names == {"conv2d_direct", "batch_matmul_tiled"}


def test_a_wider_space_has_what_the_usual_one_lacks() -> None:
    side = Side("AVX2", "NCHWc")
    more = sides.more_choices(SQUARE, side)
    assert {name: len(chosen) for name, chosen in more.items()} == {"drawn": MORE, "outside": MORE}
    usual = {(s.spec.name, s.forms): s.part for f in sides.families(SQUARE, side) for s in f.spaces}
    for name, inside in (("drawn", True), ("outside", False)):
        for _, candidate in more[name]:
            knobs = usual[candidate.implementation, candidate.forms].knobs
            number = knobs.number(dict(candidate.settings))
            assert (number is not None and knobs.valid(number)) is inside


def line(network: str, us: float, nhwc_us: float) -> dict[str, object]:
    def side(value: float) -> dict[str, object]:
        settings = {"tile_width": 7, "tile_height": 1, "tile_out": 2, "lanes": 16}
        of = {"implementation": "conv2d_direct", "settings": settings, "place": 5}
        return {"us": value, "low": 0.99 * value, "high": 1.01 * value, **of}

    told = {side_.name: side(us) for side_ in sides.SIDES}
    return {
        "of": "comparison",
        "key": network,
        "name": f"{network} a.layer",
        "calls": {network: 2},
        "conv": benchmark.described(SQUARE),
        "settings": dict.fromkeys(told, 100),
        "sides": {**told, "AVX-512 NHWC": side(nhwc_us)},
    }


def test_tables_tell_who_is_faster(tmp_path: Path) -> None:
    rows = [line("resnet50", 100.0, 200.0), line("vgg19_bn", 100.0, 50.0)]
    again = {**rows[1], "of": "again", "layout": "NHWC"}
    ours = rows[1]["sides"]["AVX-512 NHWC"]  # pyright: ignore
    again["sides"] = {
        "NCHWc": rows[0]["sides"]["AVX2 NCHWc"],
        "NHWC": ours,
        "in": ours,
        "out": ours,
    }  # pyright: ignore
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, [*rows, again])) + '\n{"of": "compa')
    text = tables.rendered(list(benchmark.read(path).values()))
    assert (
        "| **all** | 2 | 1.000 (1.00 to 1.00) | 1.000 (1.00 to 1.00) | 1.000 (0.50 to 2.00) |"
        in text
    )
    assert "AVX-512 NHWC is faster than AVX-512 NCHWc 1 times and slower 1 times" in text
    assert "| resnet50 | 1 | 0.2 | 1.000 | 1.000 | 2.000 |" in text
    assert "| NHWC | 100 µs (direct 7×2) | 50 µs (direct 7×2) | 0.50 | yes | 1.50 |" in text


def test_a_dozen_of_all_kinds_is_looked_at_closely() -> None:
    tasks = [conv((1, 16, 8, 8), 16 + n, (k, k)) for n in range(20) for k in (1, 3)]
    found = benchmark.spread_out([Layer(workload=t, name="", calls={}) for t in tasks])
    assert len({layer.workload.key for layer in found}) == benchmark.SAMPLED
    kernels = {layer.workload.types[1].shape[2:] for layer in found}
    assert kernels == {(1, 1), (3, 3)}


def test_tiles_that_fit_are_those_of_the_unit_and_spaces_hold_good_ones() -> None:
    tiles = {unit: {(t.rows, t.vectors) for t in sides.fitting_tiles(unit)} for unit in sides.UNITS}
    assert {(6, 2), (4, 3)} <= tiles["AVX2"] < tiles["AVX-512"]
    assert (7, 2) in tiles["AVX-512"] - tiles["AVX2"]
    losses = {unit: sides.tile_loss(POINTWISE, unit) for unit in sides.UNITS}
    assert all(1.0 <= loss < 1.1 for loss in losses.values())
    assert "| AVX2 | 30 | 4×3, 6×2, 3×3" in tables.rendered(
        [], [Layer(workload=POINTWISE, name="", calls={})]
    )


class Disturbed:
    """A bench whose first samples of everything are disturbed, `times` over."""

    def __init__(self, times: int) -> None:
        self.times, self.compared = times, 0

    def build(self, choices: object, unit: str) -> list[object]:
        return []

    def compare(self, built: object) -> dict[str, dict[str, float]]:
        self.compared += 1
        high = 150.0 if self.compared <= self.times else 101.0
        return {"AVX2 NCHWc": {"us": 100.0, "low": 99.0, "high": high}}

    def release(self, built: object) -> None:
        pass


@pytest.mark.parametrize(("times", "compared", "high"), [(0, 1, 101), (2, 3, 101), (9, 3, 150)])
def test_what_was_disturbed_is_timed_again(
    times: int, compared: int, high: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"name": "a.layer", "conv": benchmark.described(SQUARE)}
    work = benchmark.Work(key="a", sides={"AVX2 NCHWc": ("AVX2", [])}, told=told)
    monkeypatch.setattr(benchmark, "wanted", lambda found, known: [("comparison a", lambda: work)])
    bench, path = Disturbed(times), tmp_path / "lines.jsonl"
    queue = benchmark.Queue(bench, path, [])  # pyright: ignore
    queue.fill(1.0)
    queue.time_some()
    row = benchmark.read(path)["comparison a"]
    assert (bench.compared, row["sides"]["AVX2 NCHWc"]["high"]) == (compared, high)
    queue.fill(1.0)
    assert not queue.ready, "what is there is not built again"


def test_more_is_drawn_where_a_unit_is_furthest_behind() -> None:
    tasks = [conv((1, 16, 8, 8), 16 + 8 * n) for n in range(5)]
    found = [Layer(workload=task, name=str(n), calls={}) for n, task in enumerate(tasks)]
    known = {
        f"comparison {task.key}": {
            "sides": {"AVX-512 NCHWc": {"us": 10.0}, "AVX2 NCHWc": {"us": us}}
        }
        for task, us in zip(tasks[1:], [11.0, 30.0, 9.0, 20.0], strict=True)
    }
    behind = {unit: benchmark.far_behind(found, known, unit) for unit in sides.UNITS}
    assert [layer.name for layer in behind["AVX2"]] == ["2", "4", "1"]
    assert [layer.name for layer in behind["AVX-512"]] == ["3", "1", "4"]
