"""What `tilewright evaluate` answers: the fields of the JSON contract."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.cards import PredictorCard
from tilewright.core.display import Displayed


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRow:
    """Predictions of one target for one group of a family's rows: an implementation, a network, a
    device, or all.

    Errors are |predicted ÷ measured − 1| as fractions: mean, median, 90th percentile, shares of at
    most 0.05, 0.1 and 0.2. `spearman` is None where all are equal, `coverage_90` is the share of
    rows inside their 90 % interval.
    """

    family: str
    target: str
    group: str
    n: int
    mape: float
    median_ape: float
    p90_ape: float
    within_5: float
    within_10: float
    within_20: float
    spearman: float | None
    coverage_90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatePick:
    """A search by prediction: after `shots` samples the `verified` best guesses are measured.

    `regret` is how much slower the best of all these is than the best there is, as a fraction.
    """

    group: str
    shots: int
    verified: int
    regret: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EvaluateResult(Displayed):
    """`tilewright evaluate`; `notes` say which rows were left out; a card for each family and
    target."""

    family: str
    split: str
    shots: int
    rows: tuple[EvaluateRow, ...]
    picks: tuple[EvaluatePick, ...] = ()
    notes: tuple[str, ...] = ()
    cards: tuple[PredictorCard, ...] = ()
