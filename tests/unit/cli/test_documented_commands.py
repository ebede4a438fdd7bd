"""Commands in the documents are commands: each is read, none is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tilewright.cli.main import build_app

pytestmark = pytest.mark.regression

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(?:bash|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(?:\S*/)?tilewright (?!VERB)(.+)$", re.MULTILINE)
END = {"|", "||", "&&", ">", ";", "#"}


def commands(page: Path) -> list[str]:
    """The command lines in the fenced blocks of a page."""
    return [line for block in FENCED.findall(page.read_text()) for line in COMMAND.findall(block)]


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda page: page.name)
def test_each_can_be_read(page: Path) -> None:
    app = build_app()
    for line in commands(page):
        tokens = shlex.split(line, comments=True)
        cut = next((n for n, token in enumerate(tokens) if token.rstrip(";") in END), len(tokens))
        app.parse_args(tokens[:cut], exit_on_error=False, print_error=False)


def test_there_are_many() -> None:
    assert sum(len(commands(page)) for page in PAGES) >= 30
