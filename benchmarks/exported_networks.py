"""Networks that people bring: exported from PyTorch, judged against ONNX Runtime.

    python benchmarks/exported_networks.py export [--only NAME …] [--folder F] [--more]
    python benchmarks/exported_networks.py judge  [--only NAME …] [--folder F]
    python benchmarks/exported_networks.py time   [--only NAME …] [--folder F] [--budget 100s]
                                                  [--peers NAME,…] [--precision bfloat16]
                                                  [--max-error 5e-2]
    python benchmarks/exported_networks.py tables [--folder F] [--precision bfloat16] [--on EPYC]

`export` needs the extra `transformers` and writes NAME.onnx into the folder, with one more file for
a detector with non-maximum suppression behind it and one for a quantized network; with `--more`
it writes instead some seventy small ones that more_networks.toml describes, to look for faults in
(give them a folder of their own). `judge` compiles
each with default settings and compares its outputs with ONNX Runtime's; it tells which nodes are
left to ONNX Runtime, and why, and ends with 1 where a network is refused or wrong. `time` optimizes
each from an empty database and compares what ships with its peers in turn, in single precision or
another; `tables` writes what was measured into docs/benchmarks-exported.md, `--on` a processor
that has a table of its own there.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tilewright
from kept import Item, once
from measured_command import run_tilewright
from pages import replace_between, table
from tilewright.graph.inputs import random_inputs
from tilewright.models.loading import load

FOLDER = Path(__file__).parent / "results" / "exported"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks-exported.md"
MARKS = ("<!-- exported: begin -->", "<!-- exported: end -->")
TOLERANCE = {"float16": 2e-2, "quantized": 2e-2}
"""A rounding of halves, or of bytes, shifts what comes behind it."""
_USUAL = 1e-4
_SINGLE = "float32"
_IN_ROWS = {"bfloat16": "bf16", "float16": "fp16"}
"""How rows of `compare` name precisions."""


def exported(folder: Path, names: list[str], *, more: bool) -> None:
    """Write the networks that are not there yet."""
    import torch

    from exported_modules import NETWORKS, more_networks

    for name, make in (more_networks() if more else NETWORKS).items():
        path = folder / f"{name}.onnx"
        if (names and name not in names) or path.exists():
            continue
        torch.manual_seed(0)
        module, inputs = make()
        try:
            with torch.no_grad():
                program: Any = torch.onnx.export(module.eval(), inputs, dynamo=True, verbose=False)
            program.save(str(path))
        except Exception as error:  # noqa: BLE001 - one that cannot be exported is no reason to stop
            print(f"{name}: not exported: {type(error).__name__}: {str(error)[:300]}")
            continue
        print(f"{name}: {path.stat().st_size / 1e6:.1f} MB")
    if (folder / "yolo_like.onnx").exists():
        onnx.save(with_suppression(onnx.load(folder / "yolo_like.onnx")), folder / "yolo_nms.onnx")
    if (folder / "yolo_like.onnx").exists():
        quantize(folder / "yolo_like.onnx", folder / "quantized.onnx")


def with_suppression(model: onnx.ModelProto) -> onnx.ModelProto:
    """A detector whose boxes go through non-maximum suppression within the network."""
    boxes, scores = (value.name for value in model.graph.output)
    constants = {
        "nms_most": np.array([20], np.int64), "nms_overlap": np.array([0.5], np.float32),
        "nms_least": np.array([0.4], np.float32), "nms_one": np.array([1], np.int64),
        "nms_two": np.array([2], np.int64), "nms_three": np.array([3], np.int64),
        "nms_list": np.array([-1, 4], np.int64),
    }  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    wanted = [boxes, "nms_scores", "nms_most", "nms_overlap", "nms_least"]
    model.graph.node.extend(
        [
            helper.make_node("Transpose", [scores], ["nms_scores"], perm=[0, 2, 1]),
            helper.make_node("NonMaxSuppression", wanted, ["chosen"], name="nms"),
            helper.make_node("Slice", ["chosen", "nms_two", "nms_three", "nms_one"], ["nms_at"]),
            helper.make_node("Squeeze", ["nms_at", "nms_one"], ["nms_place"]),
            helper.make_node("Reshape", [boxes, "nms_list"], ["nms_boxes"]),
            helper.make_node("Gather", ["nms_boxes", "nms_place"], ["kept"], axis=0),
        ]
    )
    del model.graph.output[:]
    for name, element, shape in (("chosen", 7, ["n", 3]), ("kept", 1, ["n", 4])):
        model.graph.output.append(helper.make_tensor_value_info(name, element, shape))
    return model


def quantize(source: Path, target: Path) -> None:
    """A network in QDQ form, calibrated on random pictures."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Pictures(CalibrationDataReader):
        def __init__(self) -> None:
            graph = onnx.load(source).graph
            shape = [size.dim_value for size in graph.input[0].type.tensor_type.shape.dim]
            rng = np.random.default_rng(0)
            name = graph.input[0].name
            self._left = [{name: rng.standard_normal(shape, np.float32)} for _ in range(4)]

        def get_next(self) -> dict[str, Any] | None:
            return self._left.pop() if self._left else None

    quantize_static(source, target, Pictures(), quant_format=QuantFormat.QDQ, per_channel=True)


