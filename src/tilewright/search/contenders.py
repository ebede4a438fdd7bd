"""Complete networks that may ship: layouts for every tensor, a candidate for every task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.records import Candidate, LayoutPlan, Placement
from tilewright.graph.tasks import TaskKey
from tilewright.models.prepared import PreparedNetwork
from tilewright.search.winners import Winner
from tilewright.store.choices import defaults

TUNED, DEFAULT = "tuned", "default"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One of the networks that race.

    `name` is unique among them: DEFAULT has our default settings, TUNED the best settings in the
    default layouts, others what the graph tuner found.
    """

    name: str
    network: PreparedNetwork
    winners: Mapping[TaskKey, Winner]

    @property
    def predicted_s(self) -> float | None:
        """The sum of its kernels' times; None where one was not measured."""
        times = [
            self.network.tasks[key].count * winner.measurement.latency_s
            for key, winner in self.winners.items()
            if winner.measurement is not None
        ]
        return sum(times) if len(times) == len(self.winners) else None

    @property
    def usual_layouts(self) -> bool:
        """Whether all tensors lie in their default layouts."""
        return self.network.plan == LayoutPlan()

    @property
    def candidates(self) -> dict[TaskKey, Candidate]:
        """The candidate of each task."""
        return {key: winner.candidate for key, winner in self.winners.items()}


def default_contender(tuned: Contender, placement: Placement, max_error: float) -> Contender:
    """The network of `tuned` with default settings; their times where they were measured."""
    winners: dict[TaskKey, Winner] = {}
    for key, candidate in defaults(tuned.network, placement, max_error).items():
        winner = tuned.winners[key]
        if winner.candidate == candidate:
            winners[key] = winner
        else:
            winners[key] = Winner(candidate=candidate, measurement=winner.default, check=None)
    return Contender(name=DEFAULT, network=tuned.network, winners=winners)
