# pyright: basic
"""A Gaussian process for few rows: near rows behave alike, beside a linear trend.

The kernel is a rational quadratic of distance plus a product of linear columns plus a constant;
Rasmussen & Williams 2006, chapters 2, 4.2 and 5.4. Its parameters maximise the likelihood times a
log-normal prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from tilewright.predict.base import Floats

_JITTER = 1e-6
_NEAR, _LINEAR, _CONSTANT, _NOISE = range(4)
_LENGTHS = 4
_MOST_SPREADS = 5
"""How far from their medians parameters may go; beyond, exponentials overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Medians of the parameters: variances, the length, the noise's variance; and the standard
    deviations of their logarithms. Lengths are one per column of `near`, or one for all."""

    near: float = 0.05
    linear: float = 0.1
    constant: float = 0.05
    noise: float = 0.003
    length: float = 2.0
    spread: float = 1.5
    length_spread: float = 0.7
    one_length: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Rows × columns for the distance, rows × columns for the trend; both centred, of unit size.

    `noise` is each row's noise variance relative to the best rows'.
    """

    near: Floats
    linear: Floats
    noise: Floats

    def rows(self, which: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Inputs:
        """These rows only."""
        return Inputs(near=self.near[which], linear=self.linear[which], noise=self.noise[which])


class GaussianProcess:
    """Regression of values on inputs."""

    def __init__(self, prior: Prior, width: int) -> None:
        count = 1 if prior.one_length else width
        self._tied = np.zeros(width, dtype=int) if prior.one_length else np.arange(width)
        variances = [prior.near, prior.linear, prior.constant, prior.noise]
        self._middle = np.log([*variances, *[prior.length] * count])
        self._spread = np.array([*[prior.spread] * _LENGTHS, *[prior.length_spread] * count])
        self._parameters = self._middle

    def fit(self, data: Sequence[tuple[Inputs, Floats]], *, steps: int = 40) -> None:
        """Choose parameters that suit all these sets of rows and values, and condition on the
        last."""
        reach = _MOST_SPREADS * self._spread
        found = minimize(
            self._loss_of_all,
            self._parameters,
            args=(data,),
            jac=True,
            method="L-BFGS-B",
            bounds=np.column_stack([self._middle - reach, self._middle + reach]),
            options={"maxiter": steps},
        )
        self._parameters = found.x
        self.condition(*data[-1])

    def condition(self, inputs: Inputs, values: Floats) -> None:
        """Take in data without changing the parameters."""
        self._inputs = inputs
        near, linear, constant = self._kernels(self._parameters, inputs, inputs)
        kernel = near + linear + constant + np.diag(self._noise(self._parameters, inputs))
        self._factor = cho_factor(kernel, lower=True)
        self._weights = cho_solve(self._factor, values)

    def predict(self, inputs: Inputs) -> Floats:
        """The expected value of each row."""
        return sum(self._kernels(self._parameters, inputs, self._inputs)) @ self._weights

    def covariance(self, inputs: Inputs) -> tuple[Floats, Floats]:
        """What is expected without data: the covariance between all rows' values, and the variance
        of each row's noise."""
        near, linear, constant = self._kernels(self._parameters, inputs, inputs)
        return near + linear + constant, self._noise(self._parameters, inputs)

    def left_out(self) -> Floats:
        """Each conditioned row's value less what the others predict for it (Rasmussen & Williams,
        equation 5.12)."""
        inverse = cho_solve(self._factor, np.eye(len(self._weights)))
        return self._weights / np.diag(inverse)

    def _noise(self, parameters: Floats, inputs: Inputs) -> Floats:
        return np.exp(parameters[_NOISE]) * inputs.noise + _JITTER

    def _kernels(self, parameters: Floats, left: Inputs, right: Inputs):
        lengths = np.exp(parameters[_LENGTHS:])[self._tied]
        apart = squares(left.near / lengths, right.near / lengths)
        near = np.exp(parameters[_NEAR]) / (1 + apart / 2)
        linear = np.exp(parameters[_LINEAR]) * (left.linear @ right.linear.T)
        return near, linear, np.exp(parameters[_CONSTANT])

    def _loss_of_all(self, parameters: Floats, data: Sequence[tuple[Inputs, Floats]]):
        off = (parameters - self._middle) / self._spread
        value, slope = (off**2).sum() / 2, off / self._spread
        for inputs, values in data:
            more, steeper = self._loss(parameters, inputs, values)
            value, slope = value + more, slope + steeper
        return value, slope

    def _loss(self, parameters: Floats, inputs: Inputs, values: Floats):
        near, linear, constant = self._kernels(parameters, inputs, inputs)
        noise = self._noise(parameters, inputs)
        try:
            factor = cho_factor(near + linear + constant + np.diag(noise), lower=True)
        except np.linalg.LinAlgError:
            return 1e9, np.zeros_like(parameters)
        inverse = cho_solve(factor, np.eye(len(values)))
        weights = inverse @ values
        pull = (inverse - np.outer(weights, weights)) / 2
        slope = np.empty_like(parameters)
        slope[_NEAR] = (pull * near).sum()
        slope[_LINEAR] = (pull * linear).sum()
        slope[_CONSTANT] = pull.sum() * constant
        slope[_NOISE] = (np.diag(pull) * (noise - _JITTER)).sum()
        slope[_LENGTHS:] = self._length_slopes(parameters, inputs, pull * near)
        return values @ weights / 2 + np.log(np.diag(factor[0])).sum(), slope

    def _length_slopes(self, parameters: Floats, inputs: Inputs, pulled: Floats) -> Floats:
        scaled = inputs.near / np.exp(parameters[_LENGTHS:])[self._tied]
        bent = pulled / (1 + squares(scaled, scaled) / 2)
        each = 2 * ((scaled**2 * bent.sum(1)[:, None]).sum(0) - (scaled * (bent @ scaled)).sum(0))
        found = np.bincount(self._tied, weights=each, minlength=len(parameters) - _LENGTHS)
        return np.asarray(found, dtype=np.float64)


def most_telling(
    covariance: Floats, noise: Floats, weights: Floats, count: int, first: Sequence[int] = ()
) -> list[int]:
    """`count` rows to measure: the `first` ones, then one after the other the row that would lessen
    the expected squared error of all, by these weights, the most (Cohn, Ghahramani & Jordan,
    "Active learning with statistical models", 1996)."""
    taken: list[int] = []
    while len(taken) < min(count, len(covariance)):
        gain = weights @ covariance**2 / (np.diag(covariance) + noise)
        gain[taken] = -1
        best = int(first[len(taken)]) if len(taken) < len(first) else int(np.argmax(gain))
        shared = covariance[best]
        covariance = covariance - np.outer(shared, shared) / (shared[best] + noise[best])
        taken.append(best)
    return taken


def squares(left: Floats, right: Floats) -> Floats:
    """The squared distances between all rows of the one and all rows of the other."""
    found = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    return np.maximum(found, 0)
