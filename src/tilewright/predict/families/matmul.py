"""Matrix products on GPUs: `linear` and `bmm` are timed, `gemm_power` is their mean power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np

from tilewright.cost.floors import Work, roofline_s
from tilewright.predict.base import Column, Columns, Family, Features, Target, features_of
from tilewright.predict.datasheets import Datasheet
from tilewright.predict.families.convolution import FLOAT_BYTES, log2, wasted
from tilewright.predict.regressors import Trees

_TILES = ((128, 128), (128, 64), (64, 64), (32, 128), (128, 32), (32, 32))
_TREND = tuple(f"{kind}_{rows}x{width}" for rows, width in _TILES for kind in ("tail", "waste"))
_TREES = Trees(rounds=500, rate=0.06, depth=7, least_weight=2, column_share=0.6)


def _product(shared_weights: bool) -> Callable[[Columns, Datasheet], Features]:
    def features(columns: Columns, sheet: Datasheet) -> Features:
        b, m, n, k = (columns[name] for name in "bmnk")
        flop = 2 * b * m * n * k
        left = FLOAT_BYTES * b * m * k
        right = FLOAT_BYTES * n * k * (1 if shared_weights else b)
        moved = left + right + FLOAT_BYTES * b * m * n
        work = Work(flop=flop, memory_bytes=moved)
        compute_s, memory_s = work.computing_s(sheet.peaks), work.moving_s(sheet.peaks)
        roof_s = roofline_s(work, sheet.peaks)
        named: dict[str, Any] = {
            "b": log2(b),
            "m": log2(m),
            "n": log2(n),
            "k": log2(k),
            "compute": log2(compute_s),
            "memory": log2(memory_s),
            "roofline": log2(roof_s),
            "balance": log2(compute_s / memory_s),
            "of_cache": log2(moved / sheet.l2_bytes),
            "left_of_cache": log2(left / sheet.l2_bytes),
            "right_of_cache": log2(right / sheet.l2_bytes),
            "outputs": log2(b * m * n),
            "slenderness": log2(k / np.sqrt(m * n)),
            "k_mod_4": k % 4,
            "n_mod_4": n % 4,
            "m_mod_4": m % 4,
            "k_mod_32": k % 32,
        }
        for rows, width in _TILES:
            named |= _tiling(columns, sheet, rows, width)
        return features_of(named, roof_s)

    return features


def _tiling(columns: Columns, sheet: Datasheet, rows: int, width: int) -> dict[str, Any]:
    b, m, n, k = (columns[name] for name in "bmnk")
    tiles = b * np.ceil(m / rows) * np.ceil(n / width)
    waves = tiles / sheet.multiprocessors
    whole = np.ceil(waves)
    padded = tiles * rows * width / (b * m * n)
    busy_flop = whole * sheet.multiprocessors * rows * width * 2 * k
    name = f"{rows}x{width}"
    return {
        f"waves_{name}": log2(waves),
        f"tail_{name}": whole / waves,
        f"waste_{name}": padded,
        f"busy_{name}": log2(Work(flop=busy_flop, memory_bytes=0.0).computing_s(sheet.peaks)),
    }


def _family(name: str, shared_weights: bool, rows: str) -> Family:
    return Family(
        name=name,
        operands=(
            Column(name="b", meaning="products in the batch"),
            Column(name="m", meaning=rows),
            Column(name="n", meaning="columns of the result"),
            Column(name="k", meaning="products summed up"),
        ),
        targets=(Target(column=Column(name="latency_ms", meaning="time", unit="ms"), si=1e-3),),
        features=_product(shared_weights),
        regressor=_TREES,
        trend=_TREND,
    )


LINEAR = _family("linear", True, "rows of the input, batch included; `b` is 1 as a rule")
BMM = _family("bmm", False, "rows of the result")


_BYTES = {"float32": 4.0, "float": 4.0, "tf32": 4.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0}
_MULTIPROCESSORS = 132
_RESULT_BYTES = 2.0


def _power_features(columns: Columns, _sheet: Datasheet) -> Features:
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
    features=_power_features,
    apart=("n", "k"),
    regressor=Trees(rounds=400, depth=8, rate=0.06, column_share=0.6, members=3),
    roofed=False,
)
