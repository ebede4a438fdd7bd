"""The implementations that compete for a workload. Nothing else switches on their names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from itertools import chain

from tilewright.core.errors import InternalError, TargetError, UsageError, close_matches
from tilewright.core.forms import Form
from tilewright.core.plugins import Offers
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import (
    CHOSEN,
    CPU,
    FLOAT16,
    HALVES,
    LLVM,
    Coarse,
    Implementation,
    Library,
    OtherBuilder,
    PacksTypes,
    TakesCodes,
    TakesHalves,
)
from tilewright.kernels.ports import multiplied

_BUILT_IN = (
    "conv2d_direct",
    "conv2d_winograd",
    "conv2d_depthwise",
    "conv2d_int8",
    "conv2d_bfloat16",
    "conv2d_float16",
    "conv2d_amx",
    "conv2d_mmla",
    "conv2d_winograd_bfloat16",
    "conv2d_winograd_float16",
    "conv2d_winograd_int8",
    "conv2d_transposed",
    "conv2d_transposed_bfloat16",
    "conv2d_transposed_float16",
    "conv2d_transposed_int8",
    "matrix_products",
    "dense_bfloat16",
    "dense_float16",
    "dense_amx",
    "dense_mmla",
    "dense_int8",
    "dense_int8_weights",
    "batch_matmul_bfloat16",
    "batch_matmul_amx",
    "batch_matmul_mmla",
    "batch_matmul_int8",
    "recurrent",
    "attention",
    "attention_in_place",
    "attention_bfloat16",
    "attention_amx",
    "attention_int8",
    "rows",
    "generic",
    "island",
    "metaschedule",
    "cuda.products",
    "cuda.tf32_products",
    "cuda.code_products",
    "cuda.exchanged_products",
    "cuda.async_products",
    "cuda.direct",
    "cuda.attention",
    "cuda.default",
    "cuda.stream",
    "cuda.rows",
    "cuda.windows",
    "cuda.vectors",
)


@cache
def _offers() -> Offers[Implementation]:
    """Of ours, a module offers `SPEC`, or several as `SPECS`."""
    modules = [import_module(f"tilewright.kernels.{name}") for name in _BUILT_IN]
    specs = [getattr(module, "SPECS", None) or (module.SPEC,) for module in modules]
    ours: dict[str, Implementation] = {spec.name: spec for spec in chain.from_iterable(specs)}
    needs = (
        *("name", "anchors", "applies", "port_forms", "knobs", "valid", "demand", "error_bound"),
        *("packed_shapes", "pack"),
    )
    return Offers("tilewright.implementations", kind="implementation", built_in=ours, needs=needs)


def implementations() -> dict[str, Implementation]:
    """All specs by name: ours, then those that other packages offer as entry points."""
    return _offers().usable()


def is_ours(name: str) -> bool:
    """Whether a spec is not one that another package offers."""
    return name not in _offers().others()


def implementation(name: str) -> Implementation:
    """The spec with this name. Raises PluginError where a package offers it that is broken."""
    found = _offers().find(name)
    if found is None:
        raise InternalError(f"no implementation called {name!r}")
    return found


def builder_of(candidate: Candidate) -> str:
    """The name of what builds a candidate's kernel."""
    spec = implementation(candidate.implementation)
    return spec.builder if isinstance(spec, OtherBuilder) else LLVM


def packed_type(workload: Workload, candidate: Candidate, index: int) -> str:
    """The element type in which a constant argument is packed."""
    spec, own = implementation(candidate.implementation), workload.arguments[index].type.dtype
    if not isinstance(spec, PacksTypes):
        return own
    return spec.packed_types(workload, candidate).get(index, own)


def is_for(spec: Implementation, target: Target) -> bool:
    """Whether an implementation is for processors of this kind."""
    # isinstance of a protocol takes ten times as long, and this is asked of all for each workload
    return target.kind in getattr(spec, "target_kinds", CPU)


def applicable(workload: Workload, target: Target, resources: Resources) -> list[Implementation]:
    """What can compute this workload on this target, in order of registration."""
    anchor = workload.anchor_name
    return [
        spec
        for spec in implementations().values()
        if ("*" in spec.anchors or anchor in spec.anchors)
        and is_for(spec, target)
        and spec.applies(workload, target, resources)
    ]


def precise_enough(
    spec: Implementation, workload: Workload, forms: tuple[Form, ...], placement: Placement
) -> bool:
    """Whether what an implementation multiplies in is no coarser than what is allowed; where that
    is chosen for each tensor, by its noise or its range, than what all operands that it multiplies
    lie in."""
    if not isinstance(spec, Coarse) or placement.precision not in {*CHOSEN, FLOAT16}:
        return not isinstance(spec, Coarse) or spec.multiplies_in == placement.precision
    read = multiplied(workload)
    return bool(read) and all(forms[index].dtype == spec.multiplies_in for index in read)


def takes(spec: Implementation, workload: Workload, forms: tuple[Form, ...]) -> bool:
    """Whether an implementation reads and writes the element types that ports are stored in, and
    codes where ports are in such."""
    coded = frozenset(index for index, form in enumerate(forms) if form.encoding is not None)
    if coded != (spec.coded_ports(workload) if isinstance(spec, TakesCodes) else frozenset()):
        return False
    stored = {index for index, form in enumerate(forms) if form.dtype in HALVES}
    if not stored:
        return True
    return isinstance(spec, TakesHalves) and stored <= spec.half_ports(workload)


def ports_in(
    form: Form, workload: Workload, target: Target, resources: Resources
) -> tuple[Form, ...] | None:
    """Of the forms of ports that implementations offer for a workload those with the most in this
    one; None where no port is."""
    offered = [
        ports
        for spec in applicable(workload, target, resources)
        for ports in spec.port_forms(workload, target, resources)
    ]
    found = max(offered, key=lambda ports: ports.count(form))
    return found if form in found else None


def checked_libraries(names: Iterable[str]) -> tuple[str, ...]:
    """The names of libraries, each once. Raises UsageError for one that is none, TargetError for
    one that is not installed."""
    wanted = tuple(dict.fromkeys(names))
    known = {n: spec for n, spec in implementations().items() if isinstance(spec, Library)}
    for name in wanted:
        if name not in known:
            raise UsageError(f"no library is called {name!r}", hint=close_matches(name, known))
        package = known[name].missing()
        if package:
            raise TargetError(
                f"the library {name!r} is not installed", hint=f"pip install {package}"
            )
    return wanted


def allowed_libraries(
    workload: Workload, forms: tuple[Form, ...], placement: Placement
) -> list[Implementation]:
    """The libraries that may compute a task beside the implementations that apply to it."""
    specs = map(implementation, placement.libraries)
    return [
        spec
        for spec in specs
        if isinstance(spec, Library)
        and all(form.encoding is None for form in forms)
        and not spec.applies(workload, placement.target, placement.resources)
        and spec.takes(workload, forms)
    ]


def is_allowed(candidate: Candidate, workload: Workload, placement: Placement) -> bool:
    """Whether a candidate may compute a workload: only where its precision is allowed, a library
    only where it is, too, or where nothing else computes the workload."""
    spec = implementations().get(candidate.implementation)
    if spec is not None and not precise_enough(spec, workload, candidate.forms, placement):
        return False
    return (
        not isinstance(spec, Library)
        or candidate.implementation in placement.libraries
        or spec.applies(workload, placement.target, placement.resources)
    )
