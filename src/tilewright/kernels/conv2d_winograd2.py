"""Winograd convolution with output tiles of 2×2, for small planes and for 5×5.

F(2×2, 3×3) takes 16 multiplications where the direct form takes 36, with 1.8 times the weights;
F(2×2, 5×5) takes 36 instead of 100, with 1.4 times the weights.
"""

from __future__ import annotations

from tilewright.kernels.conv2d_winograd_forms import WinogradConvolution

NAME = "conv2d_winograd2"
SPEC = WinogradConvolution(
    NAME, outputs={(3, 3): (2, 2), (5, 5): (2, 2)}, bound={(3, 3): 3e-6, (5, 5): 8e-6}
)
