"""What `collect`, `fit` and `predict` answer: fields of the JSON contract, as in `results`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["exact", "interpolated", "model", "roofline"]
"""Where a prediction comes from: this very kernel was measured; its neighbours in size were; a
model of its family; the roofline alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectResult:
    """`tilewright collect`.

    `samples` were measured now and `known` before; `complete` says that nothing of what was asked
    for is left.
    """

    samples: int
    known: int
    failures: int
    complete: bool
    elapsed_s: float
