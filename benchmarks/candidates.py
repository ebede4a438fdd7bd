"""Candidates of one's choice for a task: their times in turn, their loops, their machine code.

    python benchmarks/candidates.py 'op:dense[k=784,n=512]' dense_packed generic
    python benchmarks/candidates.py zoo:mlp 'dense_packed[block=16]' 'dense_packed[block=64]'
    python benchmarks/candidates.py 'op:dense[k=784,n=512]' 'dense_packed[block=16]' --asm

A candidate is written as `default_kernels.py` writes it: an implementation and the values of its
knobs, with spaces between them. Knobs that are left out get the values with the least estimate. Of
a network, each task is looked at that all candidates can compute.

Each candidate is compared with numpy. Then all are timed in turn, forwards and backwards, by the
protocol by which kernels are tuned. `ratio` is the candidate's time by that of the first one: below
1 it is faster, and where the interval holds 1, nothing is known. Nothing is kept in a database.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain, product
from statistics import median

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.processes import Child
from tilewright.core.records import Candidate, Measurement, Placement
from tilewright.core.timings import speedup
from tilewright.core.units import format_seconds
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.kernels.estimates import estimate_s, facts
from tilewright.kernels.registry import applicable, implementations
from tilewright.measure.base import Measurer
from tilewright.measure.checking import check_kernel
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.kernels import WORKER
from tilewright.measure.targeting import open_measurer, placement_of, usable_placement
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.testing.implementations import candidate_of

SEED = 0
RENDER_TIMEOUT_S = 120.0

Rounds = dict[Candidate, list[tuple[float, ...]]]
"""The samples of each round in seconds."""


def candidate(
    text: str, workload: Workload, forms: tuple[Form, ...], on: Placement
) -> Candidate | None:
    """The candidate that a text names; None where the implementation does not apply, or has no
    such setting there."""
    name, _, inside = text.removesuffix("]").partition("[")
    wanted = dict(pair.split("=", 1) for pair in inside.split())
    asked = (workload, on.target, on.resources)
    spec = next((each for each in applicable(*asked) if each.name == name), None)
    if spec is None:
        return None
    knobs = spec.knobs(*asked, forms)
    if not wanted.keys() <= {knob.name for knob in knobs}:
        return None
    values = [[v for v in k.values if wanted.get(k.name, str(v)) == str(v)] for k in knobs]
    settings = [
        dict(zip((knob.name for knob in knobs), chosen, strict=True)) for chosen in product(*values)
    ]
    valid = [each for each in settings if spec.valid(*asked, forms, each)]
    if not valid:
        return None
    estimates_s = facts(spec, *asked, forms, valid)["estimate_s"]
    return candidate_of(spec, valid[int(np.argmin(estimates_s))], forms)


def text_of(chosen: Candidate) -> str:
    """A candidate as it is written on the command line."""
    settings = " ".join(f"{name}={value}" for name, value in chosen.settings)
    return f"{chosen.implementation}[{settings}]"


def timed(task: Task, chosen: Sequence[Candidate], measurer: Measurer, rounds: int) -> Rounds:
    """The candidates' samples, all of them in each round. Raises SystemExit where one fails."""
    found: Rounds = {each: [] for each in chosen}
    for each in chosen:
        failure = check_kernel(measurer, task.workload, each, SEED).failure
        if failure is not None:
            raise SystemExit(f"{text_of(each)}: {failure.kind}: {failure.message}")
    protocol = kernel_protocol(measurer.placement)
    for number in range(rounds):
        order = list(found) if number % 2 == 0 else [*found][::-1]
        for outcome in measurer.measure(task.workload, order, protocol):
            if not isinstance(outcome, Measurement):
                raise SystemExit(f"{text_of(outcome.candidate)}: {outcome.message}")
            found[outcome.candidate].append(outcome.samples_s)
    return found


def print_times(task: Task, rounds: Rounds, on: Placement) -> None:
    """A line per candidate."""
    print(f"{task.workload.key}: {task.name}")
    first = next(iter(rounds.values()))
    for each, samples in rounds.items():
        every = list(chain.from_iterable(samples))
        guess_s = estimate_s(task.workload, each, on.target, on.resources)
        told = [
            f"median {format_seconds(median(every))}",
            f"least {format_seconds(min(every))}",
            f"estimate {format_seconds(guess_s)}",
        ]
        if samples is not first:
            ratio = speedup(ours=first, theirs=samples)
            told.append(f"ratio {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
        print(f"  {text_of(each)}: {', '.join(told)}")


def render(task: Task, chosen: Candidate, on: Placement, view: str) -> str:
    """The loops (`tir`) or the machine code (`asm`) of a candidate."""
    with Child(WORKER) as child:
        asked = ("render", task.workload.text, chosen, on, view)
        return str(child.request(asked, RENDER_TIMEOUT_S))


def main(argv: Sequence[str] | None = None) -> None:
    """Times of the candidates, or what they became."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", help="op:NAME[…], zoo:NAME, a file, …")
    parser.add_argument("candidates", nargs="+", metavar="IMPLEMENTATION[KNOB=VALUE …]")
    parser.add_argument("--rounds", type=int, default=6, help="turns of each (at least 2)")
    parser.add_argument("--threads", type=int, help="default: as many as `tilewright` takes")
    parser.add_argument("--target", default="llvm", help="llvm, simulated, …")
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--tir", dest="view", action="store_const", const="tir", help="the loops")
    views.add_argument("--asm", dest="view", action="store_const", const="asm", help="the code")
    given = parser.parse_args(argv)
    for text in given.candidates:
        if text.partition("[")[0] not in implementations():
            parser.error(f"no implementation is called {text!r}")
    if given.rounds < 2:
        parser.error("the times of a single round have no interval")
    on = usable_placement(placement_of(given.target, None, given.threads))
    looked_at = 0
    with open_measurer(on, SEED) as measurer:
        for task in prepare(given.model, ModelOptions(), on).tasks.values():
            found = [candidate(text, task.workload, task.forms, on) for text in given.candidates]
            chosen = [each for each in found if each is not None]
            if len(chosen) < len(found):
                continue
            looked_at += 1
            if given.view is None:
                print_times(task, timed(task, chosen, measurer, given.rounds), on)
                continue
            for each in chosen:
                print(f"# {task.workload.key} {text_of(each)}")
                print(render(task, each, on, given.view))
    if not looked_at:
        raise SystemExit(f"no task of {given.model} has all of {', '.join(given.candidates)}")


if __name__ == "__main__":
    main()
