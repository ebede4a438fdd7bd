"""Networks predicted before they ran: latency against `profile`, kernel by kernel and whole.

    python benchmarks/predicted_networks.py [--settings default|chosen|tuned] [--budget TIME]
        [--section NAME] [--networks NAME…] [--results FOLDER] [--rounds N] [--beside-others]
        [--unseen]

Each network is predicted with the data that comes with tilewright alone, then compiled with the
same settings and timed: its default ones, those that `optimize --budget 0` chooses without
measuring any kernel, or those that tuning by measurement found within `--budget`. The prediction of
the last is made from a copy of the database in which no measurement is left. On a machine whose
speed changes by the minute, `--rounds` times what was shipped again, all networks in turn, and
takes the median of the rounds; default settings are profiled again. `--unseen` takes networks of
torchvision (`pip install torch torchvision`), of whose families nothing was collected. Results are
kept network by network; the same command goes on where it stopped. The table goes to the section's
place in docs/benchmarks-predictors.md. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np

import tilewright
from measured_command import run_tilewright
from pages import replace_between, table

HERE = Path(__file__).parent
NETWORKS = (
    "resnet18", "resnet50", "vgg19_bn", "inception_v3", "googlenet", "densenet201", "mobilenet_v2",
    "squeezenet1_1", "ssd_resnet50_512", "nasnet_mobile", "bert_base", "gpt2_small", "vit_b16",
)  # fmt: skip
UNSEEN = (
    "alexnet", "shufflenet_v2_x1_0", "mnasnet1_0", "mobilenet_v3_large", "efficientnet_b0",
    "regnet_y_800mf", "resnext50_32x4d", "convnext_tiny", "swin_t",
)  # fmt: skip
HEADER = (
    "network", "predicted, ms", "interval, ms", "measured, ms", "error", "kernels' sum, ms",
    "sum's error", "in sequence", "kernels' mean error", "within 10 %",
)  # fmt: skip

Item = dict[str, Any]
_WARM, _MOST, _ROUND_S = 3, 200, 2.0


def model_of(name: str, results: Path) -> str:
    """The MODEL of a network; one of torchvision is exported once, with random weights."""
    if name not in UNSEEN:
        return f"zoo:{name}"
    path = results.parent / "models" / f"{name}.pt2"
    if not path.exists():
        import torch
        import torchvision

        torch.manual_seed(0)
        module = torchvision.models.get_model(name, weights=None).eval()
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.export.save(torch.export.export(module, (torch.zeros(1, 3, 224, 224),)), path)
    return str(path)


def settings_of(settings: str) -> list[str]:
    """What `predict` and `profile` are told of the settings."""
    return ["--settings", "default" if settings == "default" else "shipped"]


def run_network(name: str, folder: Path, settings: str, budget: str) -> Item:
    """Choose settings within `budget`, predict, then measure with them."""
    model, log = model_of(name, folder.parent), folder / "log.txt"
    chosen = settings_of(settings)
    models = folder.parent / "predictors.db"
    measured_db = folder / "measured.db"
    for path in folder.glob("measured.db*"):
        path.unlink()
    if settings != "default":
        out = ["--out", str(folder / "artifact"), "--db", str(measured_db)]
        run_tilewright(["optimize", model, "--budget", budget, *out], log=log)
        models = forgetful(measured_db)
    predicted = run_tilewright(["predict", model, *chosen, "--db", str(models)], log=log)
    profiled = run_tilewright(["profile", model, *chosen, "--db", str(measured_db)], log=log)
    tasks = {task["name"]: task["latency_s"] for task in profiled.answer["data"]["tasks"]}
    operators = [
        {**operator, "measured_s": tasks[operator["name"]]}
        for operator in predicted.answer["data"]["operators"]
        if operator["name"] in tasks
    ]
    return {
        "network": name,
        "predicted": predicted.answer["data"]["network"],
        "measured_s": profiled.answer["data"]["network_latency_s"],
        "tasks_s": profiled.answer["data"]["tasks_latency_s"],
        "planned_memory_bytes": profiled.answer["data"]["planned_memory_bytes"],
        "operators": operators,
        "warnings": predicted.answer["warnings"],
    }


def forgetful(database: Path) -> Path:
    """A copy of a database that knows what shipped, and no kernel that was measured."""
    copy = database.with_name("forgetful.db")
    for path in copy.parent.glob(f"{copy.name}*"):
        path.unlink()
    with closing(sqlite3.connect(database)) as source:
        source.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy)) as connection, connection:
        for name in ("measurements", "failures"):
            connection.execute(f"DELETE FROM {name}")  # noqa: S608 - names of our own
    return copy


def predict_beside_others(results: Path, names: Sequence[str], settings: str) -> None:
    """Predict each network again, now from a database with what the others measured."""
    paths = {name: results / name for name in names if (results / name / "result.json").exists()}
    for name, folder in paths.items():
        database, log = forgetful(folder / "measured.db"), folder / "log.txt"
        for other in paths.values():
            if other != folder:
                merged = str(other / "measured.db")
                run_tilewright(["db", "merge", str(database), merged], log=log)
        asked = ["predict", model_of(name, results), *settings_of(settings), "--db", str(database)]
        item: Item = json.loads((folder / "result.json").read_text())
        item["beside_others"] = run_tilewright(asked, log=log).answer["data"]["network"]
        (folder / "result.json").write_text(json.dumps(item, indent=1))


def shipped_s(folder: str) -> float:
    """Median seconds of a run of an artifact, over two seconds."""
    network = tilewright.load(folder)
    inputs = {
        entry["name"]: np.ones(entry["shape"], dtype=entry["dtype"])
        for entry in network.manifest["inputs"]
    }
    times: list[float] = []
    for number in range(_WARM + _MOST):
        began = perf_counter()
        network.run(inputs)
        times.append(perf_counter() - began)
        if number >= 2 * _WARM and sum(times) > _ROUND_S:
            break
    return median(times[_WARM:])


def default_s(name: str, results: Path) -> float:
    """Seconds of a run of a network in its default settings, compiled again."""
    folder = results / name
    words = ["profile", model_of(name, results), *settings_of("default")]
    found = run_tilewright([*words, "--db", str(folder / "rounds.db")], log=folder / "log.txt")
    return found.answer["data"]["network_latency_s"]


def time_rounds(results: Path, names: Sequence[str], settings: str, rounds: int) -> None:
    """Add to each network what it took in each round, its artifact in a process of its own."""
    paths = [path for name in names if (path := results / name / "result.json").exists()]
    for _ in range(rounds):
        for path in paths:
            if settings == "default":
                seconds = default_s(path.parent.name, results)
            else:
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
                    seconds = alone.submit(shipped_s, str(path.parent / "artifact")).result()
            item: Item = json.loads(path.read_text())
            item["rounds_s"] = [*item.get("rounds_s", ()), seconds]
            path.write_text(json.dumps(item, indent=1))


def measured(item: Mapping[str, Any]) -> float:
    """Seconds of a network: the median of its rounds, where there were some."""
    return median(item["rounds_s"]) if item.get("rounds_s") else item["measured_s"]


def row(item: Mapping[str, Any]) -> tuple[str, ...]:
    """One network in the table."""
    network, measured_s = item["predicted"], measured(item)
    rounds = item.get("rounds_s", ())
    spread = f" ({1e3 * min(rounds):.2f} to {1e3 * max(rounds):.2f})" if rounds else ""
    predicted_sum_s = sum(o["latency_s"] * o["count"] for o in item["operators"])
    errors = [abs(o["latency_s"] / o["measured_s"] - 1) for o in item["operators"]]
    return (
        item["network"],
        f"{1e3 * network['latency_s']:.2f}",
        f"{1e3 * network['latency_low_s']:.2f} to {1e3 * network['latency_high_s']:.2f}",
        f"{1e3 * measured_s:.2f}{spread}",
        f"{network['latency_s'] / measured_s - 1:+.1%}",
        f"{1e3 * item['tasks_s']:.2f}",
        f"{predicted_sum_s / item['tasks_s'] - 1:+.1%}",
        f"{measured_s / item['tasks_s'] - 1:+.1%}",
        f"{fmean(errors):.1%}",
        f"{fmean(error <= 0.1 for error in errors):.0%}",
    )


def summary(items: Sequence[Mapping[str, Any]], prediction: str = "predicted") -> str:
    """The figures of the bars."""
    items = [item for item in items if prediction in item]
    errors = [abs(i[prediction]["latency_s"] / measured(i) - 1) for i in items]
    inside = [
        i[prediction]["latency_low_s"] <= measured(i) <= i[prediction]["latency_high_s"]
        for i in items
    ]
    return (
        f"{len(items)} networks: mean error {fmean(errors):.1%}, median {median(errors):.1%}, "
        f"{fmean(error <= 0.15 for error in errors):.0%} within 15 %, "
        f"{fmean(inside):.0%} inside their intervals."
    )


def write_table(results: Path, page: Path, section: str) -> None:
    """Replace the section's table by what was measured so far."""
    found = [results / name / "result.json" for name in (*NETWORKS, *UNSEEN)]
    items: list[Item] = [json.loads(path.read_text()) for path in found if path.exists()]
    text = f"{table(HEADER, map(row, items))}\n\n{summary(items)}"
    beside = [item for item in items if "beside_others" in item]
    if beside:
        errors = [i["beside_others"]["latency_s"] / measured(i) - 1 for i in beside]
        told = ", ".join(f"{i['network']} {e:+.1%}" for i, e in zip(beside, errors, strict=True))
        text += f"\n\nKnowing what the others measured ({told}): {summary(items, 'beside_others')}"
    replace_between(page, (f"<!-- {section}: begin -->", f"<!-- {section}: end -->"), text)


