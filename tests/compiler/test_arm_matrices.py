"""ARM's products of matrices: which kernels take them, what is compiled, and what comes out under
user-mode emulation (`test_arm_dots` runs a sample of every kernel there)."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import emulated_kernels
from emulated_kernels import Case
from helpers.kernels.arm_code import needs_emulation, spilled
from helpers.kernels.in_halves import halved
from helpers.kernels.products_of_codes import products
from helpers.networks.graph_builder import run_fused
from helpers.networks.tiny_networks import quantized_resnet
from tilewright.compiler.build import rendered
from tilewright.compiler.lower import mmla_text
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Placement
from tilewright.graph.arrange import arrange
from tilewright.graph.network import TensorType
from tilewright.graph.tasks import fused_network
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import parse_target
from tilewright.kernels.base import HALF
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.int8_case import int8_case
from tilewright.kernels.registry import applicable
from tilewright.kernels.spaces import default_candidate, ranked_defaults
from tilewright.measure.checking import sample_arguments
from tilewright.models.loading import load_model
from tilewright.testing.implementations import single

ARM = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod"
BOTH = parse_target(f"{ARM},+i8mm,+bf16", 2)
HALVES = replace(BOTH, precision=HALF)
IMAGE = halved(blocked(4), True)


def conv(channels: int, kernel: int) -> Workload:
    return single(
        "conv2d", (1, channels, 14, 14), (32, channels, kernel, kernel), constants=(1,),
        strides=(1, 1), padding=(kernel // 2,) * 4, dilation=(1, 1), groups=1,
    )  # fmt: skip


def layer(rows: tuple[int, ...]) -> Workload:
    return single("dense", (*rows, 96), (96, 64), constants=(1,))


def coded_layer(rows: int, data: str) -> Workload:
    weights = Argument(type=TensorType((96, 64), "int8"), role="constant")
    arguments = (Argument(type=TensorType((rows, 96), data)), weights)
    return Workload(arguments=arguments, steps=(Step(operator="dense", inputs=(0, 1)),))


def coded_conv(kernel: int, data: str) -> Workload:
    return int8_case(kernel, filters=64, data=data)[0]


BATCHED = single("batch_matmul", (12, 128, 64), (12, 64, 128), transpose_b=False)
SQUARES = (12, 128, 64), (12, 64, 128)
EIGHTS, WIDE = (blocked(8), PLAIN, blocked(8)), (blocked(16), PLAIN, blocked(16))


@pytest.mark.parametrize(
    ("task", "forms", "on", "kernel", "instruction"),
    [
        (coded_conv(1, "uint8"), EIGHTS, BOTH, "conv2d_mmla_int8", "usmmla"),
        (coded_conv(3, "int8"), WIDE, BOTH, "conv2d_mmla_int8", "smmla"),
        (conv(64, 1), (IMAGE, PLAIN, IMAGE), HALVES, "conv2d_mmla", "bfmmla"),
        (coded_layer(8, "uint8"), (PLAIN,) * 3, BOTH, "dense_mmla_int8", "usmmla"),
        (coded_layer(8, "int8"), (PLAIN,) * 3, BOTH, "dense_mmla_int8", "smmla"),
        (layer((32,)), (PLAIN,) * 3, HALVES, "dense_mmla", "bfmmla"),
        (BATCHED, (PLAIN,) * 3, HALVES, "batch_matmul_mmla", "bfmmla"),
        (
            products(*SQUARES, ("uint8", "int8")),
            *((PLAIN,) * 3, BOTH, "batch_matmul_mmla_int8", "usmmla"),
        ),
        (
            products(*SQUARES, ("int8", "uint8")),
            *((PLAIN,) * 4, BOTH, "batch_matmul_mmla_int8", "smmla"),
        ),
    ],
)
def test_matrices_are_multiplied_by_default_and_sums_stay_in_registers(
    task: Workload, forms: tuple[Form, ...], on: Placement, kernel: str, instruction: str
) -> None:
    """Each instruction does as much as two dot products, and there are none of those."""
    candidate, _ = default_candidate(task, forms, on)
    assert candidate.implementation == kernel
    text = rendered(task, candidate, on.target, on.resources, "asm")
    found = re.findall(r"^\t([a-z]*(?:mmla|dot))\t", text, flags=re.MULTILINE)
    assert set(found) == {instruction} and len(found) >= 16
    assert not spilled(text, instruction)


@pytest.mark.parametrize("precise", [True, False])
def test_one_row_is_left_to_dot_products(precise: bool) -> None:
    """It would leave half of each register empty; rows that lie apart are no rows either."""
    on = BOTH if precise else HALVES
    for task in (coded_layer(1, "uint8"),) if precise else (layer((1,)), layer((6, 1))):
        names = {spec.name for spec in applicable(task, on.target, on.resources)}
        assert not any("mmla" in name for name in names)
        assert {"dense_int8", "dense_bfloat16"} & names


@pytest.mark.parametrize(
    "options",
    [ARM, f"{ARM},+sve", "llvm -mtriple=armv8a-linux-gnueabihf -mattr=+neon,+i8mm,+bf16"],
)
def test_other_processors_have_no_such_kernels(options: str) -> None:
    on = parse_target(options, 2)
    for task in (
        coded_conv(1, "uint8"),
        conv(32, 3),
        layer((32,)),
        coded_layer(8, "int8"),
        BATCHED,
    ):
        assert not any("mmla" in s.name for s in applicable(task, on.target, on.resources))


@needs_emulation
def test_a_kernel_that_mixes_lines_up_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmla_text, "STORED", mmla_text.STORED[::-1])
    case = Case("conv2d_mmla_int8", ("i8mm",), "max", "uint8")
    assert emulated_kernels.run(case, 2, seed=7).wrong


@needs_emulation
def test_bfloat16_is_rounded_as_by_dot_products_under_emulation() -> None:
    """Products, sums of two and totals to the odd neighbour, and what is below 1.2e-38 to zero."""
    case, task = Case("dense_mmla", ("bf16",), "max"), layer((5,))
    ranked = ranked_defaults(task, (PLAIN,) * 3, case.placement)
    kernels = {c.implementation: c for c, _ in ranked}
    arrays = sample_arguments(task, 0)
    for scale in (1.0, 1e-20):
        given = [array * np.float32(scale) for array in arrays]
        by_matrices, by_dots = (
            emulated_kernels.emulated(case, task, kernels[name], given)
            for name in ("dense_mmla", "dense_bfloat16")
        )
        np.testing.assert_array_equal(by_matrices, by_dots)
        assert bool(by_matrices.any()) == (scale == 1.0)


@needs_emulation
@pytest.mark.on_request
def test_every_kernel_of_a_quantized_network_is_exact_under_emulation() -> None:
    """Images of codes lie in blocks of eight, of which two pixels are a register."""
    network = fused_network(load_model(quantized_resnet("basic_1_1"), "tiny").graph)
    image = np.random.default_rng(0).standard_normal((1, 3, 48, 48), dtype=np.float32)
    values = {**run_fused(network, {"input": image}), **network.graph.constants}
    forms, used = choose_forms(network, BOTH.target, BOTH.resources), set[str]()
    assert blocked(8) in forms.values()
    case = Case("", ("dotprod", "i8mm", "bf16"), "max")
    for item in arrange(network, forms).calls:
        task, call = item.call.workload, item.call
        candidate, _ = default_candidate(task, item.forms, BOTH)
        used.add(candidate.implementation)
        if "mmla" in candidate.implementation:
            given = zip(call.inputs, task.arguments, strict=True)
            arrays = [values[name].reshape(argument.type.shape) for name, argument in given]
            result = emulated_kernels.emulated(case, task, candidate, arrays)
            wanted = values[call.output].reshape(task.result.shape)
            np.testing.assert_array_equal(result, wanted, err_msg=call.name)
    assert "conv2d_mmla_int8" in used
