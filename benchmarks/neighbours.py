"""Kernels beside each other on cores of their own: how much they slow each other down.

    python benchmarks/neighbours.py prepare kernels.jsonl
    python benchmarks/neighbours.py collect kernels.jsonl --out pairs.jsonl --seconds 220
    python benchmarks/neighbours.py judge pairs.jsonl…
    python benchmarks/neighbours.py tune kernels.jsonl --out versions.jsonl --seconds 220
    python benchmarks/neighbours.py versions versions.jsonl

`prepare` chooses kernels of the zoo's networks and operators that stream memory, all for one core.
`collect` times pairs of them, alone and beside each other in turn. A command that is repeated goes
on where it stopped.
`judge` says how far the slowdowns of pairs are predicted whose kernels were not learnt from. `tune`
chooses versions of pairs of kernels by their times alone, and by their times beside the other one,
and times both choices in turn; `versions` tells what that gained.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import combinations_with_replacement, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from card.archive import lines
from pages import table
from tilewright.core.codec import convert, to_builtins
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import threads_alone
from tilewright.cost.contention import CONTENTION
from tilewright.graph.workload import parse_workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.spaces import search_space
from tilewright.measure.contention import measured_contention
from tilewright.measure.kernels import beside
from tilewright.measure.pairs import KernelPairs
from tilewright.models import ModelOptions
from tilewright.models.loading import load_outline
from tilewright.plan.preparation import prepare_loaded
from tilewright.predict.kernel_features import Kernel

NETWORKS = {
    "zoo:resnet50": 8, "zoo:mobilenet_v2": 8, "zoo:bert_base": 8, "zoo:vgg19_bn": 8,
    "zoo:googlenet": 8, "zoo:squeezenet1_1": 4,
}  # fmt: skip
OPERATORS = (
    "op:dense[m=1,k=4096,n=4096]", "op:dense[m=1,k=1024,n=4096]", "op:dense[m=1,k=768,n=3072]",
    "op:dense[m=1,k=2048,n=1000]", "op:softmax[shape=1x12x512x512]",
    "op:add[shape=1x64x512x512]", "op:add[shape=1x256x56x56]", "op:add[shape=1x128x256x256]",
    "op:add[shape=1x128x512x512]", "op:dense[m=1,k=8192,n=8192]",
    "op:relu[shape=1x64x256x256]", "op:relu[shape=1x256x256x256]", "op:add[shape=1x32x256x256]",
    "op:max_pool2d[c=64,h=256,k=2,stride=2]", "op:avg_pool2d[c=256,h=128,k=3,stride=2,pad=1]",
    "op:softmax[shape=1x8x1024x1024]", "op:layer_norm[shape=4096x1024]",
    "op:dense[m=1,k=4096,n=2048]", "op:dense[m=4,k=4096,n=4096]", "op:dense[m=2,k=6144,n=6144]",
    "op:multiply[shape=1x64x512x1024]", "op:gelu[shape=2048x3072]",
    "op:conv2d[c=256,h=64,k=1,pad=0,out=64]", "op:conv2d[c=64,h=112,k=1,pad=0,out=256]",
)  # fmt: skip
_LEAST_BYTES, _LEAST_FLOP = 64 << 10, 1e6
_MOST_BYTES = 450 << 20
_LARGE_BYTES = 100 << 20
"""Kernels that take longer leave no time for others."""
_RESERVE_S = 3.0
_FINALISTS = 2
"""As many versions of a kernel as are fastest beside the usual one of the other are timed again."""
Pair = tuple[int, int]


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare").add_argument("file", type=Path)
    collecting = commands.add_parser("collect")
    collecting.add_argument("file", type=Path, help="what `prepare` wrote")
    collecting.add_argument("--out", type=Path, required=True)
    collecting.add_argument("--seconds", type=float, default=220.0)
    collecting.add_argument("--pairs", type=int, default=300)
    collecting.add_argument("--rounds", type=int, default=6)
    collecting.add_argument(
        "--bytes",
        nargs=2,
        type=int,
        default=(0, _LARGE_BYTES),
        help="least and most that kernels read and write",
    )
    collecting.add_argument("--seed", type=int, default=0)
    tuning = commands.add_parser("tune")
    tuning.add_argument("file", type=Path, help="what `prepare` wrote")
    tuning.add_argument("--out", type=Path, required=True)
    tuning.add_argument("--seconds", type=float, default=220.0)
    tuning.add_argument("--candidates", type=int, default=12, help="of each kernel")
    commands.add_parser("versions").add_argument("file", type=Path)
    judging = commands.add_parser("judge")
    judging.add_argument("files", type=Path, nargs="+", help="turns of one machine")
    given = parser.parse_args(arguments)
    if given.command == "prepare":
        prepare(given.file)
    elif given.command == "tune":
        tune(given)
    elif given.command == "judge":
        print(judged(given.files))
    elif given.command == "versions":
        print(versions(given.file))
    else:
        collect(given)


def prepare(file: Path) -> None:
    """Write kernels to a file, one a line."""
    one = replace(local_placement(), resources=threads_alone(1))
    known = list(lines(file)) if file.exists() else []
    seen = {line["key"] for line in known}
    sources = {line["source"] for line in known}
    with file.open("a", encoding="utf-8") as out:
        for name in (*NETWORKS, *OPERATORS):
            if name not in sources:
                for workload, candidate in kernels(name, one, seen):
                    named = {"source": name, "key": workload.key, "text": workload.text}
                    out.write(json.dumps({**named, "candidate": to_builtins(candidate)}) + "\n")


def kernels(name: str, one: Placement, seen: set[str]) -> Iterator[Kernel]:
    """Some kernels of a network, from its front to its end."""
    options = ModelOptions(seed=0)
    network = prepare_loaded(load_outline(name, options), options, one)
    plan = network.plan
    known = [
        (task.workload, plan.candidates[key])
        for key, task in plan.tasks.items()
        if task.workload.bytes >= _LEAST_BYTES or task.workload.flop >= _LEAST_FLOP
        if task.workload.bytes <= _MOST_BYTES and task.workload.key not in seen
    ]
    known = list({workload.key: (workload, chosen) for workload, chosen in known}.values())
    most = NETWORKS.get(name, 1)
    places = np.unique(np.linspace(0, len(known) - 1, min(most, len(known))).astype(int))
    for place in places:
        seen.add(str(known[place][0].key))
        yield known[place]


def read(line: dict[str, Any]) -> Kernel:
    """The kernel of a line."""
    return parse_workload(line["text"]), convert(line["candidate"], Candidate)


def _described(kernel: Kernel) -> dict[str, Any]:
    workload, candidate = kernel
    return {"text": workload.text, "candidate": to_builtins(candidate)}


def collect(given: argparse.Namespace) -> None:
    """Time pairs drawn at random until time is up."""
    deadline_s = time.monotonic() + given.seconds - _RESERVE_S
    known = [read(line) for line in lines(given.file)]
    before = lines(given.out) if given.out.exists() else ()
    done: set[Pair] = {(p["pair"][0], p["pair"][1]) for p in before if "pair" in p}
    least, most = given.bytes
    chosen = [n for n, (workload, _) in enumerate(known) if least <= workload.bytes <= most]
    pairs: list[Pair] = list(combinations_with_replacement(chosen, 2))
    order = np.random.default_rng(given.seed).permutation(len(pairs))[: given.pairs]
    asked = [pairs[int(number)] for number in order]
    one = replace(local_placement(), resources=threads_alone(1))
    machine = {"memory": to_builtins(one.target.memory)}
    with given.out.open("a", encoding="utf-8") as file:
        scale = measured_contention(local_placement())
        file.write(json.dumps({**machine, CONTENTION: scale}) + "\n")
    with KernelPairs(beside(one, 1)) as measuring, given.out.open("a", encoding="utf-8") as file:
        for pair in (pair for pair in asked if pair not in done):
            if time.monotonic() > deadline_s:
                break
            began_s = time.monotonic()
            try:
                found: dict[str, Any] = asdict(
                    measuring.times([known[n] for n in pair], rounds=given.rounds)
                )
            except (ChildError, RemoteError) as error:
                found = {"failure": str(error)[:500]}
            told = [_described(known[n]) for n in pair]
            line = {"pair": pair, "kernels": told, **found, "wall_s": time.monotonic() - began_s}
            file.write(json.dumps(line) + "\n")
            file.flush()
            done.add(pair)
    print(f"{len(known)} kernels, {len(done)} of {len(order)} pairs", file=sys.stderr)


# ------------------------------------------------------------------------- tuned beside a partner

_TUNED = (
    ("op:add[shape=1x128x256x256]", "op:add[shape=1x128x256x256]"),
    ("op:softmax[shape=1x8x1024x1024]", "op:add[shape=1x128x256x256]"),
    ("op:conv2d[c=64,h=112,k=1,pad=0,out=256]", "op:add[shape=1x32x256x256]"),
    ("op:dense[m=1,k=8192,n=8192]", "op:dense[m=1,k=8192,n=8192]"),
    ("op:dense[m=1,k=4096,n=4096]", "op:add[shape=1x64x512x512]"),
    ("op:gelu[shape=2048x3072]", "op:multiply[shape=1x64x512x1024]"),
    ("op:layer_norm[shape=4096x1024]", "op:max_pool2d[c=64,h=256,k=2,stride=2]"),
    ("op:relu[shape=1x256x256x256]", "op:avg_pool2d[c=256,h=128,k=3,stride=2,pad=1]"),
)
"""Kernels that share bandwidth."""


def tune(given: argparse.Namespace) -> None:
    """Choose versions of each pair alone and beside each other, and time both choices in turn."""
    deadline_s = time.monotonic() + given.seconds - _RESERVE_S
    known = {line["source"]: read(line) for line in lines(given.file)}
    done = [line["pair"] for line in lines(given.out)] if given.out.exists() else []
    one = replace(local_placement(), resources=threads_alone(1))
    for pair in (list(pair) for pair in _TUNED):
        if pair in done or time.monotonic() > deadline_s:
            continue
        began_s = time.monotonic()
        with KernelPairs(beside(one, 1)) as pairs:
            found = _versions(pairs, [known[name] for name in pair], given.candidates)
        with given.out.open("a", encoding="utf-8") as file:
            line = {"pair": pair, **found, "wall_s": time.monotonic() - began_s}
            file.write(json.dumps(line) + "\n")


def _versions(pairs: KernelPairs, usual: list[Kernel], count: int) -> dict[str, Any]:
    """The versions of both kernels that are fastest alone, and those that are beside each other,
    and both pairs timed in turn.

    A first look times every version of a kernel beside the usual one of the other; a second one
    the fastest of it, each of one kernel with each of the other, those that are fastest alone
    among them. Neither look counts in what is told."""
    alone, together, tried = list(usual), [list[Kernel](), list[Kernel]()], 0
    alone_s = [0.0, 0.0]
    for side in (0, 1):
        times: dict[Candidate, tuple[float, float]] = {}
        for candidate in _some(usual[side], count):
            asked = list(usual)
            asked[side] = (usual[side][0], candidate)
            try:
                measured = pairs.times(asked, rounds=2)
            except (ChildError, RemoteError):
                continue
            tried += 1
            times[candidate] = (min(measured.alone_s[side]), min(measured.beside_s[side]))
        best = min(times, key=lambda each: times[each][0])
        alone_s[side] = times[best][0]
        fastest = sorted(times, key=lambda each: times[each][1])[:_FINALISTS]
        alone[side] = (usual[side][0], best)
        together[side] = [(usual[side][0], each) for each in dict.fromkeys([best, *fastest])]
    chosen = _second_look(pairs, together, alone_s)
    turns = [[asdict(pairs.times(each, rounds=4)) for each in (alone, chosen)] for _ in range(3)]
    return {
        "tried": tried,
        "same": [one[1] == other[1] for one, other in zip(alone, chosen, strict=True)],
        "versions": [[to_builtins(each[1]) for each in both] for both in (alone, chosen)],
        "turns": turns,
    }


def _second_look(
    pairs: KernelPairs, together: list[list[Kernel]], alone_s: list[float]
) -> list[Kernel]:
    """The version of each kernel with which both get most done beside each other, the median of
    three times in turn."""
    tries = [list(each) for each in product(*together)]
    speeds = [list[float]() for _ in tries]
    for _ in range(3):
        for each, seen in zip(tries, speeds, strict=True):
            measured = pairs.times(each, rounds=2)
            seen += [sum(alone_s[side] / median(measured.beside_s[side]) for side in (0, 1))]
    return max(zip(tries, speeds, strict=True), key=lambda each: median(each[1]))[0]


def _some(kernel: Kernel, count: int) -> list[Candidate]:
    """The default version of a kernel and others drawn at random."""
    workload, default = kernel
    one = replace(local_placement(), resources=threads_alone(1))
    space = search_space(workload, default.forms, one)
    drawn = space.sample(np.random.default_rng(0), count)
    return list(dict.fromkeys([default, *map(space.candidate, drawn)]))[:count]


def versions(file: Path) -> str:
    """What versions tuned beside each other gain in joint throughput over those tuned alone."""
    rows: list[list[str]] = []
    for line in lines(file):
        alone_s = [
            median(t for turn in line["turns"] for t in turn[0]["alone_s"][side]) for side in (0, 1)
        ]
        joint = [
            [
                sum(alone_s[side] / median(turn[which]["beside_s"][side]) for side in (0, 1))
                for turn in line["turns"]
            ]
            for which in (0, 1)
        ]
        gains = [after / before for before, after in zip(*joint, strict=True)]
        rows.append(
            [
                *(f"`{name}`" for name in line["pair"]),
                f"{line['tried']}",
                ", ".join("same" if each else "other" for each in line["same"]),
                f"{median(joint[0]):.2f}",
                f"{median(joint[1]):.2f}",
                f"{median(gains):.2f} ({min(gains):.2f} to {max(gains):.2f})",
            ]
        )
    header = ["one", "the other", "tried", "versions", "tuned alone", "tuned beside", "gain"]
    return table(header, rows)


# --------------------------------------------------------------------------------- the predictor


def judged(files: Sequence[Path]) -> str:
    """Errors of predicted slowdowns, by what of a pair was not learnt from."""
    from neighbours_judged import judged as tables

    return tables([line for file in files for line in lines(file)])


if __name__ == "__main__":
    main(sys.argv[1:])
