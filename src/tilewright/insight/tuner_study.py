"""`study tuners`: regret of every tuner on stored sweeps, against the share that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.results import TunerStudyResult, TunerStudyRow
from tilewright.search.sweeps.files import read_sweeps, shipped_sweeps
from tilewright.search.sweeps.sweep import Sweep, compare_tuners
from tilewright.search.tuners.registry import replayable, tuner_factory
from tilewright.store.output import write_text

PAGE = "study-tuners.html"


def study_tuners(
    names: Sequence[str], sweep: Path | None, *, seeds: int, processes: int, events: EventSink
) -> TunerStudyResult:
    """Replay stored sweeps (those of the package without a file) by tuners (all that need no
    compiler without names). Raises UsageError for unknown tuners and no seeds, ModelError for no
    sweep."""
    if seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {seeds}.")
    for name in names:
        tuner_factory(name)
    names = names or replayable()
    sweeps = shipped_sweeps() if sweep is None else read_sweeps(sweep)
    for name in names:
        # Where nothing can be lowered a tuner may not be what its name promises.
        problem = getattr(tuner_factory(name)(sweeps[0].task(0)), "problem", "")
        if problem:
            events(Note(message=f"{name}: {problem}"))
    events(Stage(name="replay", detail=f"{len(names)} tuners on {len(sweeps)} sweeps"))
    jobs = [(name, index) for index in range(len(sweeps)) for name in names]
    work = partial(_replay, sweep=sweep, seeds=seeds)
    if processes == 1:
        found = [work(job) for job in jobs]
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(work, jobs))
    return TunerStudyResult(rows=tuple(row for rows in found for row in rows))


def write_page(folder: Path, result: TunerStudyResult) -> None:
    """Write the figures as `study-tuners.html` into a folder."""
    from tilewright.report.html import render_tuner_study

    write_text(folder / PAGE, render_tuner_study(result))


def _replay(job: tuple[str, int], *, sweep: Path | None, seeds: int) -> list[TunerStudyRow]:
    name, index = job
    sweeps: Sequence[Sweep] = shipped_sweeps() if sweep is None else read_sweeps(sweep)
    return compare_tuners([(name, tuner_factory(name))], [sweeps[index]], seeds=seeds)
