"""A small case of every anchor: shapes of its arguments, and the step."""

from __future__ import annotations

from helpers.kernels.one_kernel import step
from tilewright.graph.workload import Step

WINDOW = dict(kernel=(3, 2), strides=(2, 2), padding=(1, 1, 1, 0), dilation=(1, 2))
CONV = dict(strides=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2), groups=2)
DECONV = dict(
    strides=(2, 2), padding=(1, 0, 0, 1), output_padding=(1, 0), dilation=(1, 1), groups=2
)
RECURRENT = dict(
    cell="lstm", activations="sigmoid tanh tanh", operands="state memory peepholes",
    clip=0.0, reverse=True, finals=2,
)  # fmt: skip
CASES: dict[str, tuple[list[tuple[int, ...]], Step]] = {
    "conv2d": ([(2, 6, 9, 8), (8, 3, 3, 3)], step("conv2d", 0, 1, **CONV)),
    "conv2d_transpose": ([(1, 6, 5, 4), (6, 4, 3, 3)], step("conv2d_transpose", 0, 1, **DECONV)),
    "dense": ([(3, 5, 7), (7, 16)], step("dense", 0, 1)),
    "batch_matmul": ([(2, 3, 4, 7), (3, 5, 7)], step("batch_matmul", 0, 1, transpose_b=True)),
    "max_pool2d": ([(1, 8, 9, 21)], step("max_pool2d", 0, **WINDOW)),
    "avg_pool2d": ([(1, 8, 9, 21)], step("avg_pool2d", 0, count_include_pad=False, **WINDOW)),
    "reduce_sum": ([(2, 8, 5, 5)], step("reduce_sum", 0, axes=(0, 2), keepdims=False)),
    "reduce_mean": ([(2, 8, 5, 5)], step("reduce_mean", 0, axes=(2, 3), keepdims=True)),
    "reduce_max": ([(2, 8, 5)], step("reduce_max", 0, axes=(0, 1, 2), keepdims=False)),
    "reduce_min": ([(2, 8, 5)], step("reduce_min", 0, axes=(1,), keepdims=False)),
    "reduce_prod": ([(2, 8, 5)], step("reduce_prod", 0, axes=(2,), keepdims=True)),
    "softmax": ([(2, 8, 5)], step("softmax", 0, axis=1)),
    "log_softmax": ([(2, 8, 5)], step("log_softmax", 0, axis=2)),
    "layer_norm": ([(2, 8, 5), (8, 5), (5,)], step("layer_norm", 0, 1, 2, axis=1, epsilon=1e-5)),
    "rms_norm": ([(2, 8, 5), (8, 5)], step("rms_norm", 0, 1, axis=1, epsilon=1e-5)),
    "instance_norm": ([(2, 8, 5, 5), (8,), (8,)], step("instance_norm", 0, 1, 2, epsilon=1e-5)),
    "recurrent": (
        [(3, 2, 20), (5, 20), (2, 5), (2, 5), (15,)],
        step("recurrent", 0, 1, 2, 3, 4, **RECURRENT),
    ),
    "attention": (
        [(2, 9, 24), (2, 11, 12), (2, 11, 8), (2, 1, 1, 11)],
        step("attention", 0, 1, 2, 3, heads=4, key_heads=2, scale=0.4, causal=True, fill="-inf"),
    ),
    "lrn": ([(2, 8, 5, 5)], step("lrn", 0, size=5, alpha=0.1, beta=0.75, bias=1.0)),
}
