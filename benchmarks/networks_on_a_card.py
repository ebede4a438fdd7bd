"""Whole networks on a GPU of NVIDIA's, each as one CUDA graph, beside PyTorch.

    python benchmarks/networks_on_a_card.py prepare zoo:resnet50 zoo:bert_base --folder networks   # here; no GPU is needed
    python benchmarks/networks_on_a_card.py run --folder networks --out networks.jsonl             # on the card's machine
    python benchmarks/networks_on_a_card.py report networks.jsonl

`prepare` plans networks in default settings and compiles them. Of their weights it keeps what is
small: all others are drawn anew, from their names, where the networks run, so that little has to be
carried there. `run` compares the outputs with numpy's, and times the graph, each call in its place,
and PyTorch where it is installed: eager, eager in a CUDA graph, and compiled, in float32 without
tf32. The machine with the GPU needs what `on_a_card.py` needs. `--on simulated` executes kernels on
the CPU: a trial of the whole way, whose times mean nothing.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from math import prod, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from card.archive import SIMULATED, lines
from pages import PAGE_OF_CARDS, marks, replace_between
from tilewright.compiler.cuda import nvidia
from tilewright.compiler.cuda.compilers import Compiled, compiled_source
from tilewright.compiler.cuda.driver import Driver
from tilewright.compiler.cuda.execute import LoadedCudaNetwork
from tilewright.compiler.cuda.network import LIBRARY, read_network, write_network
from tilewright.core.codec import convert, digest, to_builtins
from tilewright.core.errors import TilewrightError
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import NetworkCheck
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array, Graph, Node, TensorType
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import plan_fields, read_plan
from tilewright.hardware.gpus import gpu_of, gpu_target
from tilewright.kernels.plans import packed_constant
from tilewright.measure.checking import compare_outputs
from tilewright.testing.simulated_driver import H100, SimulatedDriver

MODEL = "H200"
RIVALS = ("eager", "graph", "compiled")
_PLAN, _GRAPH, _SMALL = "plan.json", "graph.json", "constants.npz"
_SMALL_BYTES = 16 << 10
_REPEATS = 50
_SEED = 0
_RIVAL_S = 400.0


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    given = _parser().parse_args(arguments)
    if given.command == "prepare":
        for model in given.models:
            prepare(model, given)
    elif given.command == "run":
        run(given)
    else:
        text = report(list(lines(given.file)))
        sys.stdout.write(text)
        if given.page:
            replace_between(PAGE_OF_CARDS, marks("networks"), text.rstrip())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("prepare")
    made.add_argument("models", nargs="+")
    made.add_argument("--folder", type=Path, required=True)
    made.add_argument("--model", default=MODEL, help="the GPU, as in 'cuda -model=…'")
    made.add_argument("--batch", type=int)
    made.add_argument("--on", choices=("card", SIMULATED), default="card")
    ran = commands.add_parser("run")
    ran.add_argument("--folder", type=Path, required=True)
    ran.add_argument("--out", type=Path, required=True)
    ran.add_argument("--on", choices=("card", SIMULATED), default="card")
    ran.add_argument("--rivals", nargs="*", choices=RIVALS, default=RIVALS)
    told = commands.add_parser("report")
    told.add_argument("file", type=Path)
    told.add_argument("--page", action="store_true", help="write the table to the page")
    return parser


def prepare(model: str, given: argparse.Namespace) -> None:
    """Write the folder of one network."""
    from tilewright.compiler.cuda_network import network_of
    from tilewright.measure.targeting import placement_of
    from tilewright.models import ModelOptions
    from tilewright.plan.preparation import prepare as prepared

    placement = placement_of(f"cuda -model={given.model}", None, None)
    network = prepared(model, ModelOptions(batch=given.batch), placement)
    graph, plan = network.graph, network.plan
    compile_text = compiled_source if given.on == "card" else not_compiled
    made = network_of(plan, placement.target, compile_text, jobs=2)
    name = "-".join(filter(None, (network.model.name, given.batch and f"batch{given.batch}")))
    folder = given.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    write_network(made, folder / LIBRARY)
    (folder / _PLAN).write_text(json.dumps(plan_fields(plan)), encoding="utf-8")
    bare = replace(graph, constants={}, examples={})
    (folder / _GRAPH).write_text(json.dumps(to_builtins(bare)), encoding="utf-8")
    small = {key: value for key, value in graph.constants.items() if not is_drawn(value)}
    np.savez(folder / _SMALL, **small)
    size = sum(path.stat().st_size for path in folder.iterdir())
    _tell(f"{name}: {len(made.launches)} launches, {len(made.modules)} kernels, {size:,} bytes")


def not_compiled(_source: str, _arch: str) -> Compiled:
    """What stands for a kernel that only a simulated card executes, from its text."""
    return Compiled(binary=b"a cubin")


def is_drawn(value: Array) -> bool:
    """Whether a constant is too large to be carried, and drawn anew from its name."""
    return value.nbytes > _SMALL_BYTES and value.dtype == np.float32


class Prepared:
    """A network that was prepared: its graph with constants, its plan, its file."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.network = read_network(folder / LIBRARY)
        self.plan: NetworkPlan = read_plan(json.loads((folder / _PLAN).read_text()))
        bare = _graph_of(json.loads((folder / _GRAPH).read_text()))
        with np.load(folder / _SMALL) as small:
            constants = {name: small[name] for name in small.files}
        used = {name for node in bare.nodes for name in node.inputs}
        used |= {source for each in self.plan.constants for source in each.sources.values()}
        written = {name for node in bare.nodes for name in node.outputs} | {*bare.inputs}
        for name in sorted(used - written - constants.keys()):
            constants[name] = drawn(name, bare.types[name].shape)
        self.graph = replace(bare, constants=constants)

    @property
    def inputs(self) -> dict[str, Array]:
        """Random ones, always the same."""
        return random_inputs(self.graph, _SEED)

    @cached_property
    def expected(self) -> list[Array]:
        """The outputs of these by numpy."""
        found = run_graph(self.graph, self.inputs)
        return [found[name] for name in self.graph.outputs]

    def check(self, outputs: Sequence[Array]) -> NetworkCheck:
        """How far outputs are from numpy's."""
        return compare_outputs(outputs, self.expected, self.graph.outputs)


