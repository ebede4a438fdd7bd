"""Which instances there are, and on which core ids each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.errors import TargetError, UsageError

_GROUP = re.compile(
    r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})(?:@([1-9][0-9]{0,3}))?(?::([^+]+(?:\+[^+]+)*))?"
)
Layout = tuple[int, ...]
"""The number of cores of each instance."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An instance of so many cores, which computes at most `batch` requests at a time (None: as
    many as pay), those for these `networks` before others (none: for all alike)."""

    cores: int
    batch: int | None = None
    networks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As people write it after the number of such instances."""
        batch = "" if self.batch is None else f"@{self.batch}"
        return f"{self.cores}{batch}{':' if self.networks else ''}{'+'.join(self.networks)}"


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """`2x1` → two instances of one core; several such groups between commas. `1x8@8:a+b` computes
    at most eight requests at a time, and those for `a` and `b` first. Raises UsageError."""
    groups = [_GROUP.fullmatch(part.strip()) for part in text.split(",")]
    found = [
        (
            int(group[1]),
            Kind(
                int(group[2]),
                int(group[3]) if group[3] else None,
                tuple(group[4].split("+")) if group[4] else (),
            ),
        )
        for group in groups
        if group is not None
    ]
    if len(found) < len(groups):
        raise UsageError(
            f"{text!r} names no instances",
            hint="Write auto, or INSTANCESxCORES, several between commas: 2x1, or 1x2,4x1. "
            "1x2@8:NAME+NAME computes at most 8 requests at a time, and those networks first.",
        )
    for _, kind in found:
        for name in kind.networks:
            if kind.networks.count(name) > 1:
                raise UsageError(f"{text!r} names {name!r} twice for the same instances.")
    return tuple(kind for count, kind in found for _ in range(count))


def parse_layout(text: str) -> Layout:
    """The number of cores of each instance alone. Raises UsageError."""
    return tuple(kind.cores for kind in parse_kinds(text))


def kinds_of(here: Sequence[int | Kind]) -> tuple[Kind, ...]:
    """Instances, of which some are numbers of cores alone."""
    return tuple(Kind(each) if isinstance(each, int) else each for each in here)


def layout_text(layout: Sequence[int | Kind]) -> str:
    """The same as people write it."""
    given = kinds_of(layout)
    return ",".join(f"{given.count(kind)}x{kind.text}" for kind in dict.fromkeys(given))


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
