"""Cards of the predictors that ship with tilewright, one page for each device class.

    python benchmarks/predictor_cards.py [--only FAMILY…] [--results FOLDER]

Writes docs/predictor-cards.md and docs/predictor-cards-epyc.md, and the tables of families in
docs/benchmarks-predictors/kernels.md. Each family is judged on unseen configurations and on unseen
networks, from the shipped measurements alone: no database is read and nothing is timed, so every
machine gives the same pages. Results are stored family by family; the same command continues where
it stopped. It takes minutes of CPU time, most of them for conv2d. After a change of the shipped
measurements or of the predictors, name another folder.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pages import replace_between
from tilewright.core.errors import ModelError
from tilewright.core.events import discard
from tilewright.core.predictions import EvaluateResult, EvaluateRow
from tilewright.core.records import Placement
from tilewright.insight.evaluating import evaluate_kernels
from tilewright.predict.collected import shipped_data
from tilewright.predict.evaluation import EvaluateRequest, Evaluation, Split
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.report import predictor_cards as cards
from tilewright.report.formats import to_markdown
from tilewright.report.shown import percent
from tilewright.report.views import evaluation_table
from tilewright.store import open_store

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
SUMMARY_PAGE = DOCS / "benchmarks-predictors" / "kernels.md"
PAGES = {
    "intel-xeon-processor-avx512-137051efbe-2t": "predictor-cards",
    "amd-epyc-avx512-9c172e064d-2t": "predictor-cards-epyc",
}
"""The page of each device class whose kernels ship with tilewright, without its ending; its
pictures are in a folder of that name."""

WHOLE = ("all", "operator facts alone")
LEAST_SHOWN = 100
INTRODUCTION = """# Cards of the shipped predictors: {device_class}

How far can predicted times be trusted on this class of processors, with {threads} threads? Each \
card below answers this for the predictor of one family of operators: what it was fitted to, how \
far off it is on operators that it has not seen, and what limits it. The mean error goes from \
{least} to {most}. Where it is too large for your purpose, measure the kernels with `tilewright \
collect`. [Accuracy of kernels](benchmarks-predictors/kernels.md) has all families in one table \
and discusses the causes of the errors; [knobs](reference/knobs.md) explains the implementations. \
There are also cards of {others}.

{reading}

This page is made by `python benchmarks/predictor_cards.py` from the measured kernels that ship \
with tilewright; nothing is timed. `tilewright evaluate --out FOLDER` makes such a page from the \
kernels of your database.
"""
NETWORKS = """## Unseen networks

In this table whole networks were kept aside instead of configurations: the networks are divided \
into five parts, and each part is predicted by models that were fitted without any kernel of its \
networks' operators, whatever is fused to them and wherever else it occurs. The networks \
themselves were never collected. The rows are kernels of single operators, in default and random \
settings, that a network of the zoo happens to contain. They are few, and operators of nearly the \
same size stay among the training rows, because `collect` varies the sizes of such networks' \
operators. A network unlike those of the zoo may therefore have larger errors than these. Families \
without such a kernel are missing; a kernel that occurs in two networks counts for both.
"""


def judged(predictors: Predictors, split: Split, family: str, kept: Path) -> Evaluation | None:
    """One evaluation, from its file if it was stored before; None if there are too few rows."""
    path = kept / f"{split}-{family}.pickle"
    if not path.exists():
        print(f"{family} by {split}", flush=True)
        request = EvaluateRequest(family=family, split=split)
        try:
            found = evaluate_kernels(predictors, request)
        except ModelError as error:
            print(f"  {error.message}", flush=True)
            found = None
        path.write_bytes(pickle.dumps(found))
    return pickle.loads(path.read_bytes())


def together(found: Sequence[Evaluation]) -> Evaluation:
    """One evaluation that holds those of several families."""
    results = [one.result for one in found]
    result = EvaluateResult(
        family="all",
        split=results[0].split,
        shots=0,
        rows=tuple(row for one in results for row in one.rows),
        cards=tuple(card for one in results for card in one.cards),
    )
    return Evaluation(result=result, held_out=tuple(part for one in found for part in one.held_out))


def evaluations(
    placement: Placement, only: Sequence[str], split: Split, kept: Path
) -> Iterator[Evaluation]:
    """The evaluations of all families of a device class that have enough rows."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "none.db") as store:
        predictors = predictors_of(placement, store, discard)
        for family in only or predictors.families():
            found = judged(predictors, split, family, kept)
            if found is not None:
                yield found


def write_summary(result: EvaluateResult, page: str) -> None:
    """Replace the table of families: every group of convolutions, and all rows of the others."""
    shown = [
        row
        for row in result.rows
        if row.group in WHOLE or (row.family == "conv2d" and row.n >= LEAST_SHOWN)
    ]
    marks = (f"<!-- {page}: begin -->", f"<!-- {page}: end -->")
    replace_between(SUMMARY_PAGE, marks, table(shown).strip())


def table(rows: Sequence[EvaluateRow]) -> str:
    """The errors of several families; all are of the same target, which is not repeated."""
    found = evaluation_table(rows)
    columns = tuple(column for column in found.columns if column.field != "target")
    return to_markdown(replace(found, columns=columns)).split("\n\n", 1)[1]


def introduction(placement: Placement, result: EvaluateResult) -> str:
    """What a page is about, and how to read it."""
    whole = sorted((row for row in result.rows if row.group == "all"), key=lambda row: row.mape)
    least, most = (f"{percent(row.mape)} (`{row.family}`)" for row in (whole[0], whole[-1]))
    name = str(placement.key)
    return INTRODUCTION.format(
        device_class=name,
        threads=placement.resources.threads,
        least=least,
        most=most,
        others=", ".join(f"[{key}]({page}.md)" for key, page in PAGES.items() if key != name),
        reading="\n\n".join(cards.READING),
    )


def write_class(placement: Placement, only: Sequence[str], results: Path) -> None:
    """Evaluate what is not stored of a device class, then write its page and its pictures."""
    name = str(placement.key)
    page, kept = PAGES[name], results / name
    kept.mkdir(parents=True, exist_ok=True)
    seen = together(list(evaluations(placement, only, "configuration", kept)))
    networks = together(list(evaluations(placement, only, "network", kept)))
    pictures = cards.write_pictures(DOCS / page, seen)
    plots = {which: f"{page}/{picture}" for which, picture in pictures.items()}
    parts = [introduction(placement, seen.result), cards.markdown(seen, plots)]
    parts += [NETWORKS, table(networks.result.rows)]
    (DOCS / f"{page}.md").write_text("\n".join(parts), encoding="utf-8")
    if not only:
        write_summary(seen.result, page)


def main() -> int:
    """Write the pages of all device classes whose kernels ship with tilewright."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--results", type=Path, default=HERE / "results/predictor_cards")
    arguments = parser.parse_args()
    for placement in (shipped.placement for shipped in shipped_data()):
        print(placement.key, flush=True)
        write_class(placement, arguments.only, arguments.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
