"""The dense layer in tile registers: run by a software tile unit, compiled for AMX."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.in_halves import HALF, check, halved
from tilewright.compiler.build import rendered
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import ComputeUnit
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware import probe
from tilewright.hardware.device import local_placement, parse_target
from tilewright.kernels.dense_amx import UNIT
from tilewright.kernels.spaces import default_candidate, spaces

TILES = ComputeUnit(
    name=UNIT,
    element=HALF,
    accumulator="float32",
    granule=(16, 16, 32),
    operations_per_cycle=1024,
)
INTEL = replace(parse_target("llvm -mcpu=sapphirerapids", 2), precision=HALF)


def here() -> Placement:
    """This machine, with tile registers in software."""
    place = replace(local_placement(2), precision=HALF)
    features = tuple(name for name in place.target.features if not name.startswith("amx-"))
    units = (*(unit for unit in place.target.units if unit.name != UNIT), TILES)
    target = replace(place.target, features=features, units=units)
    return replace(place, device=replace(place.device, target=target))


def dense(rows: tuple[int, ...], depth: int, columns: int) -> Workload:
    arguments = (
        Argument(type=TensorType((*rows, depth))),
        Argument(type=TensorType((depth, columns)), role="constant"),
        Argument(type=TensorType((columns,)), role="constant"),
    )
    steps = (
        Step(operator="dense", inputs=(0, 1)),
        Step(operator="add", inputs=(3, 2)),
        Step(operator="relu", inputs=(4,)),
    )
    return Workload(arguments=arguments, steps=steps)


@settings(max_examples=12, deadline=None)
@given(
    rows=st.integers(2, 70),
    depth=st.integers(1, 100),
    columns=st.integers(1, 70),
    choice=st.integers(0, 7),
    halves=st.tuples(st.booleans(), st.booleans()),
    leading=st.booleans(),
)
def test_results_are_those_of_numpy(
    rows: int,
    depth: int,
    columns: int,
    choice: int,
    halves: tuple[bool, bool],
    leading: bool,
) -> None:
    forms = (halved(PLAIN, halves[0]), PLAIN, PLAIN, halved(PLAIN, halves[1]))
    shape = (1, rows) if leading else (rows,)
    check(dense(shape, depth, columns), here(), "dense_amx", forms, choice)


@pytest.mark.parametrize(
    ("tile_rows", "block", "products"), [(32, 32, 4), (16, 32, 2), (16, 16, 1)]
)
def test_it_compiles_to_instructions_of_amx(tile_rows: int, block: int, products: int) -> None:
    task, forms = dense((128,), 768, 64), (PLAIN,) * 4
    chosen = {"block": block, "order": "rows", "tile_rows": tile_rows}
    candidate = Candidate(
        implementation="dense_amx", settings=tuple(sorted(chosen.items())), forms=forms
    )
    text = rendered(task, candidate, INTEL.target, INTEL.resources, "asm")
    products = tile_rows * block // 256
    assert text.count("tdpbf16ps") == products, "sums stay in registers over an inner loop"
    assert "ldtilecfg" in text and "tilerelease" in text


def test_it_is_not_believed_before_it_was_measured() -> None:
    task, forms = dense((128,), 768, 64), (PLAIN,) * 4
    for place in (here(), INTEL):
        offered = [space.spec.name for space in spaces(task, forms, place)]
        assert "dense_amx" in offered
        assert default_candidate(task, forms, place)[0].implementation != "dense_amx"
    single = replace(INTEL, precision="float32")
    assert "dense_amx" not in [space.spec.name for space in spaces(task, forms, single)]


def test_registers_that_a_process_may_not_use_are_no_feature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = {
        "processor": "0",
        "flags": "avx512f amx_tile amx_bf16 amx_int8",
        "model name": "an Intel CPU",
    }
    monkeypatch.setattr(probe, "cpuinfo_blocks", lambda _: [block])
    for permitted in (True, False):
        monkeypatch.setattr(probe, "tiles_permitted", lambda permitted=permitted: permitted)
        found = probe.probe_cpu()
        assert ("amx-tile" in found.features) == permitted
        assert any(unit.name == UNIT for unit in found.units) == permitted
    elsewhere = probe.probe_cpu(Path("/nowhere"))
    assert "amx-tile" in elsewhere.features, "of a copy of another machine's files nothing is known"
