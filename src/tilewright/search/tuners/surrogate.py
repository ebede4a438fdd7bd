# pyright: basic
"""A Gaussian process over settings: Matérn 5/2 with one length per feature, fitted by likelihood.

Rasmussen & Williams 2006, chapters 2, 4.2 and 5.4. Small data, so everything is exact. `Outlook`
holds what the model says of many rows while a batch is picked from them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from tilewright.kernels.search_space import Floats

_ROOT5 = np.sqrt(5.0)
_JITTER = 1e-8
_RANGE = np.log(0.05), np.log(20.0)
_NOISE_RANGE = np.log(1e-6), np.log(0.25)
_USUAL_NOISE = np.log(1e-3)
_STEPS = 25


@cache
def _libraries() -> ThreadpoolController:
    """Those that numpy and scipy compute with. Scipy comes with the first search: commands without
    one start sooner."""
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


@contextmanager
def _one_thread() -> Generator[None]:
    """The matrices are small: threads would mostly wait for each other, and take the cores from
    what is measured."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield


class GaussianProcess:
    """Regression of values on features, both scaled by the caller to about unit size.

    `width` is the number of features. A later fit starts from an earlier one's parameters, which
    costs a few steps only.
    """

    def __init__(self, width: int) -> None:
        self._parameters = np.array([*([0.0] * width), 0.0, _USUAL_NOISE])

    @_one_thread()
    def fit(self, features: Floats, values: Floats) -> None:
        """Choose lengths, scale and noise by marginal likelihood, then condition on the data."""
        from scipy.optimize import minimize

        found = minimize(
            _negative_likelihood,
            self._parameters,
            args=((features[:, None, :] - features[None, :, :]) ** 2, values),
            jac=True,
            method="L-BFGS-B",
            bounds=[*[_RANGE] * (features.shape[1] + 1), _NOISE_RANGE],
            options={"maxiter": _STEPS},
        )
        self._parameters = found.x
        self.condition(features, values)

    @_one_thread()
    def condition(self, features: Floats, values: Floats) -> None:
        """Take data with the parameters as they are."""
        from scipy.linalg import cholesky

        self._features, self._values = features, values
        covariance = self.covariance(features, features)
        covariance[np.diag_indices_from(covariance)] += self.noise
        self._factor = cholesky(covariance, lower=True)

    @_one_thread()
    def projected(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean at each row, and the inverse Cholesky factor times the covariance of the data with
        the rows, whose columns' products are what the data say of the rows' covariance."""
        from scipy.linalg import solve_triangular

        covariance = self.covariance(self._features, features)
        spread = solve_triangular(self._factor, covariance, lower=True)
        return solve_triangular(self._factor, self._values, lower=True) @ spread, spread

    def covariance(self, left: Floats, right: Floats) -> Floats:
        """Of the values at all rows of the one with those at all rows of the other, before anything
        was measured."""
        lengths = np.exp(self._parameters[:-2])
        a, b = left / lengths, right / lengths
        squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * a @ b.T
        return self.scale * _matern(np.sqrt(np.maximum(squares, 0.0)))

    @property
    def scale(self) -> float:
        """The variance of the value at any row before anything was measured."""
        return float(np.exp(self._parameters[-2]))

    @property
    def noise(self) -> float:
        """The variance that measuring adds."""
        return float(np.exp(self._parameters[-1])) + _JITTER


class Outlook:
    """What a process expects of some rows: `mean` and `deviation` of the noiseless values."""

    def __init__(self, process: GaussianProcess, features: Floats) -> None:
        self._process = process
        self._features = features
        self.mean, self._spread = process.projected(features)
        self._variance = process.scale - (self._spread**2).sum(axis=0)
        self._assumed: list[Floats] = []

    @property
    def deviation(self) -> Floats:
        """Standard deviations after all that was assumed."""
        return np.sqrt(np.maximum(self._variance, 1e-12))

    @_one_thread()
    def assume(self, row: int) -> None:
        """As if the row had been measured, its mean being the outcome: means stay as they are,
        deviations shrink nearby."""
        shared = self._process.covariance(self._features[row : row + 1], self._features)[0]
        shared -= self._spread[:, row] @ self._spread
        for other in self._assumed:
            shared -= other[row] * other
        shared /= np.sqrt(self.deviation[row] ** 2 + self._process.noise)
        self._assumed.append(shared)
        self._variance = self._variance - shared**2


def expected_improvement(mean: Floats, deviation: Floats, least: float) -> Floats:
    """E[max(least - value, 0)] of normal values; Jones, Schonlau & Welch 1998."""
    from scipy.special import ndtr

    score = (least - mean) / deviation
    density = np.exp(-0.5 * score**2) / np.sqrt(2.0 * np.pi)
    return deviation * (score * ndtr(score) + density)


def _matern(distance: Floats) -> Floats:
    scaled = _ROOT5 * distance
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)


def _negative_likelihood(
    parameters: Floats, squares: Floats, values: Floats
) -> tuple[float, Floats]:
    """-log p(values) with weak normal priors on the logarithms of lengths and noise, and its
    gradient."""
    from scipy.linalg import cho_factor, cho_solve

    lengths, (scale, noise) = np.exp(parameters[:-2]), np.exp(parameters[-2:])
    distance = np.sqrt(squares @ lengths**-2.0)
    smooth = scale * _matern(distance)
    try:
        factor = cho_factor(smooth + (noise + _JITTER) * np.eye(len(values)), lower=True)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(parameters)
    inverse = cho_solve(factor, np.eye(len(values)))
    weights = cho_solve(factor, values)
    outer = inverse - np.outer(weights, weights)
    # d matern / d distance², times -2 / lengths² per feature
    slope = scale * (5.0 / 3.0) * (1.0 + _ROOT5 * distance) * np.exp(-_ROOT5 * distance)
    of_lengths = np.asarray(np.tensordot(outer * slope, squares), dtype=np.float64) / lengths**2
    of_variances = (float((outer * smooth).sum()), noise * float(np.trace(outer)))
    off = np.append(parameters[:-1], parameters[-1] - _USUAL_NOISE)
    pull = off * np.array([*[1 / 4] * len(lengths), 0.0, 1 / 9])
    likelihood = 0.5 * float(values @ weights) + float(np.log(np.diag(factor[0])).sum())
    return likelihood + 0.5 * float(pull @ off), 0.5 * np.append(of_lengths, of_variances) + pull
