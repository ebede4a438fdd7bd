"""Sweeps of convolution tasks, with which tuners are compared without hardware.

    python benchmarks/sweeps.py [--list] [--only NAME…] [--folder FOLDER]

Every setting of a declared sub-space of the direct convolution is timed once, and the fifty fastest
once more with three times as many samples. The files ship with the package; `tilewright study
tuners` replays them. No other program may run meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.core.records import KnobValue, Measurement, Placement, Protocol
from tilewright.graph.tasks import Task
from tilewright.hardware.device import local_placement
from tilewright.kernels.knobs import Knob
from tilewright.kernels.search_space import KnobSpace, Part
from tilewright.kernels.spaces import spaces
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.kernels import KernelMeasurer
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.search.sweeps.sweep import Sweep, sweep_text

FOLDER = Path(__file__).parents[1] / "src/tilewright/search/sweeps"
MOST = 1500
AGAIN = 50
BATCH = 32
IMPLEMENTATION = "conv2d_direct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A task of a network and the values of the knobs that are restricted."""

    network: str
    task: str
    values: Mapping[str, tuple[KnobValue, ...]]


SWEEPS = {
    "resnet50-3x3-56": Declared(
        network="zoo:resnet50",
        task="layer1.0.conv2",
        values={
            "in_block": (16,),
            "reduce_order": ("chunk,ky,kx,lane", "chunk,ky,lane,kx"),
            "unroll": ("none", "lanes"),
        },
    ),
    "resnet50-3x3-stride2-28": Declared(
        network="zoo:resnet50",
        task="layer2.0.conv2",
        values={"in_block": (16,), "cache_chunks": (0,), "unroll": ("none", "lanes")},
    ),
    "resnet50-3x3-7": Declared(
        network="zoo:resnet50", task="layer4.0.conv2", values={"in_block": (16,)}
    ),
    "resnet50-1x1-14": Declared(network="zoo:resnet50", task="layer3.1.conv1", values={}),
}


def declared_part(task: Task, declared: Declared, placement: Placement) -> Part:
    """The direct convolution's space with some knobs restricted."""
    (whole,) = (
        space.part
        for space in spaces(task.workload, task.forms, placement)
        if space.spec.name == IMPLEMENTATION
    )
    knobs: list[Knob] = []
    for knob in whole.knobs.knobs:
        values = declared.values.get(knob.name, knob.values)
        unknown = set(values) - set(knob.values)
        if unknown:
            sys.exit(f"{knob.name} of {task.name} has no {unknown}, but {knob.values}")
        knobs.append(replace(knob, values=values))
    return replace(whole, knobs=KnobSpace(knobs=tuple(knobs), accepts=whole.knobs.accepts))


def find(declared: Declared, placement: Placement) -> Task:
    """The task that was declared."""
    network = prepare(declared.network, ModelOptions(), placement)
    return next(task for task in network.tasks.values() if task.name == declared.task)


def measured(
    measurer: KernelMeasurer, task: Task, part: Part, numbers: list[int], protocol: Protocol
) -> dict[int, float | None]:
    """The median time of each number, None for failures."""
    found: dict[int, float | None] = {}
    began_s = time.monotonic()
    for start in range(0, len(numbers), BATCH):
        batch = numbers[start : start + BATCH]
        outcomes = measurer.measure(task.workload, [part.candidate(n) for n in batch], protocol)
        for number, outcome in zip(batch, outcomes, strict=True):
            found[number] = outcome.latency_s if isinstance(outcome, Measurement) else None
        print(f"  {len(found)} of {len(numbers)}, {time.monotonic() - began_s:.0f} s", flush=True)
    return found


def sweep(name: str, declared: Declared, placement: Placement) -> Sweep:
    """Time every setting, then the best ones again."""
    task = find(declared, placement)
    part = declared_part(task, declared, placement)
    numbers = list(part.knobs)
    assert len(numbers) <= MOST, f"{name} has {len(numbers)} settings"
    print(f"{name}: {len(numbers)} settings", flush=True)
    usual, threads = kernel_protocol(placement), placement.resources.threads
    with KernelMeasurer(placement) as measurer:
        measurer.start()
        seconds = measured(measurer, task, part, numbers, replace(usual, repeats=3))
        timed = {number: value for number, value in seconds.items() if value is not None}
        best = sorted(timed, key=lambda number: timed[number])[:AGAIN]
        again = measured(measurer, task, part, best, replace(usual, repeats=3 * usual.repeats))
    return Sweep(
        name=name,
        part=part,
        seconds=seconds,
        again={number: value for number, value in again.items() if value is not None},
        origin=f"{placement.target.model}, {threads} threads, {time.strftime('%Y-%m')}",
        workload=task.workload,
        placement=placement,
    )


def main() -> int:
    """Sweep what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="only print the sizes of the spaces")
    parser.add_argument("--only", nargs="*", choices=sorted(SWEEPS), default=sorted(SWEEPS))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    placement = local_placement()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        if arguments.list:
            task = find(SWEEPS[name], placement)
            print(name, sum(1 for _ in declared_part(task, SWEEPS[name], placement).knobs))
            continue
        made = sweep(name, SWEEPS[name], placement)
        (arguments.folder / f"{name}.json").write_text(sweep_text(made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
