"""ARM's dot products: what is compiled for them, and what comes out under user-mode emulation."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import emulated_kernels
from emulated_kernels import CASES, Case
from helpers.kernels.arm_code import needs_emulation, spilled
from helpers.kernels.in_halves import halved
from tilewright.compiler.build import rendered
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.hardware.device import parse_target
from tilewright.kernels import conv2d_int8
from tilewright.kernels.base import HALF
from tilewright.kernels.conv2d_int8 import SPEC as CONVOLUTION
from tilewright.kernels.int8_case import int8_case
from tilewright.kernels.spaces import default_candidate, ranked_defaults
from tilewright.testing.implementations import single

EVERY = "-mattr=+neon,+dotprod,+i8mm,+bf16"
DOTS = {"sdot", "udot", "usdot", "sudot", "bfdot", "smlal", "smlal2", "mla", "fmla"}


def arm(options: str, precision: str = "float32", triple: str = "aarch64-linux-gnu") -> Placement:
    return replace(parse_target(f"llvm -mtriple={triple} {options}", 2), precision=precision)


def default_of(task: Workload, forms: tuple[Form, ...], on: Placement, name: str) -> Candidate:
    """The default setting of the kernel of that name."""
    (found,) = (c for c, _ in ranked_defaults(task, forms, on) if c.implementation == name)
    return found


def assembly(task: Workload, forms: tuple[Form, ...], on: Placement, name: str) -> str:
    """The machine code of the kernel of that name in its default setting."""
    return rendered(task, default_of(task, forms, on, name), on.target, on.resources, "asm")


def mnemonics(task: Workload, forms: tuple[Form, ...], on: Placement, name: str) -> list[str]:
    """Its instructions."""
    text = assembly(task, forms, on, name)
    return re.findall(r"^\t([a-z][\w.]*)\t", text, flags=re.MULTILINE)


def multiplied_by(found: list[str]) -> set[str]:
    return DOTS.intersection(found)


@pytest.mark.parametrize(
    ("options", "dtype", "instruction"),
    [
        ("-mattr=+neon,+dotprod", "int8", "sdot"),
        ("-mattr=+neon,+dotprod", "uint8", "sdot"),
        ("-mcpu=neoverse-n1", "uint8", "sdot"),
        (EVERY, "int8", "sdot"),
        (EVERY, "uint8", "usdot"),
        ("-mcpu=neoverse-v1", "uint8", "usdot"),
    ],
)
def test_codes_are_multiplied_by_dot_products(options: str, dtype: str, instruction: str) -> None:
    """Unsigned data without the instruction for it is made signed by a flip of its highest bits:
    in vectors where a border makes a copy, else word by word in front of the dot products."""
    on, forms = arm(options), (blocked(16), PLAIN, blocked(16))
    for kernel, flip in ((1, r"\teor\t(w\d+), \1, w\d+$"), (3, r"\teor\tv")):
        task = int8_case(kernel, data=dtype)[0]
        found = mnemonics(task, forms, on, "conv2d_int8")
        assert multiplied_by(found) == {instruction}
        assert found.count(instruction) >= 16, "a register of sums for each four lanes of the tile"
        flips = re.findall(flip, assembly(task, forms, on, "conv2d_int8"), flags=re.MULTILINE)
        assert bool(flips) == ((instruction, dtype) == ("sdot", "uint8"))
    layer = emulated_kernels.drawn(Case("dense_int8", (), "", dtype), np.random.default_rng(1))
    found = mnemonics(layer, (PLAIN,) * (len(layer.arguments) + 1), on, "dense_int8")
    assert instruction in multiplied_by(found) <= {instruction, "fmla"}


@pytest.mark.parametrize("block", [4, 16])
@pytest.mark.parametrize("kernel", [1, 3])
def test_sums_stay_in_registers(kernel: int, block: int) -> None:
    """LLVM spells out the taps, and loads what they broadcast ahead: that needs registers, too."""
    task, on = int8_case(kernel, filters=64, data="uint8")[0], arm(EVERY)
    candidate = default_of(task, (blocked(block), PLAIN, blocked(block)), on, "conv2d_int8")
    text = rendered(task, candidate, on.target, on.resources, "asm")
    assert not spilled(text, "usdot")
    spilling = dict(candidate.settings) | {"tile_width": 28, "tile_height": 1, "tile_out": 1}
    forms = candidate.forms
    assert not CONVOLUTION.valid(task, on.target, on.resources, forms, spilling)


def test_without_dot_products_codes_are_widened() -> None:
    task = int8_case(3)[0]
    for on in (arm("-mattr=+neon"), arm(EVERY, triple="armv8a-linux-gnueabihf")):
        found = mnemonics(task, (blocked(4), PLAIN, blocked(4)), on, "conv2d_int8")
        assert not {"sdot", "usdot", "vsdot.s8", "vusdot.s8"}.intersection(found)


@pytest.mark.parametrize("options", [EVERY, "-mcpu=neoverse-n2"])
@pytest.mark.parametrize("block", [4, 16])
def test_halves_are_multiplied_by_dot_products(options: str, block: int) -> None:
    on, form = arm(options, HALF), halved(blocked(block), True)
    conv = single(
        "conv2d", (1, 32, 14, 14), (32, 32, 1, 1), constants=(1,),
        strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1,
    )  # fmt: skip
    found = mnemonics(conv, (form, PLAIN, form), on, "conv2d_bfloat16")
    assert multiplied_by(found) == {"bfdot"} and found.count("bfdot") >= 16
    named = options == EVERY
    assert ("bfcvtn" in found) == named, "by name of a processor TVM does not tell its instructions"
    dense = single("dense", (32, 64), (64, 64), constants=(1,))
    found = mnemonics(dense, (halved(PLAIN, True), PLAIN, PLAIN), on, "dense_bfloat16")
    assert multiplied_by(found) == {"bfdot"}


def test_single_precision_needs_no_more_than_it_did() -> None:
    """Where nobody asks for another precision the dot products change no kernel."""
    conv = single(
        "conv2d", (1, 32, 14, 14), (32, 32, 3, 3), constants=(1,),
        strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1,
    )  # fmt: skip
    forms = (blocked(4), PLAIN, blocked(4))
    plain, more = (
        default_candidate(conv, forms, arm(options)) for options in ("-mattr=+neon", EVERY)
    )
    assert plain == more


@needs_emulation
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join([c.kernel, *c.features, c.data]))
def test_results_are_those_of_numpy_under_emulation(case: Case) -> None:
    found = emulated_kernels.run(case, 2, seed=7)
    assert found.kernels == 2 and not found.wrong


@needs_emulation
def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of data that was made signed, and nothing added to them again."""
    case = Case("conv2d_int8", ("dotprod",), "neoverse-n1", "uint8")
    given = conv2d_int8.with_offsets
    monkeypatch.setattr(
        conv2d_int8, "with_offsets", lambda packed, sums, added: given(packed, 0 * sums, added)
    )
    assert emulated_kernels.run(case, 4, seed=7).wrong
