"""Small fused networks for the tests of layouts and plans."""

from __future__ import annotations

from helpers.networks.graph_builder import Builder
from tilewright.graph.fuse import fuse
from tilewright.graph.fused import FusedNetwork

__all__ = ["Builder", "fused"]


def fused(b: Builder, *outputs: str) -> FusedNetwork:
    """The fused network of a builder's graph."""
    return fuse(b.graph(*outputs))
