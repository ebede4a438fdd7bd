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
from pathlib import Path

from pages import replace_between
from tilewright.core.errors import ModelError
from tilewright.core.events import discard
from tilewright.core.predictions import EvaluateResult
from tilewright.core.records import Placement
from tilewright.insight.evaluating import evaluate_kernels
from tilewright.predict.collected import shipped_data
from tilewright.predict.evaluation import EvaluateRequest, Evaluation, Split
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.report import predictor_cards as cards
from tilewright.report.formats import to_markdown
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

Made by `python benchmarks/predictor_cards.py` from the kernels that ship with tilewright; \
nothing is timed. `tilewright evaluate --out FOLDER` makes such a page from the kernels of your \
database. Errors are |predicted ÷ measured − 1|. Every prediction is made by a model that was \
fitted without any kernel of that configuration, or at the end of the page without any kernel of \
that network's operators. In the pictures both axes are logarithmic, the dashed lines are 10 % \
off, the band is the median 90 % interval, and at most 400 rows are drawn. [Accuracy of \
kernels](benchmarks-predictors/kernels.md) discusses the causes of the errors. There are also \
cards of {others}.
"""
NETWORKS = """## Unseen networks

Networks are kept aside in five parts, with every kernel of their operators, whatever is fused to \
them and wherever else it occurs. These rows are kernels of single operators in default and \
random settings that a network of the zoo happens to contain: the networks themselves were not \
collected. They are few, and similar to the training rows: `collect` varies the sizes of such \
networks' operators, so that operators of similar sizes are not kept aside. Families without such \
a kernel are missing.
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
    table = to_markdown(evaluation_table(shown)).split("\n\n", 1)[1].strip()
    replace_between(SUMMARY_PAGE, (f"<!-- {page}: begin -->", f"<!-- {page}: end -->"), table)


def write_class(placement: Placement, only: Sequence[str], results: Path) -> None:
    """Evaluate what is not stored of a device class, then write its page and its pictures."""
    name = str(placement.key)
    page, kept = PAGES[name], results / name
    kept.mkdir(parents=True, exist_ok=True)
    seen = together(list(evaluations(placement, only, "configuration", kept)))
    networks = together(list(evaluations(placement, only, "network", kept)))
    pictures = cards.write_pictures(DOCS / page, seen)
    plots = {which: f"{page}/{picture}" for which, picture in pictures.items()}
    table = to_markdown(evaluation_table(networks.result.rows)).split("\n\n", 1)[1]
    others = ", ".join(f"[{key}]({of}.md)" for key, of in PAGES.items() if of != page)
    introduction = INTRODUCTION.format(device_class=name, others=others)
    parts = [introduction, cards.markdown(seen, plots), NETWORKS, table]
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
