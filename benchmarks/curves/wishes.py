"""Which workloads curves are measured of: tasks of networks, and operators drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest

import numpy as np

from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import threads_alone
from tilewright.graph.workload import Workload
from tilewright.models import ModelOptions
from tilewright.models.configurations import CONFIGURATIONS, configurations_of, drawn
from tilewright.models.loading import load_outline
from tilewright.plan.preparation import prepare_loaded
from tilewright.predict.collected import family_of

NETWORKS = (
    "zoo:resnet50", "zoo:mobilenet_v2", "zoo:inception_v3", "zoo:googlenet", "zoo:squeezenet1_1",
    "zoo:densenet201", "zoo:bert_base", "zoo:vit_b16", "zoo:nasnet_mobile",
)  # fmt: skip
_FAMILIES = tuple(name for name, each in CONFIGURATIONS.items() if each.dtype == "float32")
_MOST_FLOP, _MOST_BYTES, _LEAST_BYTES = 2e9, 64 << 20, 64 << 10
"""Of operators that are drawn: what one core does in some hundredths of a second, and what is worth
a second core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A workload of a network or a text `op:…`, and its default candidate per number of cores."""

    workload: Workload
    source: str
    candidates: Mapping[int, Candidate]

    @property
    def family(self) -> str:
        """The predictor's family."""
        return family_of(self.workload)


def placed(placement: Placement, cores: int) -> Placement:
    """The placement with so many cores, whether or not it has them."""
    return replace(placement, resources=threads_alone(cores))


def wishes(
    placement: Placement, counts: Sequence[int], networks: Sequence[str], limits: tuple[int, int]
) -> list[Wish]:
    """Different workloads, those of the networks in turn first. The limits are the most tasks of a
    network and the number of operators."""
    most, operators = limits
    found: dict[str, Wish] = {}
    own = [_tasks(name, placement, counts, most) for name in networks]
    by_turns = filter(None, chain.from_iterable(zip_longest(*own)))
    for wish in chain(by_turns, islice(_operators(placement, counts), operators)):
        found.setdefault(wish.workload.key, wish)
    return list(found.values())


def _tasks(name: str, placement: Placement, counts: Sequence[int], most: int) -> list[Wish]:
    """At most so many of a network's workloads, evenly from front to back."""
    known = list(_defaults(name, placement, counts))
    places = np.unique(np.linspace(0, len(known) - 1, min(most, len(known))).astype(int))
    return [known[place] for place in places]


def _operators(placement: Placement, counts: Sequence[int]) -> Iterator[Wish]:
    """Operators that are neither tiny nor huge, one of each family in turn."""
    by_family = [map(configurations_of(name).text, drawn(name, 0)) for name in _FAMILIES]
    texts = zip(*by_family, strict=False)
    for text in chain.from_iterable(texts):
        wish = wish_of(text, placement, counts)
        fits = _LEAST_BYTES <= wish.workload.bytes <= _MOST_BYTES
        if fits and wish.workload.flop <= _MOST_FLOP:
            yield wish


def wish_of(text: str, placement: Placement, counts: Sequence[int]) -> Wish:
    """The largest workload of an operator, `op:…`."""
    return max(
        _defaults(text, placement, counts),
        key=lambda wish: (wish.workload.flop, wish.workload.bytes),
    )


def _defaults(name: str, placement: Placement, counts: Sequence[int]) -> Iterator[Wish]:
    """The different workloads of a model's plans that are in single precision, with the candidate
    of the first call of each."""
    options = ModelOptions(seed=0)
    model = load_outline(name, options)
    found: dict[str, tuple[Workload, dict[int, Candidate]]] = {}
    for cores in counts:
        for call in prepare_loaded(model, options, placed(placement, cores)).plan.calls:
            known = found.setdefault(call.workload.key, (call.workload, {}))
            known[1].setdefault(cores, call.candidate)
    for workload, candidates in found.values():
        if workload.element_type == "float32":
            yield Wish(workload=workload, source=name, candidates=candidates)
