"""Predicted times of networks compared with measured ones, for each kernel and for the network.

    python benchmarks/predicted_networks.py [--settings default|chosen|tuned] [--budget TIME]
        [--section NAME] [--networks NAME…] [--results FOLDER] [--rounds N] [--beside-others]
        [--unseen]

Each network is predicted from the measurements that ship with tilewright, then compiled with the
same settings and timed. The settings are the default ones, those that `optimize --budget 0` chooses
without measuring any kernel (`chosen`), or those that tuning finds within `--budget` (`tuned`); for
these the prediction uses a copy of the database from which all measurements were deleted.

`--rounds` compiles the networks again, all in turn, and times each in slices, of which the median
counts. Before and after each slice it measures the distance between the cores (`core_distance.py`),
which some virtual machines change within seconds; slices with near and with far cores are also
judged apart. `--beside-others` predicts each network once more, from what was measured for the
other networks, too. `--unseen` takes networks of torchvision (`pip install torch torchvision`), for
whose families `collect` measured no kernels.

Results are stored network by network; the same command continues where it stopped. The tables are
written to the section's place in docs/benchmarks-predictors/networks.md or, for sections whose name
begins with `unseen`, in unseen-networks.md beside it. No other program may run meanwhile.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from core_distance import NEAR_NS, distance_meter
from kept import Item, keep, kept, once
from measured_command import run_tilewright
from pages import replace_between, table
from tilewright.graph.inputs import random_inputs
from tilewright.hardware.device import local_placement
from tilewright.measure.networks import NetworkWorker
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.store import open_store
from tilewright.store.known_candidates import SettingsName, choose_plan

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
    "network", "predicted, ms", "90 % interval, ms", "measured, ms", "error",
    "cores near: ms, error", "cores far: ms, error", "measured sum of kernels, ms",
    "error of the sum", "mean error of kernels", "kernels within 10 %",
)  # fmt: skip
SUMMARY_HEADER = (
    "predicted from", "slices", "networks", "mean error", "median error", "within 15 %",
    "inside the 90 % interval",
)  # fmt: skip
SOURCES = {
    "predicted": "shipped measurements",
    "beside_others": "shipped and other networks' measurements",
}

_SLICES, _SLICE_S, _FEWEST, _LEAST = 12, 0.3, 3, 3


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
        item = kept([folder / "result.json"])[0]
        item["beside_others"] = run_tilewright(asked, log=log).answer["data"]["network"]
        keep(folder / "result.json", item)


def slices(
    name: str, results: Path, settings: str, distance: Callable[[], float]
) -> list[tuple[float, float, float]]:
    """Compile a network and time it in slices: median seconds of a run, and the cores' distance in
    nanoseconds before and after."""
    folder, placement, options = results / name, local_placement(None), ModelOptions()
    chosen: SettingsName = "default" if settings == "default" else "shipped"
    with open_store(folder / "measured.db") as store:
        network = prepare(model_of(name, results), options, placement)
        plan = choose_plan(network, store, placement, chosen)
    inputs = random_inputs(network.model.graph, 0)
    ordered = [inputs[key] for key in network.graph.inputs]
    found: list[tuple[float, float, float]] = []
    with TemporaryDirectory() as compiled, NetworkWorker(placement) as worker:
        worker.compile(plan, network.graph.constants, Path(compiled))
        worker.load(name, Path(compiled), plan.constant_names)
        once_s = min(worker.time(name, ordered, repeats=3, warmup=1))
        repeats = max(_FEWEST, round(_SLICE_S / once_s))
        for _ in range(_SLICES):
            before_ns = distance()
            times = worker.time(name, ordered, repeats=repeats, warmup=1)
            found.append((median(times), before_ns, distance()))
    return found


def time_rounds(results: Path, names: Sequence[str], settings: str, rounds: int) -> None:
    """Add to each network what its runs took in each round, all networks in turn."""
    paths = [path for name in names if (path := results / name / "result.json").exists()]
    with TemporaryDirectory() as folder:
        distance = distance_meter(Path(folder))
        for _ in range(rounds):
            for path in paths:
                more = slices(path.parent.name, results, settings, distance)
                item = kept([path])[0]
                item["slices"] = [*item.get("slices", ()), *more]
                keep(path, item)


def apart(item: Mapping[str, Any]) -> dict[str, float]:
    """Median seconds of the slices between whose ends the cores were near, and far."""
    found: dict[str, list[float]] = {"near": [], "far": []}
    for seconds, *distances in item.get("slices", ()):
        if max(distances) < NEAR_NS:
            found["near"].append(seconds)
        elif min(distances) >= NEAR_NS:
            found["far"].append(seconds)
    return {name: median(times) for name, times in found.items() if len(times) >= _LEAST}


def measured(item: Mapping[str, Any], where: str = "") -> float:
    """Seconds of a network: the median of its slices, or of those `where` cores were near or far,
    where there are some."""
    if where:
        return apart(item)[where]
    return median(s for s, *_ in item["slices"]) if item.get("slices") else item["measured_s"]


def row(item: Mapping[str, Any]) -> tuple[str, ...]:
    """One network in the table."""
    network, measured_s = item["predicted"], measured(item)
    times, placed = [s for s, *_ in item.get("slices", ())], apart(item)
    spread = f" ({1e3 * min(times):.2f} to {1e3 * max(times):.2f})" if times else ""
    predicted_sum_s = sum(o["latency_s"] * o["count"] for o in item["operators"])
    errors = [abs(o["latency_s"] / o["measured_s"] - 1) for o in item["operators"]]

    def beside(where: str) -> str:
        if where not in placed:
            return ""
        return f"{1e3 * placed[where]:.2f}, {network['latency_s'] / placed[where] - 1:+.1%}"

    return (
        item["network"],
        f"{1e3 * network['latency_s']:.2f}",
        f"{1e3 * network['latency_low_s']:.2f} to {1e3 * network['latency_high_s']:.2f}",
        f"{1e3 * measured_s:.2f}{spread}",
        f"{network['latency_s'] / measured_s - 1:+.1%}",
        beside("near"),
        beside("far"),
        f"{1e3 * item['tasks_s']:.2f}",
        f"{predicted_sum_s / item['tasks_s'] - 1:+.1%}",
        f"{fmean(errors):.1%}",
        f"{fmean(error <= 0.1 for error in errors):.0%}",
    )


def summary(
    items: Sequence[Mapping[str, Any]], prediction: str = "predicted", where: str = ""
) -> tuple[str, ...]:
    """The errors over all networks, a row of the second table."""
    items = [i for i in items if prediction in i and (not where or where in apart(i))]
    times = [measured(item, where) for item in items]
    forecasts = [item[prediction] for item in items]
    pairs = list(zip(forecasts, times, strict=True))
    errors = [abs(forecast["latency_s"] / seconds - 1) for forecast, seconds in pairs]
    inside = [f["latency_low_s"] <= seconds <= f["latency_high_s"] for f, seconds in pairs]
    return (
        SOURCES[prediction],
        f"cores {where}" if where else "all",
        str(len(items)),
        f"{fmean(errors):.1%}",
        f"{median(errors):.1%}",
        f"{fmean(error <= 0.15 for error in errors):.0%}",
        f"{fmean(inside):.0%}",
    )


def summaries(items: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """For each prediction: all slices, then those with near and with far cores."""
    return [
        summary(items, prediction, where)
        for prediction in SOURCES
        for where in ("", "near", "far")
        if any(prediction in item and (not where or where in apart(item)) for item in items)
    ]


def write_table(results: Path, page: Path, section: str) -> None:
    """Replace the section's table by what was measured so far."""
    items = kept(results / name / "result.json" for name in (*NETWORKS, *UNSEEN))
    text = f"{table(HEADER, map(row, items))}\n\n{table(SUMMARY_HEADER, summaries(items))}"
    replace_between(page, (f"<!-- {section}: begin -->", f"<!-- {section}: end -->"), text)


