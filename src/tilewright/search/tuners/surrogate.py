# pyright: basic
"""A Gaussian process over settings: Matérn 5/2 with one length per feature, fitted by likelihood.

Rasmussen & Williams 2006, chapters 2, 4.2 and 5.4. Small data, so everything is exact. `Outlook`
holds what the model says of many rows while a batch is picked from them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

Floats = npt.NDArray[np.float64]

_one_thread = ThreadpoolController().wrap(limits=1, user_api="blas")
"""The matrices are small: threads would mostly wait for each other, and take the cores from what is
measured. The libraries that scipy and numpy loaded above are what it limits."""

_ROOT5 = np.sqrt(5.0)
_JITTER = 1e-8
_LEAST_NOISE, _MOST_NOISE = 1e-6, 0.25


class GaussianProcess:
    """Regression of `values` on `features`, both scaled by the caller to about unit size.

    `width` is the number of features. A later fit starts from an earlier one's parameters, which
    costs a few steps only.
    """

    def __init__(self, width: int, noise: float = 1e-3) -> None:
        self._parameters = np.log(np.array([*([1.0] * width), 1.0, noise]))
        self._features: Floats = np.empty((0, width))
        self._values: Floats = np.empty(0)
        self._factor: Floats = np.empty((0, 0))

    @_one_thread
    def fit(self, features: Floats, values: Floats, *, steps: int = 25) -> None:
        """Choose lengths, scale and noise by marginal likelihood, then condition on the data."""
        squares = (features[:, None, :] - features[None, :, :]) ** 2

        def loss(parameters: Floats) -> tuple[float, Floats]:
            return _negative_likelihood(parameters, squares, values)

        width = features.shape[1]
        bounds = [
            *[(np.log(0.05), np.log(20.0))] * width,
            (np.log(0.05), np.log(20.0)),
            (np.log(_LEAST_NOISE), np.log(_MOST_NOISE)),
        ]
        found = minimize(
            loss,
            self._parameters,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": steps},
        )
        self._parameters = np.asarray(found.x, dtype=np.float64)
        self.condition(features, values)

    @_one_thread
    def condition(self, features: Floats, values: Floats) -> None:
        """Take data with the parameters as they are."""
        self._features, self._values = features, values
        covariance = self.covariance(features)
        covariance[np.diag_indices_from(covariance)] += self.noise
        self._factor = cholesky(covariance, lower=True)

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the noiseless value at each row."""
        mean, spread = self.projected(features)
        return mean, _deviation(self.scale - (spread**2).sum(axis=0))

    @_one_thread
    def projected(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean at each row, and the inverse Cholesky factor times the covariance of the data with
        the rows, whose columns' products are what the data say of the rows' covariance."""
        spread = solve_triangular(self._factor, self.covariance(features).T, lower=True)
        return solve_triangular(self._factor, self._values, lower=True) @ spread, spread

    def covariance(self, features: Floats, others: Floats | None = None) -> Floats:
        """Of the rows with other rows, the data by default, before anything was measured."""
        others = self._features if others is None else others
        return self.scale * self._correlation(features, others)

    @property
    def scale(self) -> float:
        """The variance of the value at any row before anything was measured."""
        return float(np.exp(self._parameters[-2]))

    @property
    def noise(self) -> float:
        """The variance that measuring adds."""
        return float(np.exp(self._parameters[-1])) + _JITTER

    def _correlation(self, left: Floats, right: Floats) -> Floats:
        lengths = np.exp(self._parameters[:-2])
        a, b = left / lengths, right / lengths
        squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * a @ b.T
        return _matern(np.sqrt(np.maximum(squares, 0.0)))


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
        return _deviation(self._variance)

    @_one_thread
    def assume(self, row: int) -> None:
        """As if the row had been measured, its mean being the outcome: means stay as they are,
        deviations shrink nearby."""
        shared = self._process.covariance(self._features[row : row + 1], self._features)[0]
        shared -= self._spread[:, row] @ self._spread
        for other in self._assumed:
            shared -= other[row] * other
        own = float(_deviation(self._variance[row : row + 1])[0]) ** 2
        shared /= np.sqrt(own + self._process.noise)
        self._assumed.append(shared)
        self._variance = self._variance - shared**2


def expected_improvement(mean: Floats, deviation: Floats, least: float) -> Floats:
    """E[max(least - value, 0)] of normal values; Jones, Schonlau & Welch 1998."""
    score = (least - mean) / deviation
    density = np.exp(-0.5 * score**2) / np.sqrt(2.0 * np.pi)
    return deviation * (score * ndtr(score) + density)


def _deviation(variance: Floats) -> Floats:
    return np.sqrt(np.maximum(variance, 1e-12))


def _matern(distance: Floats) -> Floats:
    scaled = _ROOT5 * distance
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)


def _negative_likelihood(
    parameters: Floats, squares: Floats, values: Floats
) -> tuple[float, Floats]:
    """-log p(values) with a weak prior on the lengths, and its gradient."""
    lengths = np.exp(parameters[:-2])
    scale, noise = np.exp(parameters[-2:])
    distance = np.sqrt(squares @ lengths**-2.0)
    correlation = _matern(distance)
    covariance = scale * correlation
    covariance[np.diag_indices_from(covariance)] += noise + _JITTER
    try:
        factor = cho_factor(covariance, lower=True)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(parameters)
    weights = cho_solve(factor, values)
    inverse = cho_solve(factor, np.eye(len(values)))
    outer = inverse - np.outer(weights, weights)
    # d matern / d distance², times -2 / lengths² per feature
    slope = scale * (5.0 / 3.0) * (1.0 + _ROOT5 * distance) * np.exp(-_ROOT5 * distance)
    gradient = np.empty_like(parameters)
    flat = squares.reshape(-1, squares.shape[-1])
    gradient[:-2] = 0.5 * ((outer * slope).ravel() @ flat) / lengths**2
    gradient[-2] = 0.5 * float((outer * scale * correlation).sum())
    gradient[-1] = 0.5 * noise * float(np.trace(outer))
    value = 0.5 * float(values @ weights) + float(np.log(np.diag(factor[0])).sum())
    center = np.log(1.0)
    value += 0.5 * float(((parameters[:-2] - center) ** 2).sum()) / 4.0
    gradient[:-2] += (parameters[:-2] - center) / 4.0
    value += 0.5 * float((parameters[-1] - np.log(1e-3)) ** 2) / 9.0
    gradient[-1] += (parameters[-1] - np.log(1e-3)) / 9.0
    return value, gradient
