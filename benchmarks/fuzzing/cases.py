"""What a case is: commands to run on something hostile, and what must hold afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fuzzing.verdicts import Fault
from fuzzing.warm import Ended

Words = tuple[str, ...]
Check = Callable[[Sequence[Ended]], list[Fault]]


def nothing_more(_ended: Sequence[Ended]) -> list[Fault]:
    """No check beyond that of each command."""
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Something hostile, in a folder of its own.

    `what` says it in words. The `commands` run in turn, each a command line without `tilewright`;
    `given_bytes` is the size of the hostile file. `check` looks at what came of it, in a process
    of its own. The verbs of `long` may take longer than a case may: they get Ctrl-C then.
    """

    what: str
    commands: Sequence[Words]
    given_bytes: int = 0
    check: Check = nothing_more
    long: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What cases of all kinds share: a `folder` with a good artifact, a good database, a cache."""

    folder: Path

    @property
    def database(self) -> Path:
        """A database with measurements and failures of this machine."""
        return self.folder / "good.db"

    @property
    def artifact(self) -> Path:
        """A compiled network; `network.onnx` beside it is what it was made from."""
        return self.folder / "artifact"

    @property
    def network(self) -> Path:
        """The network of the artifact."""
        return self.folder / "network.onnx"

    @property
    def cache(self) -> Path:
        """Shared by all cases: what is there can be made again."""
        return self.folder / "cache"


class Kind(Protocol):
    """One kind of hostile thing."""

    def __call__(self, ground: Ground, seed: int, folder: Path) -> Case:
        """The case of a seed, written into `folder`: the same one whenever it is asked for."""
        ...


def generator(kind: str, seed: int) -> random.Random:
    """Everything random about a case."""
    return random.Random(f"{kind}:{seed}")
