"""Accuracy of predictions on tables that others measured.

    python benchmarks/predictors.py [--data FOLDER] [--only ITEM…] [--results FOLDER]

Every item is one `tilewright evaluate`, or several that differ in their seed. The measured tables
are looked for in `--data`, by default the folder `shared/data` beside the repository; items whose
table is missing are skipped with a message. Results are stored run by run; the same command
continues where it stopped. The tables are written to
docs/benchmarks-predictors/other-measurements.md. Only the CPU time of the commands is measured.
"""

from __future__ import annotations

import argparse
import resource
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kept import once
from measured_command import run_tilewright
from predictor_tables import write_tables

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "shared/data"
SPECS = "gpu_specs_neusight.json"
SHOTS = 50
SEEDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One evaluation: its name, table, family, and further arguments; `seeds` runs of it."""

    name: str
    table: str
    family: str
    split: str = "configuration"
    shots: int = 0
    specs: str = ""
    seeds: int = 1

    def arguments(self, data: Path, seed: int) -> list[str]:
        """What follows `tilewright`."""
        found = ["evaluate", "--table", str(data / self.table), "--family", self.family]
        found += ["--split", self.split, "--seed", str(seed)]
        if self.shots:
            found += ["--shots", str(self.shots)]
        if self.specs:
            found += ["--specs", str(data / self.specs)]
        return found


def items() -> list[Item]:
    """All evaluations, in the order of the tables."""
    found = [Item(name="conv2d", table="gpu_conv2d_catapult.parquet", family="conv2d")]
    for family, table in (
        ("linear", "gpu_linear_neusight.parquet"),
        ("bmm", "gpu_bmm_neusight.parquet"),
        ("softmax", "gpu_softmax_neusight.parquet"),
        ("layer_norm", "gpu_ln_neusight.parquet"),
    ):
        for shots in (0, SHOTS):
            found.append(
                Item(
                    name=f"{family}-{shots}-shots",
                    table=table,
                    family=family,
                    split="device",
                    shots=shots,
                    specs=SPECS,
                    seeds=3 if shots else 1,
                )
            )
    found.append(
        Item(
            name="knobs",
            table="gpu_conv_knobs_benchmarkhub.parquet",
            family="knobs",
            split="device",
            shots=SHOTS,
            seeds=SEEDS,
        )
    )
    found.append(Item(name="gemm_power", table="gpu_gemm_power_h200.parquet", family="gemm_power"))
    found.append(Item(name="energy", table="conv2d_energy_neurstruc.csv", family="energy"))
    return found


def work(item: Item, data: Path, folder: Path) -> dict[str, Any]:
    """Run an item with each of its seeds; those in the folder already are taken from there."""
    runs: list[dict[str, Any]] = []
    for seed in range(item.seeds):
        run = partial(_run, item, data, seed, folder / "log.txt")
        runs.append(once(folder / f"seed-{seed}.json", run))
    return {"command": _shown(item), "runs": runs}


def _run(item: Item, data: Path, seed: int, log: Path) -> dict[str, Any]:
    before_s = _children_s()
    found = run_tilewright(item.arguments(data, seed), log=log).answer["data"]
    spent_s = _children_s() - before_s
    return {"cpu_s": spent_s, "rows": found["rows"], "picks": found["picks"]}


def _children_s() -> float:
    """Processor time of the commands that ended so far; it knows nothing of other work here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _shown(item: Item) -> str:
    words = item.arguments(Path(), 0)
    place = words.index("--seed")
    seed = f" --seed 0…{item.seeds - 1}" if item.seeds > 1 else ""
    return "tilewright " + " ".join(words[:place] + words[place + 2 :]) + seed


def main() -> int:
    """Run what is missing, then write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the measured tables")
    parser.add_argument("--only", nargs="*", choices=[item.name for item in items()])
    parser.add_argument("--results", type=Path, default=HERE / "results/predictors")
    arguments = parser.parse_args()
    for item in items():
        path = arguments.results / item.name / "result.json"
        if path.exists() or (arguments.only and item.name not in arguments.only):
            continue
        if not (arguments.data / item.table).is_file():
            print(f"{item.name}: skipped, {item.table} is not in {arguments.data}", flush=True)
            continue
        print(item.name, flush=True)
        once(path, partial(work, item, arguments.data, path.parent))
    write_tables(
        arguments.results, HERE.parent / "docs/benchmarks-predictors/other-measurements.md"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