def _graph_of(content: Mapping[str, Any]) -> Graph:
    """A graph without constants, as `prepare` wrote it."""
    nodes = [
        Node(
            name=each["name"],
            operator=each["operator"],
            inputs=tuple(each["inputs"]),
            outputs=tuple(each["outputs"]),
            attributes=tuple(
                (name, tuple(value) if isinstance(value, list) else value)
                for name, value in each["attributes"]
            ),
        )
        for each in content["nodes"]
    ]
    types = {name: convert(kind, TensorType) for name, kind in content["types"].items()}
    inputs, outputs = tuple(content["inputs"]), tuple(content["outputs"])
    return Graph(
        name=content["name"], nodes=tuple(nodes), inputs=inputs, outputs=outputs, types=types
    )


def drawn(name: str, shape: tuple[int, ...]) -> Array:
    """Weights that follow from their name and shape, and keep activations about as large as they
    are."""
    random = np.random.default_rng(int(digest(name), 16))
    fan_in = prod(shape[1:]) if len(shape) != 2 else shape[0]
    return random.standard_normal(shape, dtype=np.float32) / np.float32(sqrt(max(1, fan_in)))


def run(given: argparse.Namespace) -> None:
    """Run all that was prepared and is not in the file of results yet, or failed before."""
    rivals = given.rivals if find_spec("torch") else ()
    if given.rivals and not rivals:
        _tell("PyTorch is not installed: there is nobody to compare with")
    found = lines(given.out) if given.out.exists() else ()
    done = {(line["network"], line["what"]) for line in found if "failed" not in line}
    for folder in sorted(path for path in given.folder.iterdir() if (path / LIBRARY).exists()):
        asked = {"ours": lambda it: _ours(it, given.on)}
        asked |= {rival: _rival_of(folder, rival) for rival in rivals}
        left = [what for what in asked if (folder.name, what) not in done]
        prepared = Prepared(folder) if left else None
        for what in left:
            began = time.perf_counter()
            try:
                found = asked[what](prepared)
            except (TilewrightError, ChildError, RemoteError) as error:
                found = {"failed": str(error)}
            line = {"network": folder.name, "what": what, **found, "on": given.on}
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            _tell(f"{folder.name} {what}: {time.perf_counter() - began:.1f} s")


