"""Which instances there are, and on which core ids each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright.core.errors import TargetError, UsageError

_GROUP = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")
Layout = tuple[int, ...]
"""The number of cores of each instance."""


def parse_layout(text: str) -> Layout:
    """`2x1` → two instances of one core; several such groups between commas. Raises UsageError."""
    groups = [_GROUP.fullmatch(part.strip()) for part in text.split(",")]
    found = [(int(group[1]), int(group[2])) for group in groups if group is not None]
    if len(found) < len(groups):
        raise UsageError(
            f"{text!r} names no instances",
            hint="Write auto, or INSTANCESxCORES, several between commas: 2x1, or 1x2,4x1.",
        )
    return tuple(cores for count, cores in found for _ in range(count))


def layout_text(layout: Layout) -> str:
    """The same as people write it."""
    kinds = dict.fromkeys(layout)
    return ",".join(f"{layout.count(cores)}x{cores}" for cores in kinds)


def placed(layout: Layout, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """The core ids of each instance, none of them twice. Raises TargetError where there are fewer
    than are wanted."""
    if sum(layout) > len(cpus):
        allotted = f"{len(cpus)} logical CPUs" if len(cpus) > 1 else "one logical CPU"
        raise TargetError(
            f"the instances {layout_text(layout)} want {sum(layout)} cores: this process is "
            f"allotted {allotted}",
            hint=f"Leave --instances out, or give it at most {len(cpus)} cores in all.",
        )
    ends = [sum(layout[: index + 1]) for index in range(len(layout))]
    return [tuple(cpus[end - cores : end]) for cores, end in zip(layout, ends, strict=True)]
