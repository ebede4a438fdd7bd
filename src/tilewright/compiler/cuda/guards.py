"""A kernel that looks at indices before another one reads by them.

Kernels read where indices say and check nothing. On a GPU, a read where nothing is ends all work of
the process, so a copy of the indices is made in which those out of range are brought to its end,
and a word tells whether there were any.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.graph.inputs import IndexRange
from tilewright.graph.network import TensorType
from tilewright.hardware.gpus import CudaLaunch

_THREADS = 256
_C_TYPES = {"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"}
LAUNCH = CudaLaunch(
    kernel="guard",
    grid=(1, 1, 1),
    block=(_THREADS, 1, 1),
    arguments=("indices", "kept", "outside"),
)
"""How it is started: what is read, the copy, and the word."""


def guard_text(kind: TensorType, ranges: Sequence[IndexRange]) -> str:
    """CUDA C++ of a kernel of one block that copies indices, each brought into its range:

        kept[i] = min(max(indices[i], lowest), highest); *outside = whether any was out of it

    `ranges` are one for all or one for each position along the last axis.
    """
    name = _C_TYPES.get(kind.dtype) or f"unsigned {_C_TYPES[kind.dtype.removeprefix('u')]}"
    low, high = (
        ", ".join(str(getattr(item, end)) for item in ranges) for end in ("lowest", "highest")
    )
    count = len(ranges)
    return f"""\
extern "C" __global__ void __launch_bounds__({_THREADS})
guard(const {name}* __restrict__ indices, {name}* __restrict__ kept, int* __restrict__ outside) {{
  __shared__ int found;
  const long long lowest[{count}] = {{{low}}}, highest[{count}] = {{{high}}};
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < {prod(kind.shape)}; i += {_THREADS}) {{
    const long long index = indices[i];
    const long long low = lowest[i % {count}], high = highest[i % {count}];
    if (index < low || index > high) found = 1;
    kept[i] = index < low ? low : index > high ? high : index;
  }}
  __syncthreads();
  if (threadIdx.x == 0) *outside = found;
}}
"""
