"""The child process that holds MetaSchedule's searches and reads and writes its databases.

`measure.metaschedule` is the other side.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.metaschedule.search import Search, read_database, write_database
from tilewright.core.child import serve, wait_until_asleep
from tilewright.core.forms import Form
from tilewright.core.records import Placement
from tilewright.graph.workload import parse_workload

_searches: dict[int, Search] = {}


def begin(
    slot: int, workload_text: str, forms: tuple[Form, ...], placement: Placement, seed: int
) -> None:
    """Open a search in `slot`."""
    _searches[slot] = Search(
        parse_workload(workload_text), forms, placement.target, placement.resources, seed
    )


def propose(slot: int) -> list[str]:
    """The next generation of traces."""
    found = _searches[slot].propose()
    wait_until_asleep()
    return found


def learn(slot: int, outcomes: Sequence[tuple[str, float | None]]) -> None:
    """Tell a search what its traces cost."""
    _searches[slot].learn(outcomes)
    wait_until_asleep()


def end(slot: int) -> None:
    """Forget a search."""
    _searches.pop(slot, None)


if __name__ == "__main__":
    serve(
        {
            "begin": begin,
            "propose": propose,
            "learn": learn,
            "end": end,
            "export": write_database,
            "scan": read_database,
        }
    )
