"""Times of optimized networks compared with ONNX Runtime and OpenVINO, within given budgets.

    python benchmarks/bars.py [--only SECTION…] [--networks NAME…] [--budget 5m]

Each network is optimized with an empty database, then timed in turn with ONNX Runtime and, where it
is installed, OpenVINO. Results are stored after every network; the same command continues where it
stopped. The tables are written to docs/benchmarks.md, which also describes the sections.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bar_records import Item, Record, Records
from bar_tables import write_tables
from measured_command import CommandFailed, run_tilewright

HERE = Path(__file__).parent
CNNS = (
    "resnet18",
    "resnet50",
    "vgg19_bn",
    "inception_v3",
    "densenet201",
    "mobilenet_v2",
    "squeezenet1_1",
    "googlenet",
)
SECTIONS = {
    "budgets": (("resnet50",), ("0", "2m", "8m"), "optimize"),
    "cnns": (CNNS, ("5m",), "optimize"),
    "transformers": (("bert_base", "vit_b16"), ("5m",), "optimize"),
    "second": (("resnet50",), ("8m",), "second"),
    "parts": (("resnet50", "mobilenet_v2"), ("5m",), "parts"),
    "untuned": (("resnet50",), ("8m",), "untuned"),
}
LEFT_OUT = ("tasks", "warnings", "artifact", "curve", "searches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where things are kept, and how commands are run. `db` replaces the empty databases."""

    results: Path
    db: Path | None
    threads: int | None

    def database(self, item: Item) -> Path:
        """The database of an item; `second`, `parts` and `untuned` use the one of a main run."""
        if self.db is not None:
            return self.db
        section = {"second": "budgets", "untuned": "budgets", "parts": "cnns"}.get(item.section)
        return self.results / "db" / f"{replace(item, section=section or item.section).id}.db"

    def flags(self, item: Item) -> list[str]:
        """Flags of every command of an item."""
        threads = [] if self.threads is None else ["--threads", str(self.threads)]
        return ["--db", str(self.database(item)), *threads]

    def log(self, item: Item) -> Path:
        """Where progress of the commands goes."""
        return self.results / "log" / f"{item.id}.txt"


def optimize(bench: Bench, item: Item) -> Record:
    """`optimize`, and for a main run `compare`."""
    database = bench.database(item)
    if item.kind == "optimize" and bench.db is None:
        for path in database.parent.glob(f"{database.name}*"):
            path.unlink()
    if item.kind == "second" and not database.exists():
        raise CommandFailed(f"there is no {database.name}: run the section `budgets` first")
    model, flags, log = f"zoo:{item.network}", bench.flags(item), bench.log(item)
    out = str(bench.results / "out" / item.id)
    ran = run_tilewright(
        ["optimize", model, "--budget", item.budget, "--out", out, *flags], log=log
    )
    data = ran.answer["data"]
    record = replace(
        _empty(item),
        wall_s=ran.wall_s,
        peak_bytes=ran.peak_bytes,
        optimize={name: value for name, value in data.items() if name not in LEFT_OUT},
        warnings=ran.answer["warnings"],
    )
    if item.kind == "second":
        return record
    peers = ["--peers", "onnxruntime,openvino", "--settings", "shipped"]
    compared = run_tilewright(["compare", model, *peers, *flags], log=log)
    return replace(record, compare=compared.answer["data"]["rows"])


def parts(bench: Bench, item: Item) -> Record:
    """`profile` of what shipped: each task alone, and the whole network."""
    model, flags = f"zoo:{item.network}", bench.flags(item)
    ran = run_tilewright(["profile", model, "--settings", "shipped", *flags], log=bench.log(item))
    data = ran.answer["data"]
    names = ("network_latency_s", "tasks_latency_s", "explanation")
    profile = {name: data[name] for name in names}
    return replace(_empty(item), wall_s=ran.wall_s, profile=profile)


def untuned(bench: Bench, item: Item) -> Record:
    """The same network through plain TVM, right after ours was timed again."""
    compared = run_tilewright(
        ["compare", f"zoo:{item.network}", "--peers", "onnxruntime", "--settings", "shipped"]
        + bench.flags(item),
        log=bench.log(item),
    )
    threads = [] if bench.threads is None else ["--threads", str(bench.threads)]
    command = [sys.executable, str(HERE / "untuned_tvm.py"), "--network", item.network, *threads]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"untuned_tvm.py: {done.stderr.strip()[-300:]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return replace(_empty(item), compare=compared.answer["data"]["rows"], untuned=found)


KINDS = {"optimize": optimize, "second": optimize, "parts": parts, "untuned": untuned}


def _empty(item: Item) -> Record:
    return Record(
        id=item.id,
        section=item.section,
        network=item.network,
        budget=item.budget,
        date=time.strftime("%Y-%m-%d"),
    )


def chosen_items(only: Sequence[str], networks: Sequence[str], budget: str | None) -> list[Item]:
    """What to measure. `networks` replaces those of a section, `budget` its budgets."""
    items: list[Item] = []
    for section in only:
        known, budgets, kind = SECTIONS[section]
        for network in networks or known:
            items += [
                Item(section=section, network=network, budget=each, kind=kind)
                for each in ([budget] if budget else budgets)
            ]
    return items


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--networks", nargs="+", default=[], help="instead of each section's")
    parser.add_argument("--budget", help="instead of each section's budgets")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--db", type=Path, help="use this one database for all networks")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--again", action="store_true", help="measure again what is stored")
    parser.add_argument("--tables", action="store_true", help="write the tables, measure nothing")
    parser.add_argument(
        "--page", type=Path, default=HERE.parent / "docs" / "benchmarks.md", help="page to write"
    )
    return parser.parse_args()


def main() -> int:
    """Measure what is missing, write the tables after each item; 1 when something failed."""
    options = parse()
    results: Path = options.results.resolve()
    for name in ("db", "log", "out"):
        (results / name).mkdir(parents=True, exist_ok=True)
    bench = Bench(results=results, db=options.db, threads=options.threads)
    records = Records(results)
    failed = 0
    for item in (
        [] if options.tables else chosen_items(options.only, options.networks, options.budget)
    ):
        if records.get(item) is not None and not options.again:
            print(f"{item.id}: there already", flush=True)
            continue
        print(f"{item.id}: load {os.getloadavg()[0]:.1f} …", flush=True)
        try:
            record = KINDS[item.kind](bench, item)
        except CommandFailed as error:
            record = replace(_empty(item), error=str(error))
            failed += 1
        records.add(record)
        write_tables(options.page, records)
        print(f"{item.id}: {record.error or f'{record.wall_s:.0f} s'}", flush=True)
    write_tables(options.page, records)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
