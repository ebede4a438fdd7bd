"""`softmax` and `layer_norm`: operators that take one row after the other, timed on GPUs."""

from __future__ import annotations

import numpy as np

from tilewright.cost.floors import Work, roofline_s
from tilewright.predict.base import Column, Columns, Family, Features, Target, features_of
from tilewright.predict.datasheets import Datasheet
from tilewright.predict.families.convolution import FLOAT_BYTES, log2, wasted
from tilewright.predict.regressors import Trees

_WARPS = 4.0
_BLOCKS = 16.0
_REGISTERS_HOLD = 1024


def _features(columns: Columns, sheet: Datasheet) -> Features:
    b, h = columns["b"], columns["h"]
    moved = 2 * FLOAT_BYTES * b * h
    memory_s = roofline_s(Work(flop=0.0, memory_bytes=moved), sheet.peaks)
    waves = b / sheet.multiprocessors
    resident = sheet.multiprocessors * _WARPS * _BLOCKS
    named = {
        "b": log2(b),
        "h": log2(h),
        "memory": log2(memory_s),
        "of_cache": log2(moved / sheet.l2_bytes),
        "waves": log2(waves),
        "tail": np.ceil(waves) / waves,
        "row_s": log2(h * sheet.multiprocessors / sheet.bytes_per_s),
        "power_of_2": 2.0 ** np.ceil(log2(h)) / h,
        "h_mod_4": h % 4,
        "large": h > _REGISTERS_HOLD,
        "waste_128": wasted(h, 128),
        "waste_1024": wasted(h, _REGISTERS_HOLD),
        "busy": log2(np.ceil(b / resident) * resident * h * 2 * FLOAT_BYTES / sheet.bytes_per_s),
    }
    return features_of(named, memory_s)


def _family(name: str) -> Family:
    return Family(
        name=name,
        operands=(
            Column(name="b", meaning="rows"),
            Column(name="h", meaning="elements of a row"),
        ),
        targets=(Target(column=Column(name="latency_ms", meaning="time", unit="ms"), si=1e-3),),
        features=_features,
        regressor=Trees(rounds=400, rate=0.06, depth=6, least_weight=2, column_share=0.6),
    )


SOFTMAX = _family("softmax")
LAYER_NORM = _family("layer_norm")