def main() -> None:
    """Measure what is not there yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*")
    parser.add_argument("--unseen", action="store_true", help="networks of torchvision")
    parser.add_argument("--settings", choices=("default", "chosen", "tuned"), default="default")
    parser.add_argument("--budget", help="what tuning may take, for tuned settings")
    parser.add_argument("--section", default="networks")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument(
        "--beside-others",
        action="store_true",
        help="predict again from what the other networks measured",
    )
    parser.add_argument("--results", type=Path, default=HERE / "results" / "predicted_networks")
    arguments = parser.parse_args()
    if (arguments.budget is not None) != (arguments.settings == "tuned"):
        parser.error("--budget goes with --settings tuned")
    results = arguments.results / arguments.section
    names = arguments.networks or list(UNSEEN if arguments.unseen else NETWORKS)
    for name in names:
        folder = results / name
        if (folder / "result.json").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        item = run_network(name, folder, arguments.settings, arguments.budget or "0")
        (folder / "result.json").write_text(json.dumps(item, indent=1))
        print(" ".join(row(item)), flush=True)
    time_rounds(results, names, arguments.settings, arguments.rounds)
    if arguments.beside_others:
        predict_beside_others(results, names, arguments.settings)
    write_table(results, HERE.parent / "docs" / "benchmarks-predictors.md", arguments.section)


if __name__ == "__main__":
    main()
