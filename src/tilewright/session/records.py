"""Verbs on the machine and on what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.collect.interchanging import ImportRequest, export_file, import_file
from tilewright.core.arguments import Text, count_of, one_of, path_of, text_or_none
from tilewright.core.records import PlacementKey
from tilewright.core.results import DoctorResult, ImportResult, TargetRow
from tilewright.hardware.device import parse_target
from tilewright.measure.diagnosis import examine
from tilewright.measure.targeting import target_rows
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
        """Take in records of another database or another program; see `tilewright db import`."""
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
        """Write the database to a file, in a form that another program reads; returns a count."""
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
        """Everything measured so far that agrees with what is given, one row per measurement, as a
        polars frame: a column per scalar, `latency_s` (median) and `samples_s`."""
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
        """Check the installation and the machine."""
        return examine(self._location)

    def targets(self) -> tuple[TargetRow, ...]:
        """What `--target` takes here."""
        return target_rows(self._threads)
