"""The device and the database of a session, which are opened when they are first used."""

from __future__ import annotations

from typing import Self

from tilewright.core.arguments import Error, Text, count_of, location_of, text_of, text_or_none
from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, discard
from tilewright.core.records import Placement
from tilewright.core.settings import read_settings
from tilewright.hardware.gpus import is_cuda
from tilewright.measure.targeting import fine_enough, placement_of, usable_placement
from tilewright.models import ModelOptions
from tilewright.models.given import GivenModel, given_model
from tilewright.models.loaded import options_of
from tilewright.report import formats, tables
from tilewright.store import open_for_reading, open_store
from tilewright.store.base import Store


class Opened:
    """A session's device and database, which all verbs work with.

    `meter` is the name of the meter by which `collect` measures energy, too; None for none.
    `verify` says whether files of artifacts are compared with their hashes.
    Raises `UsageError` for arguments of other kinds.
    """

    def __init__(
        self,
        *,
        db: Text | None = None,
        target: str = "llvm",
        tracker: str | None = None,
        threads: int | None = None,
        seed: int = 0,
        events: EventSink = discard,
    ) -> None:
        if not callable(events):
            raise UsageError("events must be a function that takes an event.")
        self.seed = count_of(seed, "seed")
        self.events = events
        self.meter: str | None = None
        self.verify = True
        self._target = text_of(target, "target")
        self._tracker = text_or_none(tracker, "tracker")
        self._threads = None if threads is None else count_of(threads, "threads", 1)
        self._location = read_settings().database if db is None else location_of(db, "db")
        self._placement: Placement | None = None
        self._store: Store | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<tilewright session: {facts}>"

    def _repr_html_(self) -> str:
        facts = [(name, value, value) for name, value in self._facts().items()]
        return formats.notebook_fragment([tables.facts_table("Session", facts)])

    def _facts(self) -> dict[str, str]:
        """What is known without looking at the machine or opening the database."""
        threads = self._threads if self._placement is None else self._placement.resources.threads
        facts = {
            "target": self._target,
            "threads": "all physical cores" if threads is None else str(threads),
            "database": self._location,
            "seed": str(self.seed),
        }
        if self._tracker is not None:
            facts["tracker"] = self._tracker
        return facts

    def close(self) -> None:
        """Close the database. A later call of a verb opens it again."""
        if self._store is not None:
            self._store.close()
            self._store = None

    @property
    def placement(self) -> Placement:
        """Where kernels run: a device, how many of its threads and cores, and on which CPUs.

        Raises `TargetError` for a device that cannot be used.
        """
        if self._placement is None:
            self._placement = usable_placement(
                placement_of(self._target, self._tracker, self._threads), self.events
            )
        return self._placement

    def _said(self, options: ModelOptions | None, max_error: Error | None = None) -> ModelOptions:
        """What is said of a model, within an error: by default the session's seed alone."""
        return fine_enough(options_of(options, self.seed), max_error, self.events)

    @property
    def foreseen(self) -> Placement:
        """Where kernels would run that are only predicted; a GPU need not be here for that."""
        if is_cuda(self._target):
            return placement_of(self._target, self._tracker, self._threads)
        return self.placement

    @property
    def store(self) -> Store:
        """The database, for reading and writing. Raises `StoreError` where it cannot be opened."""
        if self._store is None or self._store.readonly:
            self.close()
            self._store = open_store(self._location)
        return self._store

    @property
    def records(self) -> Store:
        """The database, for work that only reads it; its folder may be read-only."""
        if self._store is None:
            self._store = open_for_reading(self._location)
        return self._store

    def _given(self, model: object, options: ModelOptions) -> GivenModel:
        """A model as the rooms below read it."""
        return given_model(model, options, read_settings().cache)
