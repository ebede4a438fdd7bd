"""The error function for arrays, accurate to about 1e-15.

Source: W. J. Cody, Rational Chebyshev approximations for the error function, Mathematics of
Computation 23 (1969), 631-637.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SMALL_TOP = (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2,
              3.77485237685302021e2, 3.20937758913846947e3)  # fmt: skip
_SMALL_BOTTOM = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
                 2.84423683343917062e3)  # fmt: skip
_MIDDLE_TOP = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594,
               6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
               1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3)  # fmt: skip
_MIDDLE_BOTTOM = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
                  1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
                  3.43936767414372164e3, 1.23033935480374942e3)  # fmt: skip


def erf(x: Any) -> Any:
    """erf of every element, in the input's own floating-point type."""
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    square = np.square(np.minimum(size, 0.5))
    small = wide * np.polyval(_SMALL_TOP, square) / np.polyval(_SMALL_BOTTOM, square)
    reach = np.minimum(size, 6.0)
    tail = np.polyval(_MIDDLE_TOP, reach) / np.polyval(_MIDDLE_BOTTOM, reach)
    large = np.copysign(1.0 - np.exp(-np.square(reach)) * tail, wide)
    return np.where(size <= 0.46875, small, large).astype(x.dtype)
