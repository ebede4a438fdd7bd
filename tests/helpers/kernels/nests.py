"""Loop nests of which everything is known: a convolution with given tiles, and a product."""

from __future__ import annotations

from tvm.script import tirx as T

from helpers.kernels.one_kernel import PLACEMENT, step
from helpers.kernels.packed_kernel import constants_workload
from tilewright.compiler.build import kernel_module
from tilewright.compiler.features.kinds import Nest
from tilewright.compiler.features.loops import loop_nests
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.records import Candidate

CONV = constants_workload(
    [(1, 32, 14, 14), (32, 32, 3, 3), (32, 1, 1)],
    [1, 2],
    [
        step("conv2d", 0, 1, strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1),
        step("add", 3, 2),
        step("relu", 4),
    ],
)


SETTINGS = {
    "lanes": 8, "tile_width": 2, "tile_height": 3, "tile_out": 1, "order": "rows", "in_block": 8,
    "reduce_order": "chunk,ky,kx,lane", "unroll": "none", "padding": "stage", "cache_chunks": 0,
}  # fmt: skip


def conv_nests(**changed) -> list[Nest]:
    """Nests of the direct convolution with known tiles."""
    candidate = Candidate(
        implementation="conv2d_direct",
        settings=tuple({**SETTINGS, **changed}.items()),
        forms=(blocked(8), PLAIN, PLAIN, blocked(8)),
    )
    return loop_nests(kernel_module(CONV, candidate, PLACEMENT.target, PLACEMENT.resources)["main"])


@T.prim_func(s_tir=True)
def product(a: T.Buffer((8, 6), "float32"), b: T.Buffer((6, 4), "float32"),
            c: T.Buffer((8, 4), "float32")) -> None:  # fmt: skip
    for outer in T.parallel(4):
        for k in range(6):
            for both in T.vectorized(8):
                with T.sblock("c"):
                    i = T.axis.spatial(8, outer * 2 + both // 4)
                    j = T.axis.spatial(4, both % 4)
                    r = T.axis.reduce(6, k)
                    c[i, j] = c[i, j] + a[i, r] * b[r, j]
