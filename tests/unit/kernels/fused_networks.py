"""Small fused networks for the tests of layouts and blueprints."""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.graph.fuse import fuse
from tilewright.graph.fused import FusedNetwork

sys.path.append(str(Path(__file__).parent.parent / "graph"))

from graph_builder import Builder  # noqa: E402 - after the path above

__all__ = ["Builder", "fused"]


def fused(b: Builder, *outputs: str) -> FusedNetwork:
    """The fused network of a builder's graph."""
    return fuse(b.graph(*outputs))
