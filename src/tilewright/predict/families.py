"""The families of operators whose tables can be predicted: one declaration each."""

from __future__ import annotations

from functools import partial

from tilewright.core.errors import UsageError, close_matches
from tilewright.predict import table_features
from tilewright.predict.base import Column, Family, Target
from tilewright.predict.regressors import Forest, Trees


def _numbers(**meanings: str) -> tuple[Column, ...]:
    """Columns of counts above zero, by name."""
    return tuple(Column(name=name, meaning=meaning) for name, meaning in meanings.items())


def _milliseconds(name: str, meaning: str = "time") -> Target:
    return Target(column=Column(name=name, meaning=meaning, unit="ms"), si=1e-3)


_PRODUCT_TREES = Trees(rounds=500, rate=0.06, depth=7, least_weight=2, column_share=0.6)
_PRODUCT_TREND = tuple(
    f"{kind}_{rows}x{width}"
    for rows, width in table_features.PRODUCT_TILES
    for kind in ("tail", "waste")
)
_ROW_TREES = Trees(rounds=400, rate=0.06, depth=6, least_weight=2, column_share=0.6)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            name="conv2d",
            operands=(
                *_numbers(
                    batch="images",
                    in_channels="input channels",
                    out_channels="output channels",
                    height="height and width of the input",
                    kernel="height and width of the kernel",
                    stride="stride in both directions",
                ),
                Column(
                    name="padding",
                    meaning="`same`: output extents are input extents over stride, rounded up; "
                    "`valid`: no padding",
                    text=True,
                    choices=("same", "valid"),
                ),
                Column(name="use_bias", meaning="1 with a bias, 0 without", signed=True),
                Column(
                    name="activation",
                    meaning="what follows: `none`, `relu`, `sigmoid`, `tanh`",
                    text=True,
                    choices=table_features.ACTIVATIONS,
                ),
            ),
            targets=(_milliseconds("time_median_ms", "median time"),),
            features=table_features.conv2d_features,
        ),
        Family(
            name="linear",
            operands=_numbers(
                b="products in the batch",
                m="rows of the input, batch included; `b` is 1 as a rule",
                n="columns of the result",
                k="products summed up",
            ),
            targets=(_milliseconds("latency_ms"),),
            features=partial(table_features.product_features, shared_weights=True),
            regressor=_PRODUCT_TREES,
            trend=_PRODUCT_TREND,
        ),
        Family(
            name="bmm",
            operands=_numbers(
                b="products in the batch",
                m="rows of the result",
                n="columns of the result",
                k="products summed up",
            ),
            targets=(_milliseconds("latency_ms"),),
            features=partial(table_features.product_features, shared_weights=False),
            regressor=_PRODUCT_TREES,
            trend=_PRODUCT_TREND,
        ),
        *(
            Family(
                name=name,
                operands=_numbers(b="rows", h="elements of a row"),
                targets=(_milliseconds("latency_ms"),),
                features=table_features.row_features,
                regressor=_ROW_TREES,
            )
            for name in ("softmax", "layer_norm")
        ),
        Family(
            name="gemm_power",
            operands=(
                Column(name="gemm_dtype", meaning="element type, such as `bfloat16`", text=True),
                *_numbers(
                    m="rows of the input", n="columns of the weights", k="products summed up"
                ),
            ),
            targets=(
                Target(column=Column(name="power_w", meaning="mean power", unit="W"), scaled=False),
            ),
            features=table_features.power_features,
            apart=("n", "k"),
            regressor=Trees(rounds=400, depth=8, rate=0.06, column_share=0.6, members=3),
            roofed=False,
        ),
        Family(
            name="knobs",
            operands=(
                *_numbers(
                    block_size_x="threads of a block along x",
                    block_size_y="threads of a block along y",
                    tile_size_x="outputs of a thread along x",
                    tile_size_y="outputs of a thread along y",
                ),
                *(
                    Column(name=name, meaning=f"1 {meaning}, 0 not", signed=True)
                    for name, meaning in (
                        ("read_only", "reads through the read-only cache"),
                        ("use_padding", "pads rows in shared memory"),
                        ("use_shmem", "stages the input in shared memory"),
                    )
                ),
                *_numbers(filter_height="height of the filter", filter_width="width of the filter"),
            ),
            targets=(_milliseconds("time_ms", "time; empty where a setting failed"),),
            features=table_features.knob_features,
            regressor=Trees(rounds=500, rate=0.06, depth=6, least_weight=1, column_share=0.7),
            roofed=False,
            verified=20,
        ),
        Family(
            name="energy",
            operands=(
                *_numbers(
                    n="images",
                    c_in="input channels",
                    h="height and width of the input",
                    c_out="output channels",
                    h_out="height and width of the output",
                    kh="height and width of the kernel",
                    sh="stride in both directions",
                ),
                Column(name="ph", meaning="padding on each side", signed=True),
                *_numbers(dh="dilation in both directions", groups="groups of channels"),
            ),
            targets=(
                Target(column=Column(name="total_energy_j", meaning="energy of one run", unit="J")),
                Target(
                    column=Column(name="mean_power_w", meaning="mean power", unit="W"),
                    scaled=False,
                ),
                Target(column=Column(name="latency_s", meaning="time", unit="s")),
            ),
            features=table_features.energy_features,
            regressor=Forest(),
            roofed=False,
        ),
    )
}


def family_named(name: str) -> Family:
    """The family of this name. Raises UsageError, with the names that are close."""
    if name not in FAMILIES:
        raise UsageError(f"There is no family {name!r}.", hint=close_matches(name, FAMILIES))
    return FAMILIES[name]
