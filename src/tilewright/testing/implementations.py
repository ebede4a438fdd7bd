"""What every implementation must keep, as checks that another package can run on its own.

    from tilewright.testing.implementations import ImplementationConformance, single

    class TestMine(ImplementationConformance):
        spec = SPEC
        workloads = (single("relu", (1, 16, 8, 8)),)

The checks of the spec need no compiler. Those of the lowering build kernels in worker processes and
compare them with numpy; they need the implementation's entry points to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import ClassVar

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Device, Placement, Settings
from tilewright.core.targets import Binding, MemoryLevel, Target, threads_alone
from tilewright.cost.demand import Demand
from tilewright.graph.network import Array, AttributeValue, TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.features import units_of
from tilewright.kernels.base import DemandsOfMany, Implementation
from tilewright.kernels.estimates import facts, facts_of_many
from tilewright.kernels.registry import applicable, implementations
from tilewright.kernels.search_space import KnobSpace, knob_space
from tilewright.measure.base import Measurer

_LOOKED_AT = 60
"""Settings of a large space that the checks of the spec look at."""
_SEED = 0
_ROUNDINGS = 4
"""Of two operands, of what is computed between, of the result."""


def single(
    operator: str,
    *arguments: tuple[int, ...] | TensorType,
    constants: Sequence[int] = (),
    **named: AttributeValue,
) -> Workload:
    """The workload of one bare operator on arguments of these shapes, in float32, or of these
    types: `TensorType((1, 512), "float16")`. Those at `constants` are constants.

    Other attributes than the operator's are an error of the operator when its types are asked for.
    """
    taken = tuple(
        Argument(
            type=given if isinstance(given, TensorType) else TensorType(given),
            role="constant" if index in constants else "data",
        )
        for index, given in enumerate(arguments)
    )
    step = Step(operator=operator, inputs=tuple(range(len(taken))), attributes=attributes(**named))
    return Workload(arguments=taken, steps=(step,))


def made_up_placement(vector_bytes: int = 64, registers: int = 32, threads: int = 2) -> Placement:
    """A placement with vectors of that width, for checks that run nothing."""
    target = Target(
        model="made up",
        architecture="made up",
        features=(),
        vector_bytes=vector_bytes,
        vector_registers=registers,
        units=units_of((), vector_bytes),
        memory=tuple(
            MemoryLevel(name=f"L{level}", bytes=size)
            for level, size in enumerate((32 << 10, 1 << 20, 16 << 20), start=1)
        ),
        cores=threads,
        tvm="{}",
    )
    return Placement(
        device=Device(class_key="made up", instance="made up", target=target, access="described"),
        resources=threads_alone(threads),
        binding=Binding(cpus=tuple(range(threads))),
    )


PLACEMENTS = (made_up_placement(), made_up_placement(32, 16), made_up_placement(16, 32, threads=4))


def plain(workload: Workload) -> tuple[Form, ...]:
    """Every port row-major."""
    return (PLAIN,) * (len(workload.arguments) + 1)


def some_settings(space: KnobSpace, count: int) -> list[Settings]:
    """Up to `count` valid settings from all over a space."""
    length = space.range_length
    drawn = np.random.default_rng(_SEED).integers(length, size=100 * count)
    numbers = drawn if length > count else np.arange(length)
    valid: dict[int, None] = {}
    for first in range(0, len(numbers), count):
        if len(valid) < count:
            some = numbers[first : first + count]
            valid |= dict.fromkeys(some[space.accepted(some)].tolist())
    if not valid and length > count:
        valid = dict.fromkeys(islice(space, 1))
    return [space.settings(number) for number in [*valid][:count]]


def candidate_of(spec: Implementation, settings: Settings, forms: tuple[Form, ...]) -> Candidate:
    """The candidate of these settings, in the order that tuners write them."""
    return Candidate(
        implementation=spec.name, settings=tuple(sorted(settings.items())), forms=forms
    )


def check_space(
    spec: Implementation, workload: Workload, placement: Placement, forms: tuple[Form, ...] = ()
) -> None:
    """Knobs have distinct values, numbers stand for the same settings each time, some are valid."""
    assert spec.applies(workload, placement.target, placement.resources), (
        f"{spec.name} does not apply to {workload.key}"
    )
    assert isinstance(spec.name, str) and spec.name, "it has no name"
    ports = forms or plain(workload)
    space = knob_space(spec, workload, placement.target, placement.resources, ports)
    names = [knob.name for knob in space.knobs]
    assert len(set(names)) == len(names), f"two knobs have one name: {names}"
    for knob in space.knobs:
        assert knob.values, f"{knob.name} has no values"
        kinds = {(type(value), value) for value in knob.values}
        assert len(kinds) == len(knob.values), f"{knob.name} has a value twice"
    again = knob_space(spec, workload, placement.target, placement.resources, ports)
    assert again.fingerprint == space.fingerprint, "asked twice, the knobs differ"
    settings = some_settings(space, _LOOKED_AT)
    assert settings, "no setting is valid"
    for setting in settings:
        number = space.number(setting)
        assert number is not None and space.settings(number) == setting
    numbers = np.random.default_rng(_SEED).integers(space.range_length, size=_LOOKED_AT)
    alone = [
        spec.valid(workload, placement.target, placement.resources, ports, space.settings(int(n)))
        for n in numbers
    ]
    assert space.accepted(numbers).tolist() == alone, "asked alone, other settings are valid"


def check_demand(
    spec: Implementation, workload: Workload, placement: Placement, forms: tuple[Form, ...] = ()
) -> None:
    """What a kernel demands has one finite entry per setting, the same whatever else is asked."""
    ports = forms or plain(workload)
    settings = some_settings(
        knob_space(spec, workload, placement.target, placement.resources, ports), _LOOKED_AT
    )
    demand = spec.demand(workload, placement.target, placement.resources, ports, settings)
    assert isinstance(demand, Demand), "the demand is no Demand"
    for name, told in (("pieces", demand.pieces), *demand.details.items()):
        whole = np.shape(told) in ((), (1,), (len(settings),))
        assert whole, f"{name} has not one entry per setting"
    known = facts(spec, workload, placement.target, placement.resources, ports, settings)
    for name, column in known.items():
        values = np.asarray(column)
        assert np.isfinite(values).all(), f"{name} is not finite"
    assert (known["estimate_s"] > 0).all(), "an estimate is not positive"
    assert (known["parallel_extent"] >= 1).all(), "less than one piece of work"
    for row in {0, len(settings) - 1}:
        one = [settings[row]]
        alone = facts(spec, workload, placement.target, placement.resources, ports, one)
        for name, column in known.items():
            same = np.isclose(alone[name][0], column[row], rtol=1e-9)
            assert same, f"{name} of one setting depends on the others"
    if isinstance(spec, DemandsOfMany):
        many, target, resources = [workload] * len(settings), placement.target, placement.resources
        together = facts_of_many(spec, many, target, resources, ports, settings)
        assert set(together) == set(known), "demands of many tell other things"
        for name, column in known.items():
            same = np.allclose(together[name], column, rtol=1e-9)
            assert same, f"{name} differs where it is told of many workloads"


def check_promises(spec: Implementation, workload: Workload, placement: Placement) -> None:
    """Its error bound is one, and the layouts it offers fit its ports."""
    offered = spec.port_forms(workload, placement.target, placement.resources)
    bound, most = spec.error_bound(workload), _largest_bound(offered)
    assert 0 < bound < most, f"an error bound of {bound}, not below {most}"
    assert offered, "it offers no layouts for its ports"
    assert len(set(offered)) == len(offered), "it offers the same layouts twice"
    kinds = [*(argument.type for argument in workload.arguments), workload.result]
    for ports in offered:
        assert len(ports) == len(kinds), f"{len(ports)} layouts for {len(kinds)} ports"
        for kind, form in zip(kinds, ports, strict=True):
            assert _fits(form, kind), f"a tensor of shape {kind.shape} cannot lie in form {form}"


def _fits(form: Form, kind: TensorType) -> bool:
    try:
        form.physical_shape(kind.shape)
    except InternalError:
        return False
    return True


def _largest_bound(offered: Sequence[tuple[Form, ...]]) -> float:
    """A tenth; for forms in coarser element types a few of their roundings."""
    types = {form.dtype for ports in offered for form in ports if form.dtype is not None}
    roundings = [element_type(name).unit_roundoff or 0.0 for name in types]
    return max(0.1, _ROUNDINGS * max(roundings, default=0.0))


def check_packing(
    spec: Implementation, workload: Workload, placement: Placement, forms: tuple[Form, ...] = ()
) -> None:
    """`check_packed` for settings from all over the space."""
    ports = forms or plain(workload)
    for settings in some_settings(
        knob_space(spec, workload, placement.target, placement.resources, ports), 4
    ):
        check_packed(spec, workload, candidate_of(spec, settings, ports))


def check_packed(
    spec: Implementation, workload: Workload, candidate: Candidate
) -> tuple[dict[int, Array], Mapping[int, Array]]:
    """`pack` keeps every constant, in the shapes that `packed_shapes` told, row-major.

    Gives the random constants it tried and what they were packed to, for further checks.
    """
    rng = np.random.default_rng(_SEED)
    constants: dict[int, Array] = {
        index: rng.standard_normal(argument.type.shape).astype(argument.type.dtype)
        for index, argument in enumerate(workload.arguments)
        if argument.role == "constant"
    }
    shapes = spec.packed_shapes(workload, candidate)
    packed = spec.pack(workload, candidate, constants)
    assert set(packed) == set(constants), "pack loses or adds constants"
    assert set(shapes) <= set(constants), "packed_shapes has more than the constants"
    for index, shape in shapes.items():
        found = packed[index]
        assert found.shape == tuple(shape), f"argument {index}: {found.shape}, not {shape}"
        assert found.flags["C_CONTIGUOUS"], f"argument {index} is not row-major"
    return constants, packed


def check_installed(spec: Implementation, workload: Workload, placement: Placement) -> None:
    """The spec is found under its name, and competes for the workload."""
    assert spec.name in implementations(), f"no entry point offers {spec.name}"
    names = [found.name for found in applicable(workload, placement.target, placement.resources)]
    assert spec.name in names, f"{spec.name} does not compete for {workload.anchor_name}"


def check_numbers(
    spec: Implementation,
    workload: Workload,
    forms: tuple[Form, ...] = (),
    *,
    settings: int = 4,
    on: Placement | None = None,
) -> None:
    """Kernels `on` a placement, this machine without one, give numpy's numbers within the bound
    that the spec promises.

    The setting with the best estimate is built, and others from all over the space.
    """
    placement = on or _here()
    with _measurer(placement) as measurer:
        _check_numbers(measurer, placement, spec, (workload, forms or plain(workload)), settings)


def _measurer(placement: Placement) -> Measurer:
    from tilewright.measure.targeting import open_measurer

    return open_measurer(placement, seed=_SEED)


def _check_numbers(
    measurer: Measurer,
    placement: Placement,
    spec: Implementation,
    case: tuple[Workload, tuple[Form, ...]],
    settings: int = 4,
) -> None:
    from tilewright.measure.checking import check_kernel

    workload, ports = case
    drawn = some_settings(
        knob_space(spec, workload, placement.target, placement.resources, ports), _LOOKED_AT
    )
    assert drawn, "no setting is valid there"
    order = np.argsort(
        facts(spec, workload, placement.target, placement.resources, ports, drawn)["estimate_s"],
        kind="stable",
    )
    picked = np.linspace(0, len(drawn) - 1, min(settings, len(drawn))).astype(int)
    for row in dict.fromkeys(int(order[place]) for place in picked):
        candidate = candidate_of(spec, drawn[row], ports)
        found = check_kernel(measurer, workload, candidate, _SEED)
        assert found.failure is None, f"{drawn[row]}: {found.failure.kind}: {found.failure.message}"


def check_spec(
    spec: Implementation,
    workload: Workload,
    forms: tuple[Form, ...] = (),
    placements: Sequence[Placement] = PLACEMENTS,
) -> None:
    """All checks of the spec on those of the placements where it applies; the usual ones are CPUs
    with vectors of several widths."""
    placements = [
        placement
        for placement in placements
        if spec.applies(workload, placement.target, placement.resources)
    ]
    assert placements, f"{spec.name} applies to {workload.key} on no device"
    for placement in placements:
        check_space(spec, workload, placement, forms)
        check_demand(spec, workload, placement, forms)
        check_promises(spec, workload, placement)
        check_packing(spec, workload, placement, forms)


class ImplementationConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `spec` and `workloads`.

    `forms` has one entry per workload, its port layouts; all are row-major where it is empty.
    `placements` are for the checks that build nothing, kernels run `on` a placement; an
    implementation for other processors than CPUs sets both.
    """

    spec: ClassVar[Implementation]
    workloads: ClassVar[Sequence[Workload]]
    forms: ClassVar[Sequence[tuple[Form, ...]]] = ()
    placements: ClassVar[Sequence[Placement]] = PLACEMENTS
    on: ClassVar[Placement | None] = None

    def _cases(self) -> list[tuple[Workload, tuple[Form, ...]]]:
        ports = self.forms or [plain(workload) for workload in self.workloads]
        return list(zip(self.workloads, ports, strict=True))

    def test_spec(self) -> None:
        for workload, ports in self._cases():
            check_spec(self.spec, workload, ports, self.placements)

    def test_installed(self) -> None:
        for workload, _ in self._cases():
            check_installed(self.spec, workload, self.on or _here())

    def test_numbers(self) -> None:
        placement = self.on or _here()
        with _measurer(placement) as measurer:
            for case in self._cases():
                _check_numbers(measurer, placement, self.spec, case)


@cache
def _here() -> Placement:
    from tilewright.hardware.device import local_placement

    return local_placement()
