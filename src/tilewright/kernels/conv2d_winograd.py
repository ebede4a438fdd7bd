"""Winograd convolution F(4×4, 3×3): 36 multiplications where the direct form takes 144."""

from __future__ import annotations

from tilewright.kernels.conv2d_winograd_forms import WinogradConvolution

NAME = "conv2d_winograd"
SPEC = WinogradConvolution(NAME, outputs={(3, 3): (4, 4)}, bound={(3, 3): 1e-5})
