"""Speed of predictions: of a network that is loaded, and of many kernels at once.

    python benchmarks/prediction_speed.py [--network zoo:resnet50] [--repeats 7]

Predictions use the measurements that ship with tilewright and an empty database. Run it twice,
since the first run fits the models. The answer for the network is timed once when only the network
and the models are loaded, and then again, when its default settings are remembered. The kernels are
convolutions as `collect` draws them: in random settings, from the largest space of each, and in
default settings of any implementation. Their facts are computed each time; the geometry of
convolutions, which is computed when their settings are listed, is remembered in one figure and
computed again in the other. No other program may run meanwhile.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from tilewright.core.events import discard
from tilewright.core.forms import PLAIN
from tilewright.core.records import Placement
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels import convolution as geometry
from tilewright.kernels.spaces import default_candidate, spaces
from tilewright.models import ModelOptions
from tilewright.models.configurations import configurations_of, drawn
from tilewright.plan.preparation import prepare, prepare_outline
from tilewright.predict.collected import family_of
from tilewright.predict.forecasting import Forecaster, forecaster_of
from tilewright.predict.kernel_features import Kernel
from tilewright.store import open_store

FAMILY = "conv2d"
ASKED = ((2000, 1), (1000, 10), (100, 200))
"""How many different convolutions, and how many settings of each, are asked about at once."""


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def network_times(forecaster: Forecaster, name: str, repeats: int) -> tuple[float, float, float]:
    """Seconds of loading a network and its models; of the first answer; the median of more."""

    def load() -> None:
        for family in sorted({family_of(t.workload) for t in network.tasks.values()}):
            forecaster.predictors.model(family)
            forecaster.predictors.measured(family)

    began = perf_counter()
    network = prepare(name, ModelOptions(), forecaster.predictors.placement)
    load()
    loading_s = perf_counter() - began
    first_s = seconds(lambda: forecaster.network(network, "default"))
    more_s = [seconds(lambda: forecaster.network(network, "default")) for _ in range(repeats)]
    return loading_s, first_s, median(more_s)


def convolutions(placement: Placement, count: int) -> list[Workload]:
    """The first different convolutions that `collect` draws and that the model answers for."""
    found: dict[str, Workload] = {}
    for numbers in drawn(FAMILY, seed=0):
        network = prepare_outline(
            configurations_of(FAMILY).text(numbers), ModelOptions(), placement
        )
        for task in network.tasks.values():
            if family_of(task.workload) == FAMILY:
                found[task.workload.text] = task.workload
        if len(found) >= count:
            break
    return list(found.values())[:count]


def kernels_of(placement: Placement, workloads: list[Workload], count: int) -> list[Kernel]:
    """`count` random settings of each convolution."""
    random = np.random.default_rng(0)
    found: list[Kernel] = []
    for workload in workloads:
        forms = (PLAIN,) * (len(workload.arguments) + 1)
        space = max(spaces(workload, forms, placement), key=lambda space: len(space.numbers))
        numbers = random.choice(space.numbers, size=count)
        found += [(workload, space.part.candidate(int(number))) for number in numbers]
    return found


def in_default_settings(placement: Placement, workloads: list[Workload]) -> list[Kernel]:
    """Each convolution once, in the implementation and settings that nothing measured picks."""
    found: list[Kernel] = []
    for workload in workloads:
        forms = (PLAIN,) * (len(workload.arguments) + 1)
        found.append((workload, default_candidate(workload, forms, placement)[0]))
    return found


def forget(kernels: list[Kernel]) -> None:
    """Drop what is remembered of workloads: the geometry of convolutions, bytes of constants,
    types."""
    for remembering in vars(geometry).values():
        if hasattr(remembering, "cache_clear"):
            remembering.cache_clear()
    for workload, _ in kernels:
        for name in ("constant_bytes", "computed_in"):
            workload.__dict__.pop(name, None)


def rate(forecaster: Forecaster, kernels: list[Kernel]) -> str:
    """Predictions per second, medians of three: of operators seen before, as by whoever listed
    their settings, and of those whose geometry must be read anew."""
    seen: list[float] = []
    anew: list[float] = []
    for _ in range(3):
        forget(kernels)
        anew.append(seconds(lambda: forecaster.modelled(kernels)))
        seen.append(seconds(lambda: forecaster.modelled(kernels)))
    rates = [len(kernels) / median(times) for times in (seen, anew)]
    return f"{rates[0]:,.0f} per second, {rates[1]:,.0f} with their geometry read anew"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="zoo:resnet50")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    placement = local_placement()
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "none.db") as store:
        forecaster = forecaster_of(placement, store, discard)
        loading_s, first_s, again_s = network_times(
            forecaster, arguments.network, arguments.repeats
        )
        print(
            f"{arguments.network}: loading {loading_s:.2f} s, first answer {1e3 * first_s:.0f} ms"
        )
        print(f"the same again: {1e3 * again_s:.0f} ms (median of {arguments.repeats})")
        drawn_ones = convolutions(placement, max(operators for operators, _ in ASKED))
        for operators, count in ASKED:
            kernels = kernels_of(placement, drawn_ones[:operators], count)
            print(f"{operators} convolutions in {count} settings: {rate(forecaster, kernels)}")
        kernels = in_default_settings(placement, drawn_ones)
        print(f"{len(kernels)} in default settings: {rate(forecaster, kernels)}")


if __name__ == "__main__":
    main()
