"""Versions of a task's kernel from all settings that there are, by what is predicted of them.

    on 1 core    the usual kernel, measured on 2 cores     78 µs, carried over
                 direct, tiles of 4 × 8, never measured    0.90 of the usual one by the model: 70 µs

All settings of an implementation are estimated at once, by columns of their facts; the best eight
of each by that are asked for. What a model says of two kernels is compared with itself alone: its
quotient times what the usual kernel takes is the answer, so that the model's own error in a task
does not make what was never measured look faster than what was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import spaces
from tilewright.predict.collected import Estimate
from tilewright.predict.kernel_features import Kernel

MOST_ASKED = 8
"""Settings of each implementation that a model is asked for, of all that are estimated."""
_WORTH = 0.95
"""The part of the usual kernel's time that one must stay below to be called faster: the least of
many predictions is mostly too low."""
_TELLING = ("model", "facts")
"""Where predictions tell two settings of one algorithm apart; the roofline does not."""


def shortlist(
    workload: Workload, forms: tuple[Form, ...], placement: Placement, max_error: float | None
) -> list[Candidate]:
    """Of each implementation of a task in these forms, the settings with the least estimates;
    without libraries, whose estimates nobody believes."""
    found: list[Candidate] = []
    for space in spaces(workload, forms, placement, max_error):
        if not space.when_measured:
            order = np.argsort(space.estimates_s, kind="stable")[:MOST_ASKED]
            found += [space.part.candidate(int(space.numbers[place])) for place in order]
    return found


def predicted_versions(
    usual: Sequence[tuple[Kernel, Estimate]],
    asked: Sequence[Sequence[Candidate]],
    modelled: Callable[[Sequence[Kernel]], list[Estimate]],
    moved_bytes: Callable[[Kernel], int],
) -> list[list[tuple[Kernel, Estimate]]]:
    """For each usual kernel, with what it takes, others by prediction alone: the fastest of those
    `asked` for that are believed to be faster, none where the usual one was measured as it is; and
    of each implementation that moves less the fastest, which takes as long as the usual one where
    nobody believes that it is faster. `modelled` is asked once, for all."""
    every = [
        [kernel, *((kernel[0], one) for one in several if one != kernel[1])]
        for (kernel, _), several in zip(usual, asked, strict=True)
    ]
    answers = iter(modelled([kernel for row in every for kernel in row]))
    found: list[list[tuple[Kernel, Estimate]]] = []
    for (own, taken), row in zip(usual, every, strict=True):
        said = [next(answers) for _ in row]
        there = [
            (kernel, _scaled(taken, one, said[0]))
            for kernel, one in zip(row[1:], said[1:], strict=True)
        ]
        best: dict[str, tuple[Kernel, Estimate]] = {}
        for kernel, one in sorted(there, key=lambda pair: pair[1].latency_s):
            best.setdefault(kernel[1].implementation, (kernel, one))
        first = [pair for pair in best.values() if _is_faster(pair[1], taken)][:1]
        own_bytes = moved_bytes(own)
        quieter = [
            (kernel, one if _is_faster(one, taken) else _at_least(taken.latency_s, one))
            for kernel, one in best.values()
            if moved_bytes(kernel) < own_bytes
        ]
        found.append(list(dict.fromkeys([*first, *quieter])))
    return found


def _is_faster(one: Estimate, taken: Estimate) -> bool:
    """Whether a kernel that was not measured is believed to take less than the usual one."""
    told = taken.source != "exact" and one.source in _TELLING
    return told and one.latency_s <= _WORTH * taken.latency_s


def _at_least(seconds: float, one: Estimate) -> Estimate:
    longer_s = max(one.latency_s, seconds)
    return replace(one, latency_s=longer_s, high_s=max(one.high_s, longer_s))


def _scaled(taken: Estimate, said: Estimate, of_usual: Estimate) -> Estimate:
    """What a kernel takes of which a model says this, and that of the usual one, which takes
    `taken`; its interval is the model's."""
    factor = taken.latency_s / of_usual.latency_s if of_usual.latency_s else 1.0
    return replace(
        said,
        latency_s=said.latency_s * factor,
        low_s=said.low_s * factor,
        high_s=said.high_s * factor,
    )
