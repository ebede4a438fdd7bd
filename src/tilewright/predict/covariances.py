# pyright: basic
"""How alike rows are, as scikit-learn's kernels, and the process fitted with them.

The kernel is a rational quadratic of distance plus a product of linear columns plus a constant, and
noise (Rasmussen & Williams 2006, chapter 4.2); its parameters maximise the likelihood within a
factor of where they begin. scikit-learn takes a second to load, so `processes` imports this on use.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    ConstantKernel,
    DotProduct,
    RationalQuadratic,
    WhiteKernel,
)

from tilewright.predict.base import Floats

_LENGTH = 2.0
_FACTOR, _LENGTH_FACTOR = 10.0, 2.0
_LEAST_NOISE = 0.0003


class _Trend(DotProduct):
    """The product of the columns from `first` on."""

    def __init__(self, sigma_0=0.0, sigma_0_bounds="fixed", first=0):
        super().__init__(sigma_0, sigma_0_bounds)
        self.first = first

    def __call__(self, X, Y=None, eval_gradient=False):
        other = None if Y is None else np.asarray(Y)[:, self.first :]
        return super().__call__(np.asarray(X)[:, self.first :], other, eval_gradient)

    def diag(self, X):
        return super().diag(np.asarray(X)[:, self.first :])


def covariance(near: float, linear: float, constant: float, first: int) -> Any:
    """The kernel whose parts begin at these variances; columns from `first` on are linear."""
    distance = RationalQuadratic(_LENGTH, 1.0, _around(_LENGTH, _LENGTH_FACTOR), "fixed")
    trend = _constant(linear) * _Trend(first=first)
    return _constant(near) * distance + trend + _constant(constant)


def fitted(kernel: Any, rows: Floats, values: Floats, noise: float, variances: Floats) -> Any:
    """scikit-learn's process of these rows: noise begins at `noise`, and that of each row is
    multiplied by its variance relative to the best row's."""
    noisy = kernel + WhiteKernel(noise, _around(noise, _FACTOR))
    process = cast(Any, GaussianProcessRegressor)(noisy, alpha=_LEAST_NOISE * variances)
    # That a parameter ends at its bound is what bounds are for.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return process.fit(rows, values)


def _constant(value: float) -> ConstantKernel:
    return ConstantKernel(value, _around(value, _FACTOR))


def _around(value: float, factor: float) -> tuple[float, float]:
    return value / factor, value * factor
