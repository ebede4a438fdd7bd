"""Kernels for GPUs that memory limits, compiled for four architectures: nothing is spilled."""

from __future__ import annotations

import pytest

from helpers.kernels.cuda_settings import check_compiled
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.builders.cuda import program_of
from tilewright.compiler.cuda import compilers
from tilewright.compiler.cuda.compilers import Compiled
from tilewright.core.forms import PLAIN, parse_form
from tilewright.core.records import Candidate
from tilewright.graph.network import TensorType
from tilewright.hardware.gpus import CompilerReport
from tilewright.measure.targeting import placement_of

NORM = dict(axis=1, epsilon=1e-5)
WINDOW = dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=8)
HALVES = TensorType((64, 96), "float16")
TASKS = [
    (workload([HALVES] * 2, step("add", 0, 1), step("gelu", 2)), "cuda_stream"),
    (workload([(65, 96)] * 3, step("add", 0, 1), step("multiply", 3, 2)), "cuda_stream"),
    (workload([(8, 33, 65)], step("transpose", 0, permutation=(0, 2, 1))), "cuda_stream"),
    (
        workload([(64, 4096), (4096,), (4096,)], step("layer_norm", 0, 1, 2, **NORM)),
        "cuda_rows",
    ),
    (workload([(8, 128, 256)], step("softmax", 0, axis=1), step("gelu", 1)), "cuda_rows"),
    (
        workload([(1, 8, 28, 28), (8, 1, 3, 3)], step("conv2d", 0, 1, **WINDOW), step("relu", 2)),
        "cuda_window",
    ),
    (
        workload([(3, 4, 512), (3, 512, 64)], step("batch_matmul", 0, 1, transpose_b=False)),
        "cuda_vector",
    ),
]


@pytest.mark.parametrize(
    "arch",
    [
        "sm_75",
        *(pytest.param(it, marks=pytest.mark.on_request) for it in ("sm_80", "sm_90")),
        "sm_120",
    ],
)
def test_nothing_is_spilled(arch: str) -> None:
    check_compiled(TASKS, arch)


@pytest.mark.parametrize(("left_bytes", "kept"), [(0, b"bound"), (8, b"bound"), (40, b"free")])
def test_a_kernel_that_spills_is_compiled_for_one_block(
    monkeypatch: pytest.MonkeyPatch, left_bytes: int, kept: bytes
) -> None:
    """ptxas spills for one more block on a multiprocessor; asked for one, it often does not."""
    said: list[str] = []

    def compiled(source: str, *_others: str) -> Compiled:
        said.append(source)
        bound = source.count("(256, 1)") == 2
        return Compiled(
            binary=b"bound" if bound else b"free",
            reports={
                "main_kernel": CompilerReport(
                    registers=64,
                    spill_store_bytes=left_bytes if bound else 20,
                    spill_load_bytes=0 if bound else 20,
                    stack_bytes=24,
                    shared_bytes=0,
                )
            },
        )

    monkeypatch.setattr(compilers, "_compiled", compiled)
    bounds = "extern void __launch_bounds__(256) main_kernel()"
    assert compilers.compiled_source(f"{bounds};\n{bounds} {{}}", "sm_120").binary == kept
    assert len(said) == 2


@pytest.mark.skipif(compilers.missing_compiler() != "", reason="neither nvcc nor NVRTC is here")
def test_the_first_layer_of_resnet_on_matrix_units_does_not_spill() -> None:
    """Batch 32, channels last, for sm_120: 40 bytes of a thread were spilled."""
    kernel = dict(strides=(2, 2), padding=(3,) * 4, dilation=(1, 1), groups=1)
    task = workload(
        [(32, 3, 224, 224), (64, 3, 7, 7), (64, 1, 1)],
        *(step("conv2d", 0, 1, **kernel), step("add", 3, 2), step("relu", 4)),
    )
    on = placement_of("cuda -arch=sm_120", None, None)
    forms = (parse_form("acdb"), PLAIN, PLAIN, parse_form("acdb"))
    tiles = dict(tile_columns=64, tile_depth=8, tile_rows=128, warp_columns=32, warp_rows=32)
    settings = dict(by_taps=False, split=1, stages=1) | tiles
    candidate = Candidate(
        implementation="cuda_product_tf32", settings=tuple(settings.items()), forms=forms
    )
    source = program_of(task, candidate, on.target, on.resources).source
    assert compilers.compiled_source(source, "sm_120").spilled_bytes == 0
