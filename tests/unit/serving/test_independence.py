"""Whether requests that run together have something of each other in their answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fakes.toy_serving import toy_network
from helpers.fakes.toy_serving_worker import MIXES
from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Note
from tilewright.serving.batches import NO_BATCHES
from tilewright.serving.serve import independent, serve
from tilewright.serving.server import ServerOptions

WORKER = "helpers.fakes.toy_serving_worker"
MIXTURES = {
    "x * 0": "",
    "x.sum(0)": "are not those of each alone",
    "np.arange(len(x), dtype=x.dtype)[:, None]": "are not those of each alone",
    "1e-4 * np.cumsum(x, 0, x.dtype)": "depend on its other rows",
    "1e-4 * x.max()": "depend on its other rows",
    "1e-4 * np.roll(x, 2, 0)": "depend on its other rows",
}
"""What is added to the rows of a batch: little of it is no difference that a tolerance shows."""


@pytest.mark.parametrize(("mixture", "why"), MIXTURES.items(), ids=MIXTURES)
def test_what_depends_on_its_neighbours(tmp_path: Path, mixture: str, why: str) -> None:
    network = toy_network(tmp_path, "a", sizes=(2, 3))
    (tmp_path / "a" / MIXES).write_text(mixture)
    notes: list[Event] = []
    options = ServerOptions(worker=WORKER, events=notes.append)
    (found,) = independent([network], options, asked=False)
    assert (found.batches is NO_BATCHES) == bool(why)
    assert bool(notes) == bool(why)
    for note in notes:
        assert isinstance(note, Note) and why in note.message and "'a'" in note.message


def test_whoever_asked_for_batches_is_refused(tmp_path: Path) -> None:
    network = toy_network(tmp_path, "a", sizes=(2,))
    (tmp_path / "a" / MIXES).write_text("x.sum(0)")
    with pytest.raises(UsageError, match=r"'a' cannot be put together(.|\n)*--batches 1"):
        independent([network], ServerOptions(worker=WORKER), asked=True)


@pytest.mark.parametrize("name", ["worker", "supervision", "qeue"])
def test_arguments_that_serve_has_not(tmp_path: Path, name: str) -> None:
    for artifacts in (tmp_path, {"a": tmp_path}):
        with pytest.raises(UsageError, match=f"serve has no argument '{name}'"):
            serve(artifacts, **{name: 1})  # pyright: ignore[reportArgumentType]
