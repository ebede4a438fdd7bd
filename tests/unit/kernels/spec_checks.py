"""What every spec must keep, for the tests of single specs; no compiler involved."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.records import Candidate, CpuFacts, Device, Settings
from tilewright.graph.layout import PLAIN
from tilewright.graph.network import attributes
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.base import FactColumn, Implementation


def device(vector_bytes: int = 64, registers: int = 32, threads: int = 2) -> Device:
    """A device with vectors of that width."""
    return Device(
        class_key="test",
        instance="test",
        target="{}",
        threads=threads,
        cpus=tuple(range(threads)),
        cpu=CpuFacts(
            model="test",
            architecture="test",
            features=(),
            vector_bytes=vector_bytes,
            vector_registers=registers,
            l1_bytes=32 << 10,
            l2_bytes=1 << 20,
            l3_bytes=16 << 20,
            physical_cores=threads,
        ),
    )


DEVICES = (device(), device(32, 16), device(16, 32, threads=4))


def single(operator: str, shapes: Sequence[tuple[int, ...]], constant: int, **named) -> Workload:
    """The bare operator; the argument at `constant` is a constant (-1: none)."""
    arguments = tuple(
        Argument(type=TensorType(shape), role="constant" if index == constant else "data")
        for index, shape in enumerate(shapes)
    )
    step = Step(operator=operator, inputs=tuple(range(len(shapes))), attributes=attributes(**named))
    return Workload(arguments=arguments, steps=(step,))


def valid_settings(
    spec: Implementation, task: Workload, on: Device, layouts: tuple[str, ...]
) -> list[Settings]:
    """Every valid combination of knob values."""
    knobs = spec.knobs(task, on, layouts)
    assert all(knob.values for knob in knobs), "a knob without values"
    assert all(len(set(knob.values)) == len(knob.values) for knob in knobs)
    names = [knob.name for knob in knobs]
    combinations = itertools.product(*(knob.values for knob in knobs))
    found = [dict(zip(names, values, strict=True)) for values in combinations]
    return [s for s in found if spec.valid(task, on, layouts, s)]


def check_space(
    spec: Implementation, task: Workload, on: Device, layouts: tuple[str, ...]
) -> tuple[list[Settings], Mapping[str, FactColumn]]:
    """There is a valid setting, and every fact has one finite, non-negative entry for each."""
    assert spec.applies(task, on)
    settings = valid_settings(spec, task, on, layouts)
    assert settings
    facts = spec.facts(task, on, layouts, settings)
    assert {"estimate_s", "parallel_extent"} <= set(facts)
    for name, column in facts.items():
        assert len(column) == len(settings), name
        assert np.isfinite(column).all(), name
        assert (column >= 0).all(), name
    assert (facts["estimate_s"] > 0).all()
    assert (facts["parallel_extent"] >= 1).all()
    assert 0 < spec.error_bound(task) < 1e-3
    return settings, facts


def best(settings: list[Settings], facts: Mapping[str, FactColumn]) -> Settings:
    """The setting with the least estimate."""
    return settings[int(np.argmin(facts["estimate_s"]))]


def candidate(spec: Implementation, settings: Settings, layouts: tuple[str, ...]) -> Candidate:
    """A candidate of this spec."""
    return Candidate(implementation=spec.name, settings=tuple(settings.items()), layouts=layouts)


def check_packing(spec: Implementation, task: Workload, chosen: Candidate) -> None:
    """`pack` gives the shapes it announced and keeps every weight exactly once."""
    rng = np.random.default_rng(0)
    constants = {
        index: rng.standard_normal(argument.type.shape).astype("float32")
        for index, argument in enumerate(task.arguments)
        if argument.role == "constant"
    }
    packed = spec.pack(task, chosen, constants)
    shapes = spec.packed_shapes(task, chosen)
    assert set(packed) == set(constants)
    for index, shape in shapes.items():
        assert packed[index].shape == shape
        assert packed[index].flags["C_CONTIGUOUS"]
        kept = np.sort(packed[index][packed[index] != 0])
        assert (kept == np.sort(constants[index].ravel())).all()


def plain(task: Workload) -> tuple[str, ...]:
    """Every port plain."""
    return (PLAIN,) * (len(task.arguments) + 1)
