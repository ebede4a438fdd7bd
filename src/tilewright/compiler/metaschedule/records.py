"""What crosses between the process that asks for a MetaSchedule database and the one with TVM."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.forms import Form
from tilewright.core.records import Candidate

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
MODULE = "module.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportEntry:
    """A measured kernel: its workload's text, and the hash it had when it was measured."""

    workload_text: str
    candidate: Candidate
    kernel_hash: str
    samples_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRecord:
    """One line of a database (counted from 1).

    `problem` says why it cannot be used at all, empty where it can. `position` is that of the
    workload whose plain computation in `forms` the record schedules, None where it fits none.
    `kernel_hash` is that of the kernel the trace makes from the record's own module.
    """

    line: int
    problem: str = ""
    position: int | None = None
    forms: tuple[Form, ...] = ()
    trace: str = ""
    samples_s: tuple[float, ...] = ()
    kernel_hash: str = ""
