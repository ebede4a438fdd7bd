"""Verbs about this machine and about the records of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.collect.interchanging import ImportRequest, export_file, import_file
from tilewright.core.arguments import Text, count_of, one_of, path_of, text_or_none
from tilewright.core.records import PlacementKey
from tilewright.core.results import ControlRow, DoctorResult, ImportResult, TargetRow
from tilewright.hardware.device import parse_target
from tilewright.measure.diagnosis import examine
from tilewright.measure.targeting import control_rows, target_rows
from tilewright.session.opened import Opened

if TYPE_CHECKING:
    import polars


_KEY = "the key of a placement, session.placement.key"


class RecordVerbs(Opened):
    """`db import`, `db export`, `doctor`, `targets`, and the measurements as a frame."""

    def import_file(
        self,
        path: Text,
        kind: str | None = None,
        *,
        task: str | None = None,
        target: str | None = None,
    ) -> ImportResult:
        """Take in records of another database or another program; those known already are skipped.

        `kind` is one of docs/reference/logs.md; without it the content of the file decides. A log
        that does not say what it is about needs the key of its `task`, and the `target` it was made
        on. Lines that cannot be read are in `skipped` of the result. Raises `ModelError` for a file
        that is of no known kind.
        """
        made_on = text_or_none(target, "target")
        return import_file(
            ImportRequest(
                path=path_of(path, "path"),
                kind=text_or_none(kind, "kind"),
                task=text_or_none(task, "task"),
                placement=None if made_on is None else parse_target(made_on, self._threads),
            ),
            self.store,
            lambda: self.placement,
        )

    def export_file(self, path: Text, kind: str | None = None) -> int:
        """Write the database to a file; returns how many records were written.

        `kind` is one of docs/reference/logs.md; without it the file's ending decides. Raises
        `OutputError` where the file cannot be written.
        """
        file, form = path_of(path, "path"), text_or_none(kind, "kind")
        return export_file(file, form, self.records, lambda: self.placement)

    def measurements(
        self,
        *,
        workload_key: str | None = None,
        placement: PlacementKey | None = None,
        implementation: str | None = None,
        run_id: int | None = None,
    ) -> polars.DataFrame:
        """A polars frame with a row for each stored measurement that agrees with the arguments.

        Columns are those of docs/reference/database.md, among them `samples_s`, the raw times in
        seconds, and `latency_s`, their median.
        """
        from tilewright.store.interchange.tables import to_frame

        return to_frame(
            self.records.stored_measurements(
                workload_key=text_or_none(workload_key, "workload_key"),
                placement=None
                if placement is None
                else one_of(placement, "placement", PlacementKey, _KEY),
                implementation=text_or_none(implementation, "implementation"),
                run_id=None if run_id is None else count_of(run_id, "run_id"),
            )
        )

    def doctor(self) -> DoctorResult:
        """Check this machine, the installation, the database and what other packages add."""
        return examine(self._location)

    def targets(self) -> tuple[TargetRow, ...]:
        """The targets that can be named on this machine, and whether each can be used."""
        return target_rows(self._threads)

    def controls(self) -> tuple[ControlRow, ...]:
        """What can be set on this machine that times depend on, and whether this process may."""
        return control_rows()
