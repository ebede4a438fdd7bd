"""Workloads that logs speak of: single anchors, and which known tasks they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN
from tilewright.graph.anchors import bare_anchor
from tilewright.graph.tasks import collapse_rows
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Step, Workload, parse_workload
from tilewright.store.interchange.lines import Json, NotUnderstood

Shape = tuple[int, ...]


def convolution_task(
    data: Shape, weight: Shape, *, strides: Shape, padding: Shape, dilation: Shape
) -> Workload:
    """The bare convolution as our networks have it: constant weights, one group.

    A 1×1 convolution with stride 1 has its rows collapsed, as everywhere in a network. Raises
    `NotUnderstood` for shapes that fit no convolution.
    """
    workload = Workload(
        arguments=(
            Argument(type=TensorType(data)),
            Argument(type=TensorType(weight), role="constant"),
        ),
        steps=(
            Step(
                operator="conv2d",
                inputs=(0, 1),
                attributes=(
                    ("dilation", dilation),
                    ("groups", 1),
                    ("padding", padding),
                    ("strides", strides),
                ),
            ),
        ),
    )
    try:
        collapsed = collapse_rows(workload)
        return collapsed if collapsed.result.elements else workload
    except TilewrightError as error:
        raise NotUnderstood(error.message) from error


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
    bare = {_bare_key(workload) for workload in readable_workloads(texts.values())}
    return sum(n for key, n in outcomes.items() if key not in texts and key not in bare)


def _bare_key(workload: Workload) -> str:
    """The key of a workload's anchor alone; its own where it has none."""
    bare = bare_anchor(workload, (PLAIN,) * (len(workload.arguments) + 1))
    return workload.key if bare is None else bare.workload.key


def workload_entry(workload: Workload) -> Json:
    """A workload as an entry that comes along with a record."""
    return {"record": "workload", "key": workload.key, "text": workload.text}


def text_entries(key: object, text: object) -> tuple[Json, ...]:
    """The entry for a workload's text that a file holds beside a record; none for no text."""
    return () if text is None else ({"record": "workload", "key": key, "text": text},)