def _ours(prepared: Prepared, on: str) -> dict[str, Any]:
    """The network as one CUDA graph: its error, its times."""
    driver = _driver(prepared, on)
    before = driver.free_bytes()
    values = prepared.graph.constants
    weights = {it.name: packed_constant(it, values) for it in prepared.plan.constants}
    loaded = LoadedCudaNetwork(prepared.network, weights, driver)
    inputs = prepared.inputs
    ordered = [inputs[name] for name in prepared.plan.inputs]
    outputs = loaded(ordered)
    check = prepared.check(outputs)
    times_s = loaded.time(ordered, _REPEATS, 3)
    calls = loaded.time_calls(ordered, 9)
    taken = before - driver.free_bytes()
    loaded.close()
    return {
        "card": driver.card.name,
        "max_rel_error": check.max_rel_error,
        "latency_s": median(times_s),
        "samples_s": times_s,
        "calls_s": [seconds for _, seconds in calls],
        "calls": [name for name, _ in prepared.network.calls],
        "planned_bytes": prepared.network.memory_bytes,
        "taken_bytes": taken,
        "launches": len(prepared.network.launches),
    }


def _driver(prepared: Prepared, on: str) -> Driver:
    arch = prepared.network.arch
    if on == SIMULATED:
        return SimulatedDriver(replace(H100, capability=(int(arch[3:-1]), int(arch[-1]))))
    return nvidia.open_driver(gpu_target(gpu_of({"arch": arch})))


def _rival_of(folder: Path, rival: str) -> Callable[[Prepared], dict[str, Any]]:
    """PyTorch's time of the same graph, in a process of its own."""

    def timed(prepared: Prepared) -> dict[str, Any]:
        with Child("card.torch_networks") as child:
            found = child.request(("time", folder, rival, _REPEATS), _RIVAL_S)
        outputs = found.pop("outputs")
        return {**found, "max_rel_error": prepared.check(outputs).max_rel_error}

    return timed


def report(found: Sequence[Mapping[str, Any]]) -> str:
    """A table: milliseconds of each network, and how many times as long PyTorch takes."""
    known = {(line["network"], line["what"]): line for line in found}
    rows = ["network | ours, ms | largest error | " + " | ".join(f"{it} ÷ ours" for it in RIVALS)]
    rows.append(" | ".join(["---"] + ["---:"] * (2 + len(RIVALS))))
    for name in dict.fromkeys(line["network"] for line in found):
        ours = known.get((name, "ours"), {})
        cells = [name, *_cells(ours)]
        for rival in RIVALS:
            theirs = known.get((name, rival), {})
            both = "latency_s" in theirs and "latency_s" in ours
            cells.append(f"{theirs['latency_s'] / ours['latency_s']:.2f}" if both else "–")
        rows.append(" | ".join(cells))
    return "".join(f"| {row} |\n" for row in rows)


def _cells(ours: Mapping[str, Any]) -> tuple[str, str]:
    if "latency_s" not in ours:
        return "failed" if "failed" in ours else "–", "–"
    return f"{1e3 * ours['latency_s']:.3f}", f"{ours['max_rel_error']:.1e}"


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
