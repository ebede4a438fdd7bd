"""The anchor boxes of SSD."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FEW = (1.0, 2.0, 0.5)
_MANY = (*_FEW, 3.0, 1.0 / 3.0)
_SCALES = (  # pixels between places, the own size and that of the next scale, aspect ratios
    (16, 51.2, 102.4, _FEW),
    (32, 102.4, 189.4, _MANY),
    (64, 189.4, 276.4, _MANY),
    (128, 276.4, 363.52, _MANY),
    (256, 363.52, 450.6, _FEW),
    (512, 450.6, 492.0, _FEW),
)


def ssd_anchors() -> NDArray[np.float32]:
    """The anchor boxes as (center x, center y, width, height) in pixels: [6132, 4].

    Per place first the scale's own size, then the geometric mean with the next scale's size,
    both square, then the own size at the other aspect ratios (paper, section 2.2).
    """
    parts: list[NDArray[np.floating]] = []
    for step, size, larger, ratios in _SCALES:
        roots = np.sqrt(np.array(ratios[1:]))
        mean = np.sqrt(size * larger)
        widths = np.concatenate([[size, mean], size * roots])
        heights = np.concatenate([[size, mean], size / roots])
        centers = (np.arange(512 // step) + 0.5) * step
        grid_y, grid_x, index = np.meshgrid(centers, centers, np.arange(len(widths)), indexing="ij")
        boxes = np.stack([grid_x, grid_y, widths[index], heights[index]], axis=-1)
        parts.append(boxes.reshape(-1, 4))
    return np.concatenate(parts).astype(np.float32)
