"""Verbs on the machine and on what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.core.arguments import Text, count_of, one_of, path_of, text_or_none
from tilewright.core.records import PlacementKey
from tilewright.core.results import DoctorResult, ImportResult, TargetRow
from tilewright.hardware.device import parse_target
from tilewright.session.opened import Opened

if TYPE_CHECKING:
    import polars


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
        from tilewright.collect.interchanging import ImportRequest, import_file

        made_on = text_or_none(target, "target")
        request = ImportRequest(
            path=path_of(path, "path"),
            kind=text_or_none(kind, "kind"),
            task=text_or_none(task, "task"),
            placement=None if made_on is None else parse_target(made_on, self._threads),
        )
        return import_file(request, self.store, lambda: self.placement)

    def export_file(self, path: Text, kind: str | None = None) -> int:
        """Write the database to a file, in a form that another program reads; returns a count."""
        from tilewright.collect.interchanging import export_file

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
        from tilewright.store.frames import to_frame

        found = self.records.stored_measurements(
            workload_key=text_or_none(workload_key, "workload_key"),
            placement=_key_or_none(placement),
            implementation=text_or_none(implementation, "implementation"),
            run_id=None if run_id is None else count_of(run_id, "run_id"),
        )
        return to_frame(found)

    def doctor(self) -> DoctorResult:
        """Check the installation and the machine."""
        from tilewright.measure.diagnosis import examine

        return examine(self._location)

    def targets(self) -> tuple[TargetRow, ...]:
        """What `--target` takes here."""
        from tilewright.measure.targeting import target_rows

        return target_rows(self._threads)


def _key_or_none(value: object) -> PlacementKey | None:
    """The key of a placement, where one is given."""
    if value is None:
        return None
    return one_of(value, "placement", PlacementKey, "the key of a placement, session.placement.key")