def judge(path: Path) -> tuple[bool, str]:
    """Whether a network is right, and what is to be said of it."""
    import onnxruntime

    began = perf_counter()
    try:
        network = tilewright.compile(path)
    except tilewright.TilewrightError as error:
        return False, f"refused: {error.message}"
    took_s = perf_counter() - began
    inputs = random_inputs(load(str(path)).graph, 1)
    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    wanted = dict(zip(names, session.run(names, inputs), strict=True))
    found, worst = network.run(inputs), 0.0
    for name, array in wanted.items():
        if found[name].shape != array.shape:
            return False, f"wrong: {name} is {found[name].shape}, not {array.shape}"
        size = max(float(np.max(np.abs(array), initial=0.0)), 1e-30)
        worst = max(worst, float(np.max(np.abs(found[name] - array), initial=0.0)) / size)
    told = f"error {worst:.1e}, compiled in {took_s:.0f} s, {len(network.islands)} islands"
    return worst <= TOLERANCE.get(path.stem, _USUAL), "; ".join([told, *network.islands])


def timed(path: Path, budget: str, peers: str, precision: str, max_error: str | None) -> Item:
    """The answers of `optimize` from an empty database, and of `compare` for what it ships."""
    with TemporaryDirectory(prefix="exported-networks-") as scratch:
        place = Path(scratch)
        shared = ("--db", str(place / "db"))
        if precision == _SINGLE and max_error is None:
            max_error = str(TOLERANCE.get(path.stem, _USUAL))
        allowed = ("--precision", precision)
        if max_error is not None:
            allowed += ("--max-error", max_error)
        out = ("--out", str(place / "out"))
        words = ("optimize", str(path), "--budget", budget, *out, *allowed, *shared)
        made = run_tilewright(words, log=place / "log").answer["data"]
        words = ("compare", str(place / "out"), "--peers", peers, *shared)
        compared = run_tilewright(words, log=place / "log").answer["data"]
    parts = ("latency_s", "baseline_latency_s", "max_rel_error", "measurements", "elapsed_s")
    tasks = [
        {part: task[part] for part in ("name", "implementation", "share", "anchor")}
        for task in made["tasks"][:5]
    ]
    return {
        **{part: made[part] for part in parts},
        "environment": made["environment"],
        "threads": made["threads"],
        "islands": len({tuple(task["nodes"]) for task in made["tasks"] if task["island"]}),
        "largest": tasks,
        "rows": compared["rows"],
    }


def page(folder: Path) -> str:
    """A table for each budget: every network beside its fastest peer, and the geometric mean."""
    sections: list[str] = []
    for results in sorted(set(folder.glob("times-*")) - set(folder.glob("times-*-*"))):
        rows, ratios = list[tuple[str, ...]](), list[float]()
        found = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
        for name, item in found.items():
            peers = [row for row in item["rows"] if row["precision"] == "fp32"]
            best = min(peers or item["rows"], key=lambda row: row["peer_latency_s"])
            ratios.append(best["speedup"])
            largest = item["largest"][0]
            rows.append(
                (
                    name, f"{1e3 * best['latency_s']:.2f}", f"{best['peer']}",
                    f"{1e3 * best['peer_latency_s']:.2f}", f"{best['speedup']:.2f}",
                    f"{best['speedup_low']:.2f} to {best['speedup_high']:.2f}",
                    f"{item['max_rel_error']:.0e}", str(item["islands"]),
                    f"{largest['anchor']} ({largest['share']:.0%})",
                )
            )  # fmt: skip
        first = next(iter(found.values()))
        header = (
            "network", "ours, ms", "fastest peer", "its time, ms", "speed-up", "between",
            "error", "islands", "largest task",
        )  # fmt: skip
        behind = [row[0] for row, ratio in zip(rows, ratios, strict=True) if ratio < 1]
        mean = float(np.exp(np.mean(np.log(ratios))))
        usual = [
            np.log(row["speedup"])
            for item in found.values()
            for row in item["rows"]
            if row["peer"] == "onnxruntime" and not row["default_precision"]
        ]
        sections.append(
            f"## Budget {results.name.removeprefix('times-')}\n\n"
            f"Measured on {first['date']} on {first['environment']['CPU']}, "
            f"{first['threads']} threads, fp32.\n\n{table(header, rows)}\n\n"
            f"The geometric mean of the speed-ups is {mean:.2f}, over ONNX Runtime alone "
            f"{float(np.exp(np.mean(usual))):.2f}. "
            f"Slower than the fastest peer: {', '.join(behind) or 'none'}."
        )
    return "\n\n".join(sections)


