"""The files of `evaluate --out`: cards as a page and as Markdown, plots as pictures."""

from __future__ import annotations

from pathlib import Path

from tilewright.core.scratch import write_text
from tilewright.predict.evaluation import Evaluation

PAGE, TEXT = "predictors.html", "predictors.md"
_POINTS = 400
"""Points of a picture beside Markdown; the page has more."""


def write_cards(folder: Path, evaluation: Evaluation) -> None:
    """Write them into a folder. Raises OutputError where it cannot be written."""
    from tilewright.report import cards

    plots = write_pictures(folder, evaluation)
    write_text(folder / PAGE, cards.page(evaluation))
    write_text(folder / TEXT, f"# Predictors\n\n{cards.markdown(evaluation, plots)}")


def write_pictures(folder: Path, evaluation: Evaluation) -> dict[tuple[str, str], str]:
    """Write the plots alone; their file names by family and target."""
    from tilewright.report import cards

    names: dict[tuple[str, str], str] = {}
    for (family, target), picture in cards.pictures(evaluation, most=_POINTS).items():
        names[family, target] = f"{family}-{target}.svg"
        write_text(folder / names[family, target], picture)
    return names
