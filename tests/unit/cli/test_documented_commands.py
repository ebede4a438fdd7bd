"""Commands in the documents are commands: each is read, none is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tilewright.cli.help_pages import EXAMPLES
from tilewright.cli.main import build_app
from tilewright.models.single_operator import build_operator

pytestmark = pytest.mark.regression

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(?:bash|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(?:\S*/)?tilewright (?!VERB)(.+)$", re.MULTILINE)
OPERATOR = re.compile(r"op:(\w+\[[^\]…]*\])")
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


def test_operators_in_examples_can_be_built() -> None:
    lines = [line for page in PAGES for line in commands(page)]
    lines += [line for examples in EXAMPLES.values() for line in examples]
    operators = {text for line in lines for text in OPERATOR.findall(line)}
    assert len(operators) >= 8
    for text in operators:
        build_operator(text, outline=True)


def test_examples_of_the_help_can_be_read() -> None:
    app = build_app()
    for line in (line for examples in EXAMPLES.values() for line in examples):
        app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_there_are_many() -> None:
    assert sum(len(commands(page)) for page in PAGES) >= 30