def page_of(precision: str, results: Path) -> str:
    """A table for networks in a coarser precision: each beside its fastest peer in that precision,
    and beside the fastest in fp32."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    rows, ratios = list[tuple[str, ...]](), list[float]()
    for name, item in found.items():
        single = [row for row in item["rows"] if row["precision"] == "fp32"]
        coarse = [row for row in item["rows"] if row["precision"] == _IN_ROWS[precision]]
        like, fp32 = (min(some, key=lambda row: row["peer_latency_s"]) for some in (coarse, single))
        ratios.append(like["speedup"])
        rows.append(
            (
                name, f"{1e3 * like['latency_s']:.2f}", f"{like['sqnr_db']:.1f} dB",
                f"{1e3 * like['peer_latency_s']:.2f}", f"{like['peer_sqnr_db']:.1f} dB",
                _ratio(like), fp32["peer"], f"{1e3 * fp32['peer_latency_s']:.2f}", _ratio(fp32),
            )
        )  # fmt: skip
    first = next(iter(found.values()))
    theirs = sorted({row["peer"] for item in found.values() for row in item["rows"]
                     if row["precision"] == _IN_ROWS[precision]})  # fmt: skip
    header = (
        "network", "ours, ms", "our noise", f"{' or '.join(theirs)} in {_IN_ROWS[precision]}, ms",
        "its noise", "speed-up", "fastest in fp32", "ms", "speed-up",
    )  # fmt: skip
    return (
        f"Measured on {first['date']} on {first['environment']['CPU']}, {first['threads']} threads."
        f"\n\n{table(header, rows)}\n\nThe geometric mean of the speed-ups in this precision is "
        f"{float(np.exp(np.mean(np.log(ratios)))):.2f}, the least {min(ratios):.2f}."
    )


def _ratio(row: Item) -> str:
    return f"{row['speedup']:.2f} ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"


def main() -> int:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=("export", "judge", "time", "tables"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--budget", default="100s")
    parser.add_argument("--precision", default=_SINGLE)
    parser.add_argument("--max-error")
    parser.add_argument("--on", help="for `tables`: the processor, where the page has several")
    parser.add_argument("--more", action="store_true")
    parser.add_argument("--peers", default="onnxruntime,openvino,torch_compiled")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.step == "export":
        exported(given.folder, given.only, more=given.more)
        return 0
    if given.step == "tables":
        if given.precision == _SINGLE:
            replace_between(PAGE, MARKS, page(given.folder))
        else:
            place = f"exported in {given.precision}" + (f" on {given.on}" if given.on else "")
            marks = tuple(mark.replace("exported", place) for mark in MARKS)
            results = given.folder / f"times-{given.budget}-{given.precision}"
            replace_between(PAGE, (marks[0], marks[1]), page_of(given.precision, results))
        return 0
    fine = True
    for path in sorted(given.folder.glob("*.onnx")):
        if given.only and path.stem not in given.only:
            continue
        if given.step == "time":
            apart = "" if given.precision == _SINGLE else f"-{given.precision}"
            kept = given.folder / f"times-{given.budget}{apart}" / f"{path.stem}.json"
            asked = (given.budget, given.peers, given.precision, given.max_error)
            item = once(kept, partial(timed, path, *asked))
            rows = ", ".join(f"{row['peer']} {row['speedup']:.2f}" for row in item["rows"])
            print(f"{path.stem}: {1e3 * item['latency_s']:.2f} ms, {rows}", flush=True)
        else:
            right, told = judge(path)
            fine &= right
            print(f"{path.stem}: {'right' if right else 'NOT RIGHT'}: {told}", flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
