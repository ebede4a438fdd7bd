"""What `jax.numpy` has, by numpy."""

from __future__ import annotations

import numpy as np


def __getattr__(name):
    return getattr(np, name)
