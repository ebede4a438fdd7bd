"""What a mixture of types can gain at most over all in bfloat16, at the error that bfloat16 has.

    python benchmarks/mixed_bound.py [--networks NAME…] [--machines NAME…] [--results FOLDER]
        [--table]

    resnet18 here    bfloat16 2.47 ms, 41.4 dB    mixture at 41.4 dB at least 2.31 ms    1.07

All are estimates; nothing is compiled, and no kernel is timed. The best plan in bfloat16 alone is
the faster of that in default layouts, which `--precision bfloat16 --budget 0s` ships, and of that
which the graph tuner chooses; its ratio of signal to noise is predicted, cause by cause. Among all
codes of eight bits, half types, layouts and algorithms nothing whose predicted noise is within that
ratio is faster than the bound of the solver, so that bfloat16's time by the bound is what a mixture
can gain. *With a margin* only 0.8 of that noise is allowed, 1 dB less, which is where `--precision
auto` aims before it has seen a compiled network; *with more room* 1 dB more is allowed.

Noise is measured once for each network on this machine, whose kernels must round as those of the
others do: it takes one that has float16 where others have it. MACHINES are processors that need not
be this one; each is taken to have this machine's caches and two threads. Other programs may run
meanwhile; the times of the solver count only where none did. Results are stored one by one; the
same command continues where it stopped. The table is written to
docs/benchmarks-mixed-precision.md; with --table only that.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter

from kept import Item, kept, once
from mixed_noise import HERE, MIXED, PAGE, costs_at
from pages import marks, replace_between, table
from tilewright.core.budget import parse_budget
from tilewright.core.events import discard
from tilewright.core.noise import RoundingNoise, largest_share
from tilewright.core.records import Placement
from tilewright.core.solutions import PICOSECONDS
from tilewright.deploy import hashes
from tilewright.deploy.kept_noise import kept_noise
from tilewright.deploy.mixing import measured_mixing
from tilewright.hardware.device import parse_target
from tilewright.kernels.base import HALF
from tilewright.kernels.spaces import MAX_ERRORS
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions, loading
from tilewright.models.quantizing import NOISE_ON, Quantizer
from tilewright.plan.assignment.budgeted import Front, fastest_within
from tilewright.plan.assignment.solving import solve
from tilewright.plan.code_choice import CodeChoice
from tilewright.plan.mixture import AIM, Mixture
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.preparation import prepare_loaded
from tilewright.search.levels import OptimizeRequest

NETWORKS = (
    "resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "googlenet", "inception_v3",
    "densenet201", "vgg19_bn",
)  # fmt: skip
MACHINES = {
    "Xeon with AMX": "llvm -mcpu=sapphirerapids",
    "Xeon without AMX": "llvm -mcpu=sapphirerapids -mattr=-amx-tile,-amx-int8,-amx-bf16",
    "Zen 4": "llvm -mcpu=znver4",
}
THREADS = 2
ALONE = ModelOptions(precision=HALF)
MOST_S = 20.0
"""So long at most a bound is looked for; `optimize` takes 1.5 s."""
ROOM_DB = 1.0
TABLES = marks("mixed bound")
HEADER = (
    "machine", "network", "bfloat16 alone", "its ratio", "default layouts", "mixture at least",
    "gain at most", "without codes", "with a margin", "with more room", "on codes", "gap",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Uniform:
    """A plan with all in one half type: its estimated seconds, and its noise."""

    seconds: float
    sqnr_db: float
    default_s: float
    default_db: float


class Bounds:
    """The bounds of one network, by machine."""

    def __init__(self, name: str) -> None:
        self.placements = {
            machine: parse_target(text, THREADS) for machine, text in MACHINES.items()
        }
        here = allowing(parse_target(MACHINES["Xeon with AMX"], THREADS), MIXED)
        request = OptimizeRequest(
            model=f"zoo:{name}", options=MIXED, budget=parse_budget(0), folder=HERE, max_error=1.0,
            seed=0,
        )  # fmt: skip
        self.model = loading.load(f"zoo:{name}", ModelOptions())
        network = prepare_loaded(self.model, MIXED, here)
        mixing = measured_mixing(network, here, request, discard)
        self.noise: RoundingNoise = mixing.mixture.noise
        self.count = len(mixing.inputs.fitted) or NOISE_ON

    @cached_property
    def quantizer(self) -> Quantizer:
        """What puts the network on codes."""
        return Quantizer(self.model, MIXED)

    @cached_property
    def coded(self) -> tuple[loading.OnnxReference, RoundingNoise]:
        """The network with all on codes that may be, and the noise of these."""
        file = self.quantizer.quantized()
        sources = [hashes.weights_digest(self.model.graph.constants), hashes.file_sha256(file.path)]
        noise = kept_noise(
            "codes",
            sources,
            self.quantizer.inputs.fitted[: self.count],
            lambda: self.quantizer.noise(file, self.count),
            discard,
        )
        return file, noise

    def uniform(self, placement: Placement) -> Uniform:
        """The best plan in bfloat16 alone, and that in default layouts."""
        there = allowing(placement, ALONE)
        network = prepare_loaded(self.model, ALONE, there)
        costs = replace(costs_at(there), max_error=MAX_ERRORS[HALF])
        problem = NetworkProblem(
            network=network.fused, usual=network.forms, placement=there, times=costs
        )
        found = problem.problem
        best, default = solve(found).assignment, found.default
        seconds = [found.cost(each) / PICOSECONDS for each in (best, default)]
        ratios = [self._ratio_db(problem, each) for each in (best, default)]
        return Uniform(seconds[0], ratios[0], seconds[1], ratios[1])

    def _ratio_db(self, problem: NetworkProblem, assignment: Mapping[str, str]) -> float:
        chosen = problem.choices_of(assignment).items()
        mixture = Mixture(noise=self.noise, allowed=self.noise.allowed(1.0, None))
        powers = mixture.powers(
            problem.network, {name: (each.implementation, each.ports) for name, each in chosen}
        )
        return self.noise.sqnr_db(self.noise.total((each, 1.0) for each in powers.values()))

    def choice(self, placement: Placement, ratio_db: float) -> CodeChoice:
        """The problem of all that is chosen, within a ratio."""
        there = allowing(placement, MIXED)
        file, noise = self.coded
        codes = loading.with_codes(self.model, file, self.quantizer.remark)
        return CodeChoice(
            nodes=self.quantizer.nodes,
            same=self.quantizer.same,
            single=prepare_loaded(self.model, MIXED, there),
            codes=prepare_loaded(codes, MIXED, there),
            placement=there,
            times=costs_at(there),
            noise=noise,
            mixture=Mixture(noise=self.noise, allowed=self.noise.allowed(0.0, ratio_db)),
        )

    def at(self, machine: str) -> Item:
        """What can be gained on a machine."""
        uniform = self.uniform(self.placements[machine])
        choice = self.choice(self.placements[machine], uniform.sqnr_db)
        began = perf_counter()
        assert choice.problem.variables
        build_s = perf_counter() - began
        more = 10.0 ** (ROOM_DB / 10.0)
        default = 10.0 ** ((uniform.sqnr_db - uniform.default_db) / 10.0)
        budgets = {"exactly": 1.0, "margin": AIM, "room": more, "default": default}
        return {
            "uniform_s": uniform.seconds,
            "uniform_db": uniform.sqnr_db,
            "default_s": uniform.default_s,
            "default_db": uniform.default_db,
            "variables": len(choice.problem.variables),
            "build_s": build_s,
            "without_codes": _told(*_within(choice, 1.0, codes=False)),
            **{name: self._bound(choice, budget) for name, budget in budgets.items()},
        }

    def _bound(self, choice: CodeChoice, budget: float) -> Item:
        front, solve_s = _within(choice, budget, codes=True)
        chosen = front.chosen.assignment
        parts = [choice.on_codes(chosen), choice.in_halves(chosen)]
        kept_nodes = choice.kept(chosen)
        return {
            **_told(front, solve_s),
            "codes_noise": largest_share(parts[0], choice.allowed),
            "halves_noise": largest_share(parts[1], choice.allowed),
            "nodes": len(choice.nodes),
            "on_codes": [node.name for node in choice.nodes if node.name not in kept_nodes],
        }


def _within(choice: CodeChoice, budget: float, *, codes: bool) -> tuple[Front, float]:
    """The fastest within so much of what is allowed, and the seconds that it took to prove it."""
    began = perf_counter()
    if codes:
        front = choice.within(budget, MOST_S)
    else:
        base = choice.base
        front = fastest_within(base.problem, base.noises, budget, most_s=MOST_S)
    return front, perf_counter() - began


def _told(front: Front, solve_s: float) -> Item:
    return {
        "seconds": front.chosen.cost_ps / PICOSECONDS,
        "bound_s": front.bound_ps / PICOSECONDS,
        "noise": front.chosen.noise,
        "solve_s": solve_s,
    }


def run_network(name: str, machine: str) -> Item:
    """The bounds of a network on a machine."""
    began = perf_counter()
    bounds = Bounds(name)
    noise_s = perf_counter() - began
    found = bounds.at(machine)
    print(cells(machine, name, found), flush=True)
    return {"network": name, "machine": machine, "noise_s": noise_s, **found}


def file_of(results: Path, machine: str, name: str) -> Path:
    """Where the bounds of a network on a machine are kept."""
    return results / f"{machine.lower().replace(' ', '_')}-{name}.json"


def least_s(row: Item) -> float:
    """What a mixture takes at least. What is chosen without codes is a choice with them, too, where
    other kernels between types may make it up to 0.5 % slower: the lower bound holds."""
    return min(row[kind]["bound_s"] for kind in ("exactly", "without_codes"))


def cells(machine: str, network: str, row: Item) -> list[str]:
    """The row of a network on a machine."""
    exactly, least = row["exactly"], least_s(row)
    bounds = [least, *(row[kind]["bound_s"] for kind in ("without_codes", "margin", "room"))]
    told = [f"{row['uniform_s'] / each:.3f}" for each in bounds]
    return [
        machine,
        network,
        f"{1e3 * row['uniform_s']:.3g} ms",
        f"{row['uniform_db']:.1f} dB",
        f"{1e3 * row['default_s']:.3g} ms, {row['default_db']:.1f} dB",
        f"{1e3 * least:.3g} ms",
        *told,
        f"{len(exactly['on_codes'])} of {exactly['nodes']}",
        f"{1.0 - least / exactly['seconds']:.2%}",
    ]


def write_table(results: Path) -> None:
    """Replace the page's table by the bounds that were found so far."""
    rows = [
        cells(machine, item["network"], item)
        for machine in MACHINES
        for item in kept(file_of(results, machine, name) for name in NETWORKS)
    ]
    replace_between(PAGE, TABLES, table(HEADER, rows))


def main() -> None:
    """Find the bounds that are not there yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--machines", nargs="*", default=list(MACHINES))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "mixed_bound")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    machines: list[str] = [] if arguments.table else arguments.machines
    for machine in machines:
        for name in arguments.networks:
            path = file_of(arguments.results, machine, name)
            once(path, partial(run_network, name, machine))
    write_table(arguments.results)


if __name__ == "__main__":
    main()
