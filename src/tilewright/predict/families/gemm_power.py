"""`gemm_power`: mean power of matrix products on a GPU."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from tilewright.predict.base import Column, Columns, Family, Features, Target, features_of
from tilewright.predict.datasheets import Datasheet
from tilewright.predict.families.convolution import log2, wasted
from tilewright.predict.regressors import Trees

_BYTES = {"float32": 4.0, "float": 4.0, "tf32": 4.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0}
_MULTIPROCESSORS = 132
_RESULT_BYTES = 2.0


def _features(columns: Columns, _sheet: Datasheet) -> Features:
    m, n, k = (columns[name] for name in "mnk")
    element_bytes = np.array([_BYTES.get(name, 1.0) for name in columns["gemm_dtype"]])
    moved = element_bytes * (m * k + n * k) + _RESULT_BYTES * m * n
    tiles = np.ceil(m / 128) * np.ceil(n / 128)
    waves = tiles / _MULTIPROCESSORS
    named = {
        "type": np.array([_digest(name) for name in columns["gemm_dtype"]]),
        "m": log2(m),
        "n": log2(n),
        "k": log2(k),
        "flop": log2(m * n * k),
        "weights": log2(n * k),
        "moved_bytes": log2(moved),
        "intensity": log2(m * n * k / moved),
        "rows": m,
        "m_power_of_2": log2(m) % 1 == 0,
        "outputs": log2(m * n),
        "tiles": log2(tiles),
        "tail": np.ceil(waves) / waves,
        "waste_m": wasted(m, 128),
        "narrow_tiles": log2(np.ceil(m / 64) * np.ceil(n / 128)),
        "n_mod_128": n % 128,
        "k_mod_128": k % 128,
    }
    return features_of(named, np.ones(len(m)))


def _digest(name: str) -> float:
    """A number per type name that does not depend on which other types the table has."""
    return float(crc32(name.encode()) % 2**20)


GEMM_POWER = Family(
    name="gemm_power",
    operands=(
        Column(name="gemm_dtype", meaning="element type, such as `bfloat16`", text=True),
        Column(name="m", meaning="rows of the input"),
        Column(name="n", meaning="columns of the weights"),
        Column(name="k", meaning="products summed up"),
    ),
    targets=(Target(column=Column(name="power_w", meaning="mean power", unit="W"), scaled=False),),
    features=_features,
    apart=("n", "k"),
    regressor=Trees(rounds=400, depth=8, rate=0.06, column_share=0.6, members=3),
    roofed=False,
)
