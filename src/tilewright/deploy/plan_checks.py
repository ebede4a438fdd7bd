"""What a plan's results in another precision are beside those in float32, as ONNX Runtime computes
them: by the same rule by which `optimize` ships a network or refuses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tilewright.core.schedules import PlanCheck
from tilewright.deploy.plan_models import allowed_in
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.base import SINGLE
from tilewright.measure.checking import compare_outputs
from tilewright.models import contained
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.scheduling.plan_file import Plan
from tilewright.report import shown


def checked(
    plan: Plan,
    networks: Mapping[str, PreparedNetwork],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
) -> tuple[PlanCheck, ...]:
    """The errors of outputs of a plan's networks for these inputs; of several networks the names of
    both begin with the network's own. None of networks that were planned in single precision.
    Raises ModelError where ONNX Runtime does not run a model."""
    found: list[PlanCheck] = []
    for named in plan.networks:
        if named.precision in SINGLE:
            continue
        network = networks[named.name]
        full = partial(_full, f"{named.name}/" if len(plan.networks) > 1 else "")
        given = {name: inputs[full(name)] for name in network.model.inputs}
        (theirs,) = contained.outputs_of(network.model.onnx_path, [given], network.weight_bytes)
        names = network.model.outputs
        error = compare_outputs([outputs[full(name)] for name in names], theirs, names)
        allowed = allowed_in(named)
        found.append(
            PlanCheck(
                network=named.name,
                precision=named.precision,
                max_rel_error=error.max_rel_error,
                sqnr_db=error.sqnr_db,
                output=error.output,
                allowed=allowed,
                right=error.max_rel_error <= allowed,
            )
        )
    return tuple(found)


def _full(prefix: str, name: str) -> str:
    return prefix + name


def told(check: PlanCheck) -> str:
    """A check in a sentence."""
    off = f"off by {check.max_rel_error:.2g} of the largest value"
    ratio = "" if check.sqnr_db is None else f", {shown.number(check.sqnr_db)} dB"
    most = "at most {:g} is allowed" if check.right else "more than the allowed {:g}"
    return (
        f"In {check.precision} {check.network} is {off} of what it is in float32{ratio}; "
        f"{most.format(check.allowed)}."
    )


def same_bits(answers: Sequence[Sequence[Array]]) -> bool:
    """Whether all of several runs gave the same arrays, bit for bit."""
    first = [(each.dtype, each.shape, each.tobytes()) for each in answers[0]]
    return all([(a.dtype, a.shape, a.tobytes()) for a in other] == first for other in answers[1:])


def same_kernels(plans: Sequence[NetworkPlan]) -> bool:
    """Whether calls have the same kernels in several plans of a network."""
    kernels = [{call.name: call.candidate for call in plan.calls} for plan in plans]
    return all(other == kernels[0] for other in kernels[1:])


def told_same(same: bool | None, *, other_kernels: bool) -> str:
    """Whether both ways give the same results, in a sentence; empty where one was not computed."""
    if same is None:
        return ""
    if same:
        return "Results are those of one call after the other, bit for bit."
    why = "calls have other kernels as planned" if other_kernels else "which they should not"
    return f"Results differ from those of one call after the other by rounding: {why}."
