"""The page that says how much of ONNX is computed, and why the rest is not, from the results of
`onnx_node_tests.py`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from pages import replace_between, table

PAGE = Path(__file__).parent.parent / "docs/reference/onnx-coverage.md"
MARKS = ("<!-- node tests: begin -->", "<!-- node tests: end -->")
ENGINE = "onnxruntime/"
RIGHT, REFUSED = "right", "refused"
REASONS = (
    (r"neither its scales nor its sizes|region of interest|Type <class .* for size",
     "scales, regions or wishes for sizes are inputs"),
    (r"depends on the data|has no kernel of static shape|Dynamic pads|'Var' object",
     "the shape of the result, or which elements it has, depends on an input"),
    (r"reads .* from outside", "a loop whose number of turns depends on an input"),
    (r"Scan.*batch axis", "`Scan` before operator set 9, with a batch axis"),
    (r"second output", "the second output, the places of the largest elements"),
    (r"elements of type|is not supported$|of type .* (is|are) not supported",
     "the element type"),
    (r"cannot be compiled|no kernel", "no translation, and TVM's importer has none"),
)  # fmt: skip
"""What errors say, in the words of the page."""

Results = Mapping[str, tuple[str, str]]
"""Verdict and detail by test; those of ONNX Runtime behind its name."""
Facts = Mapping[str, tuple[str, str]]
"""Operator of each test of a node as it is, and why it does not count, if so."""


def write_page(results: Results, facts: Facts) -> None:
    """Put the tables into the page."""
    replace_between(PAGE, MARKS, page_text(results, facts))


def page_text(results: Results, facts: Facts) -> str:
    """What stands between the marks: totals, then what is not right without an island."""
    tried = {name: fact for name, fact in facts.items() if name in results}
    left_out = Counter(why for _, why in tried.values() if why)
    counted = [name for name, (_, why) in tried.items() if not why]
    passed = [name for name in counted if results.get(ENGINE + name, ("", ""))[0] == RIGHT]
    alone = [name for name in passed if results[name] == (RIGHT, "")]
    verdicts = Counter(results[name][0] for name in passed)
    others = Counter(results[name][0] for name in counted if name not in passed)
    rows = [
        ("node tests in the package", str(len(tried)), ""),
        *((f"left out: {why}", str(count), "") for why, count in left_out.most_common()),
        ("not passed by ONNX Runtime", str(sum(others.values())), ""),
        ("**passed by ONNX Runtime**", f"**{len(passed)}**", "100 %"),
        ("right here, all of it compiled", str(len(alone)), _share(len(alone), passed)),
        (
            "right here, with islands that ONNX Runtime computes",
            str(verdicts[RIGHT]),
            _share(verdicts[RIGHT], passed),
        ),
        ("refused", str(verdicts[REFUSED]), _share(verdicts[REFUSED], passed)),
    ]
    faults = [
        (verdict, str(count), _share(count, passed))
        for verdict, count in verdicts.items()
        if verdict not in (RIGHT, REFUSED)
    ]
    versions = ", ".join(f"{name} {version(name)}" for name in ("onnx", "onnxruntime"))
    return "\n\n".join(
        (
            f"With {versions}:",
            table(("tests", "count", "share"), [*rows, *faults]),
            f"Of those that ONNX Runtime does not pass, {others[RIGHT]} are right here.",
            "## What is not compiled",
            _rest(passed, results, facts),
        )
    )


def _share(count: int, passed: list[str]) -> str:
    return f"{100 * count / max(1, len(passed)):.1f} %"


def _rest(passed: list[str], results: Results, facts: Facts) -> str:
    """Operator and reason of what is not right without an island, the most frequent first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in passed:
        verdict, detail = results[name]
        if (verdict, detail) != (RIGHT, ""):
            why = reason(detail) if verdict in (RIGHT, REFUSED) else f"{verdict}: {detail}"
            groups.setdefault((facts[name][0], why), []).append(name)
    rows = [
        (
            f"`{operator}`",
            why,
            str(sum(results[name][0] == RIGHT for name in names)),
            str(sum(results[name][0] != RIGHT for name in names)),
            " ".join(f"`{name.removeprefix('test_')}`" for name in names),
        )
        for (operator, why), names in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))
    ]
    return table(("operator", "why", "right in an island", "refused", "tests"), rows)


def reason(detail: str) -> str:
    """Why a test was refused, in the words of the page; the error without its names otherwise."""
    for pattern, words in REASONS:
        if re.search(pattern, detail):
            return words
    plain = re.sub(r"^node '[^']*'( \('\w+'\))?:? ", "", detail.splitlines()[0])
    return re.sub(r"'[^']*'", "…", plain).replace("|", "/")
