"""How well a family's model does on configurations, or networks, that it did not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.predict.base import Floats, Trees
from tilewright.predict.kernel_models import (
    DEFAULT_TREES,
    KernelModel,
    TrainingSet,
    fit_kernel_model,
)
from tilewright.predict.splits import Integers, folds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Predictions by models that saw nothing like it: `rows` are numbers of rows, `predicted_s`
    seconds, `reach` the half width of the interval in the logarithm."""

    rows: Integers
    predicted_s: Floats
    reach: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learning:
    """How a model is fitted; see `fit_kernel_model`."""

    columns: Sequence[str] | None = None
    trees: Trees
    base: KernelModel | None = None


def unseen(
    data: TrainingSet,
    *,
    folds: int = 5,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    trees: Trees = DEFAULT_TREES,
    base: KernelModel | None = None,
) -> Unseen:
    """Leave out one part of the configurations after the other; with these columns only where some
    are given, or beside the model of another class, the `base`. Raises ModelError where a part
    leaves too few rows to learn from."""
    parts = folds_of(data.configurations, folds, seed)
    found: list[Unseen] = []
    for part in range(folds):
        test = np.flatnonzero(parts == part)
        if len(test):
            split = np.flatnonzero(parts != part), test
            found.append(_left_out(data, split, _Learning(columns=columns, trees=trees, base=base)))
    return Unseen(
        rows=np.concatenate([one.rows for one in found]),
        predicted_s=np.concatenate([one.predicted_s for one in found]),
        reach=np.concatenate([one.reach for one in found]),
    )


def unseen_networks(
    data: TrainingSet,
    members: Mapping[str, Integers],
    operators: Integers,
    *,
    folds: int = 5,
    seed: int = 0,
    trees: Trees = DEFAULT_TREES,
) -> dict[str, Unseen]:
    """Leave out one part of the networks after the other; a network's answer is of its own rows.

    `members` are the numbers of each network's rows. `operators` is a number per row, the same for
    rows of the same operator whatever is fused to it: what a network that is left out has, no row
    has that is learnt from, be it of another network or of none. Raises ModelError where a part
    leaves too few rows to learn from.
    """
    names = np.array(sorted(members), dtype=object)
    parts = folds_of(np.arange(len(names)), min(folds, max(2, len(names))), seed)
    found: dict[str, Unseen] = {}
    for part in np.unique(parts):
        mine = [str(name) for name in names[parts == part]]
        test = np.unique(np.concatenate([members[name] for name in mine]))
        learnt = np.flatnonzero(~np.isin(operators, operators[test]))
        answered = _left_out(data, (learnt, test), _Learning(trees=trees))
        for name in mine:
            own = np.isin(test, members[name])
            found[name] = Unseen(
                rows=test[own], predicted_s=answered.predicted_s[own], reach=answered.reach[own]
            )
    return {name: found[name] for name in sorted(found)}


def _left_out(
    data: TrainingSet,
    split: tuple[Integers, Integers],
    learning: _Learning,
) -> Unseen:
    learnt, test = split
    model = fit_kernel_model(
        data.part(learnt), trees=learning.trees, columns=learning.columns, base=learning.base
    )
    times = model.times(data.part(test).table)
    return Unseen(
        rows=test, predicted_s=times.latency_s, reach=np.log(times.high_s / times.latency_s)
    )


def operator_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The columns that tell of the operator alone, not of what computes it."""
    return tuple(name for name in names if name.startswith("op."))
