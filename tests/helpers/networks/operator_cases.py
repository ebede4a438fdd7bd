"""Operators with shapes of float operands and attributes, for engines that must mean the same."""

from __future__ import annotations

from tilewright.graph.network import AttributeValue

INF = float("inf")
Case = tuple[str, tuple[tuple[int, ...], ...], dict[str, AttributeValue]]

CONV = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
POOL = {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
MAP = ((2, 4, 9, 7),)
RESIZE = {"shape": (2, 4, 18, 10), "scales": (1.0, 1.0, 2.0, 10 / 7)}
CASES: list[Case] = [
    ("conv2d", (*MAP, (6, 4, 3, 3)), CONV),
    ("conv2d", (*MAP, (6, 2, 3, 2)), {**CONV, "groups": 2, "strides": (2, 1)}),
    ("conv2d", (*MAP, (6, 4, 3, 3)), {**CONV, "padding": (0, 1, 2, 1), "dilation": (2, 1)}),
    *[
        (
            "conv2d_transpose",
            (*MAP, (4, 3, 3, 3)),
            {**CONV, "strides": (2, 2), "padding": padding, "output_padding": extra},
        )
        for padding, extra in (
            ((1, 1, 1, 1), (1, 1)),
            ((0, 2, 1, 0), (0, 0)),
            ((0, 0, 0, 0), (1, 0)),
            ((1, 0, 0, 1), (0, 1)),
        )
    ],
    ("dense", ((2, 3, 5), (5, 4)), {}),
    ("batch_matmul", ((2, 3, 5), (1, 5, 4)), {"transpose_b": False}),
    ("batch_matmul", ((2, 3, 5), (2, 4, 5)), {"transpose_b": True}),
    ("max_pool2d", MAP, POOL),
    ("max_pool2d", MAP, {**POOL, "padding": (0, 0, 2, 1), "dilation": (2, 1)}),
    ("max_pool2d", MAP, {**POOL, "kernel": (2, 2), "padding": (1, 1, 1, 1)}),
    *[
        ("avg_pool2d", MAP, {**POOL, "padding": padding, "count_include_pad": counted})
        for padding in ((1, 1, 1, 1), (0, 0, 1, 1), (0, 0, 0, 0), (2, 2, 2, 2))
        for counted in (False, True)
    ],
    *[
        (f"reduce_{name}", MAP, {"axes": axes, "keepdims": keep})
        for name in ("sum", "mean", "max", "min", "prod")
        for axes, keep in (((2, 3), True), ((0, 1), False))
    ],
    *[
        (
            "attention",
            ((2, 5, 12), (2, 6, 6), (2, 6, 10), *masks),
            {"heads": 4, "key_heads": 2, "scale": 0.4, "causal": causal, "fill": "-inf"},
        )
        for masks in ((), ((2, 1, 1, 6),))
        for causal in (False, True)
    ],
    ("softmax", MAP, {"axis": 1}),
    ("log_softmax", MAP, {"axis": 3}),
    ("layer_norm", ((2, 3, 8), (8,), (1,)), {"axis": 2, "epsilon": 1e-5}),
    ("rms_norm", ((2, 3, 8), (1,)), {"axis": 2, "epsilon": 1e-5}),
    ("lrn", MAP, {"size": 3, "alpha": 0.1, "beta": 0.75, "bias": 1.0}),
    ("instance_norm", (*MAP, (4,), (4,)), {"epsilon": 1e-5}),
    *[
        (name, MAP, {})
        for name in [
            "relu",
            "sigmoid",
            "tanh",
            "exp",
            "negative",
            "abs",
            "erf",
            "sin",
            "cos",
            "floor",
            "ceil",
            "round",
            "sign",
            "reciprocal",
            "softplus",
            "silu",
            "gelu",
            "hard_swish",
            "identity",
            "isnan",
        ]
    ],
    ("clip", MAP, {"minimum": -0.5, "maximum": INF}),
    ("leaky_relu", MAP, {"alpha": 0.1}),
    ("elu", MAP, {"alpha": 0.7}),
    ("celu", MAP, {"alpha": 2.0}),
    ("celu", MAP, {"alpha": -0.5}),
    ("thresholded_relu", MAP, {"alpha": 0.5}),
    ("selu", MAP, {"alpha": 1.67, "gamma": 1.05}),
    ("hard_sigmoid", MAP, {"alpha": 0.2, "beta": 0.5}),
    ("shrink", MAP, {"bias": 0.2, "lambd": 0.5}),
    ("shrink", MAP, {"bias": 0.2, "lambd": -0.5}),
    ("cast", MAP, {"dtype": "int32"}),
    ("bitcast", MAP, {"dtype": "int32"}),
    *[
        (name, ((2, 3, 4), (3, 1)), {})
        for name in [
            "add",
            "subtract",
            "multiply",
            "divide",
            "maximum",
            "minimum",
            "modulo",
            "remainder",
            "equal",
            "less",
            "greater",
            "less_equal",
            "greater_equal",
            "prelu",
        ]
    ],
    ("reshape", MAP, {"shape": (8, 63)}),
    ("transpose", MAP, {"permutation": (0, 2, 3, 1)}),
    ("slice", MAP, {"starts": (0, 1, 0, 2), "stops": (2, 3, 9, 7), "steps": (1, 1, 2, 1)}),
    ("slice", MAP, {"starts": (1, 0, 0, 0), "stops": (-1, 4, 9, 7), "steps": (-1, 1, 1, 1)}),
    ("concat", ((2, 3), (2, 1), (2, 4)), {"axis": 1}),
    (
        "pad",
        MAP,
        {"before": (0, 0, 1, 2), "after": (0, 1, 0, 3), "value": 0.5, "mode": "constant"},
    ),
    ("expand", ((3, 1),), {"shape": (2, 3, 4)}),
    *[
        ("resize_nearest", MAP, {**RESIZE, "coordinate": mode, "rounding": rounding})
        for mode, rounding in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"))
    ],
]
