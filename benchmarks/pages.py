"""Tables that benchmarks write into the pages of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

PAGE_OF_CARDS = Path(__file__).parent.parent / "docs" / "benchmarks-on-a-card.md"
"""What was measured on GPUs."""


def marks(name: str) -> tuple[str, str]:
    """The two marks of a text by its name."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def replace_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Put a text between the two marks of a page, each of which stands there once."""
    before, rest = page.read_text(encoding="utf-8").split(marks[0])
    after = rest.split(marks[1])[1]
    page.write_text(f"{before}{marks[0]}\n\n{text}\n\n{marks[1]}{after}", encoding="utf-8")
