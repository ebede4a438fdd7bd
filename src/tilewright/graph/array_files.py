"""Arrays in `.npy` files, of all our element types.

Numpy's format has no name for types such as bfloat16: it keeps their bytes and forgets the type,
so that whoever reads a file says what is in it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.graph.network import Array


def save_array(path: Path, array: Array) -> None:
    """Write an array. Raises OSError."""
    np.save(path, array)


def map_array(path: Path, dtype: str) -> Array:
    """The array of a file, whose element type is `dtype`, mapped into memory. Raises OSError."""
    array: Array = np.load(path, mmap_mode="r")
    return array.view(element_type(dtype).numpy)
