"""The kernel is the right one; only the weights are wrong."""

from tilewright.compiler.lower.conv2d_direct import lower

__all__ = ["lower"]
