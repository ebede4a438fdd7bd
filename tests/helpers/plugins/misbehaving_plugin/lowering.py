"""The kernels, or what happens instead of them."""

from __future__ import annotations

import os
import time

import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule


def lower(program, target, resources):
    way = program.candidate.setting("way")
    if way == "refuse":
        raise ValueError("this candidate does not build")
    if way == "abort":
        os.abort()
    if way == "hang":
        time.sleep(3600)
    if way == "crowded" and len(os.sched_getaffinity(0)) == 1:
        raise ValueError("all build on one CPU")
    if way == "memory":
        bytearray(64 << 30)
    x = te.placeholder((8,), name="x")
    zero = tirx.const(0, "float32")
    far = tirx.const(1 << 45, "int64")

    def compute(i):
        if way == "segfault":
            return x[i.astype("int64") + far]
        result = tirx.max(x[i], zero)
        return result + tirx.const(1, "float32") if way == "wrong" else result

    y = te.compute((8,), compute, name="y")
    return Schedule(tvm.IRModule({"main": te.create_prim_func([x, y])}))