def main() -> None:
    """Measure what is not there yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*")
    parser.add_argument("--unseen", action="store_true", help="take networks of torchvision")
    parser.add_argument("--settings", choices=("default", "chosen", "tuned"), default="default")
    parser.add_argument("--budget", help="budget of each network, for --settings tuned")
    parser.add_argument("--section", default="networks")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument(
        "--beside-others",
        action="store_true",
        help="predict again, also from the other networks' measurements",
    )
    parser.add_argument("--results", type=Path, default=HERE / "results" / "predicted_networks")
    arguments = parser.parse_args()
    if (arguments.budget is not None) != (arguments.settings == "tuned"):
        parser.error("--budget goes with --settings tuned")
    results = arguments.results / arguments.section
    names = arguments.networks or list(UNSEEN if arguments.unseen else NETWORKS)
    for name in names:
        folder = results / name
        budget = arguments.budget or "0"
        run = partial(run_network, name, folder, arguments.settings, budget)
        print(" ".join(row(once(folder / "result.json", run))), flush=True)
    if arguments.rounds:
        time_rounds(results, names, arguments.settings, arguments.rounds)
    if arguments.beside_others:
        predict_beside_others(results, names, arguments.settings)
    page = "unseen-networks.md" if arguments.section.startswith("unseen") else "networks.md"
    write_table(results, HERE.parent / "docs/benchmarks-predictors" / page, arguments.section)


if __name__ == "__main__":
    main()
