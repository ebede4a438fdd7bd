"""The child process that holds MetaSchedule's searches, with generations as small as those of
searches in a test's own process."""

from __future__ import annotations

from runpy import run_module

from tilewright.compiler.metaschedule import search
from tilewright.measure import metaschedule

POPULATION, BATCH = 32, 6

if __name__ == "__main__":
    search.POPULATION, search.BATCH = POPULATION, BATCH
    run_module(metaschedule.WORKER, run_name="__main__")
