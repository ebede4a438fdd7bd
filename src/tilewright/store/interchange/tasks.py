"""Workloads that can be read, and which of them outcomes of other programs belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN
from tilewright.graph.anchors import bare_anchor
from tilewright.graph.workload import Workload, parse_workload


def readable_workloads(texts: Iterable[str]) -> list[Workload]:
    """The workloads of all texts that are some."""
    found: list[Workload] = []
    for text in texts:
        try:
            workload = parse_workload(text)
            if workload.key:
                found.append(workload)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, TilewrightError):
            continue
    return found


def count_unmatched(outcomes: Mapping[str, int], texts: Mapping[str, str]) -> int:
    """How many outcomes, counted by workload key, fit no task among `texts` (by key).

    A bare anchor fits every task that is built around it.
    """
    bare: set[str] = set()
    for workload in readable_workloads(texts.values()):
        found = bare_anchor(workload, (PLAIN,) * (len(workload.arguments) + 1))
        bare.add(workload.key if found is None else found.workload.key)
    return sum(n for key, n in outcomes.items() if key not in texts and key not in bare)
