"""The journal of a `collect` command: which kernels it decided to measure, and why; and in which
schedule settings a configuration is measured: default, best known, random.

Drawn configurations follow from the seed, but the best-known settings and the neighbours of what
was predicted badly depend on what was known at the time. What was decided is therefore written
down before it is measured: a command that is repeated goes through its journal first. Without the
file it decides anew, and what was measured is still not measured again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from tilewright.core.codec import FILE_NAMES, decode, digest, encode
from tilewright.core.events import EventSink, Note
from tilewright.core.forms import Form, channel_block, stored_in
from tilewright.core.records import Candidate, Placement
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.hardware.environment import software_versions
from tilewright.hardware.legacy import folder_of
from tilewright.kernels.forms import in_lines
from tilewright.kernels.registry import implementation, is_allowed
from tilewright.kernels.spaces import TaskSpace, default_candidate, spaces
from tilewright.measure.circumstances import is_usual
from tilewright.predict.forecasting import best_guesses
from tilewright.predict.modelling import Predictors
from tilewright.store.base import Store
from tilewright.store.known_candidates import own, ranked, usable

_FORMAT = 1


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename=FILE_NAMES):
    """Candidates of one task, and the seconds that were predicted of each, None where no model
    was there to do so."""

    workload_key: str
    name: str
    forms: tuple[Form, ...]
    candidates: tuple[Candidate, ...]
    predicted_s: tuple[float | None, ...]

    def task(self, workload: Workload) -> Task:
        """The task, of its workload."""
        key = (workload.key, self.forms)
        return Task(key=key, name=self.name, workload=workload, forms=self.forms, count=1, nodes=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A configuration of a family (`numbers`) with what is measured of it: the operator first,
    then copies between layouts around it. `source` is the kernel beside which it lies (workload
    key, candidate), None for one that was drawn."""

    family: str
    numbers: Mapping[str, int]
    batches: tuple[Batch, ...]
    source: tuple[str, Candidate] | None = None


@dataclass(kw_only=True)
class Journal:
    """What was planned so far, oldest first, and the file that keeps it."""

    path: Path
    events: EventSink
    entries: list[Planned] = field(default_factory=list[Planned])
    _whole: bool = False

    @classmethod
    def open(cls, path: Path, events: EventSink) -> Journal:
        """Read a journal. One of other versions does not count, nor what follows a broken line."""
        journal = cls(path=path, events=events)
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError:
            return journal
        journal._whole = lines[0] == _heading() and lines[-1] == b""
        if lines[0] != _heading():
            return journal
        for line in lines[1:-1]:
            try:
                journal.entries.append(decode(line, Planned))
            except msgspec.MsgspecError:
                journal._whole = False
                break
        return journal

    def of(self, family: str) -> list[Planned]:
        """The entries of one family."""
        return [entry for entry in self.entries if entry.family == family]

    def add(self, entry: Planned) -> None:
        """Write an entry down. A folder that cannot be written costs the journal alone."""
        self.entries.append(entry)
        try:
            if self._whole:
                with self.path.open("ab") as file:
                    file.write(encode(entry) + b"\n")
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = [_heading(), *map(encode, self.entries), b""]
            self.path.write_bytes(b"\n".join(lines))
            self._whole = True
        except OSError as error:
            if len(self.entries) == 1:
                self.events(
                    Note(
                        message=f"cannot write {self.path}: {error.strerror or error}; a "
                        "repeated command chooses again what to measure"
                    )
                )


def journal_of(store: Store, placement: Placement, request_key: str, events: EventSink) -> Journal:
    """The journal of a request at a placement: `tilewright.db` → `tilewright.collect/…`."""
    path = folder_of(store.path.with_suffix(".collect"), placement) / f"{request_key}.jsonl"
    return Journal.open(path, events)


def _heading() -> bytes:
    return encode({"format": _FORMAT, "versions": software_versions()})


_USUAL, _ANYWHERE = 0.75, 0.25
"""Part of the random settings in the layouts a network would have, and in any layouts at all."""


def best_known(
    predictors: Predictors, workload: Workload, forms: tuple[Form, ...]
) -> Candidate | None:
    """The settings of a task that are expected to be fastest at a placement as networks use it: the
    choice of its family's model, else what was fastest among measured ones, here before anywhere
    else; None where nothing is known."""
    guesses = best_guesses(predictors, fitting=predictors.shipped is not None)
    for guess in guesses(workload, forms):
        return guess
    rows = [
        row
        for row in predictors.store.stored_measurements(workload_key=workload.key)
        if row.candidate.forms == forms
        and is_usual(row.device_class)
        and is_allowed(row.candidate, workload, predictors.placement)
    ]
    rows = usable(rows, workload, predictors.placement)
    own_class, classes = predictors.placement.key, {row.placement_key for row in rows}
    for key in sorted(classes, key=lambda key: (key != own_class, str(key))):
        for best in ranked(own(row for row in rows if row.placement_key == key)):
            return best.candidate
    return None


def candidates_of(
    task: Task, placement: Placement, predictors: Predictors, count: int, seed: tuple[int, str]
) -> list[Candidate]:
    """The default candidate in the layouts a network would have, the best known one, then `count`
    random ones of any implementation: most in these layouts, others in the operator's own or in
    any. `seed` is a number, and the text that the task comes from."""
    usual = _usual_forms(task, placement)
    default = default_candidate(task.workload, usual, placement)[0]
    found = dict.fromkeys([default, best_known(predictors, task.workload, usual) or default])
    random = np.random.default_rng([seed[0], int(digest(seed[1]), 16) % 2**32])
    for _ in range(count):
        forms = usual if random.random() < _USUAL else task.forms
        offered = spaces(task.workload, forms, placement)
        space = offered[int(random.integers(len(offered)))]
        if random.random() < _ANYWHERE:
            space = _elsewhere(space, random)
        number = int(space.numbers[int(random.integers(len(space.numbers)))])
        found.setdefault(space.part.candidate(number))
    return list(found)


def _usual_forms(task: Task, placement: Placement) -> tuple[Form, ...]:
    """What a network's task has anyway. A single operator's own layouts are those of a network's
    inputs and outputs: what its default implementation would read and write inside a network, in
    the task's element types and as wide blocks."""
    if any(channel_block(form) for form in task.forms):
        return task.forms
    workload, target = task.workload, placement.target
    chosen = default_candidate(workload, task.forms, placement)[0]
    spec = implementation(chosen.implementation)
    usual = spec.port_forms(workload, target, placement.resources)[0]
    kinds = [*(argument.type for argument in workload.arguments), workload.result]
    return tuple(
        stored_in(
            in_lines(form, workload, kind, target, placement.precision), stored.dtype or form.dtype
        )
        for form, stored, kind in zip(usual, task.forms, kinds, strict=True)
    )


def _elsewhere(space: TaskSpace, random: np.random.Generator) -> TaskSpace:
    """The same implementation in any layouts that it offers."""
    ports = space.spec.port_forms(space.workload, space.placement.target, space.placement.resources)
    other = TaskSpace(
        workload=space.workload,
        forms=ports[int(random.integers(len(ports)))],
        placement=space.placement,
        spec=space.spec,
    )
    return other if len(other.numbers) else space
