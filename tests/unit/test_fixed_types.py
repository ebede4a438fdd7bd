"""Where an element type, a kind of processor, its registers, a number of threads or a clock are
still fixed in code.

They are to become values (decision 0036). The list says how often each file names one; it may only
shrink, and says so: a count that fell has to be lowered here, too.

    python tests/unit/test_fixed_types.py       writes the list anew
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import tilewright

PACKAGE = Path(tilewright.__file__).parent
LIST = Path(__file__).with_name("fixed_types.json")
PATTERNS = {
    "element type": r'"float32"',
    "kind of processor": r'"cuda"',
    "facts of CPUs": r"\bCpuFacts\b|\.cpu\.",
    "lanes of one type": r"\blanes_f32\b",
    "number of threads": r"threads_alone\([0-9]|Resources\(cores=[0-9]|\bthreads(: int)? ?= ?[0-9]",
    "clock": r"\b[1-9]\.[0-9]+e9\b.*|_HZ\b",
}


def counted() -> dict[str, dict[str, int]]:
    """By what is fixed and by file, how many lines name it."""
    found: dict[str, dict[str, int]] = {kind: {} for kind in PATTERNS}
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for kind, pattern in PATTERNS.items():
            count = sum(bool(re.search(pattern, line)) for line in lines)
            if count:
                found[kind][path.relative_to(PACKAGE).as_posix()] = count
    return found


def test_what_is_fixed_only_shrinks() -> None:
    allowed, now = json.loads(LIST.read_text(encoding="utf-8")), counted()
    assert set(allowed) == set(PATTERNS)
    for kind, files in now.items():
        more = {name: n for name, n in files.items() if n > allowed[kind].get(name, 0)}
        assert not more, f"{kind}: pass it on as a value instead"
    assert now == allowed, "fewer than listed, well done: run this file to write the list anew"


if __name__ == "__main__":
    LIST.write_text(json.dumps(counted(), indent=1) + "\n", encoding="utf-8")
