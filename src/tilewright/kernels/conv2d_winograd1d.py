"""Winograd convolution along one axis, for kernels of one row or one column.

F(4, 3) takes 6 multiplications where the direct form takes 12, with twice the weights; F(4, 7)
takes 10 instead of 28, with 1.4 times the weights.
"""

from __future__ import annotations

from tilewright.kernels.conv2d_winograd_forms import WinogradConvolution

NAME = "conv2d_winograd1d"
_BOUND = {3: 1e-5, 7: 1e-5}
SPEC = WinogradConvolution(
    NAME,
    outputs={kernel: pair for r in _BOUND for kernel, pair in (((1, r), (1, 4)), ((r, 1), (4, 1)))},
    bound={kernel: bound for r, bound in _BOUND.items() for kernel in ((1, r), (r, 1))},
)
