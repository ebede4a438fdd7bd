"""Plans whose calls run side by side, from one whose calls run one after the other.

    conv1, (a1 a2 | b1), concat   →   main: conv1, concat; core 0: a1, a2; core 1: b1

A *stage* is a call of the main lane, which has all cores, or several calls in lanes of one core
each. A stage begins when the one before has ended: that is what the calls wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.core.errors import InternalError
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources
from tilewright.graph.inputs import argument_uses
from tilewright.graph.plan import MAIN, Lane, NetworkPlan, PlannedCall
from tilewright.kernels.base import OtherBuilder
from tilewright.kernels.plans import with_each
from tilewright.kernels.registry import implementation

Stage = str | Sequence[Sequence[str]]
"""The name of a call, or those of each lane's calls."""

ONE_CORE = Resources(cores=1, threads=1)


def core_lane(number: int) -> str:
    """The name of a lane of one core."""
    return f"core {number}"


def may_run_beside(call: PlannedCall) -> bool:
    """Whether a call may be in a lane of one core: its kernel is in the compiled network, its shape
    is known, and it reads no indices, which are checked before a stage begins."""
    inside = not isinstance(implementation(call.candidate.implementation), OtherBuilder)
    checked = any(use.port not in call.constants for use in argument_uses(call.workload))
    return inside and call.workload.result.is_static and not checked


def in_stages(
    plan: NetworkPlan, stages: Sequence[Stage], on_one_core: Mapping[str, Candidate]
) -> NetworkPlan:
    """The plan with its calls in these stages, which name each of them once and keep every wait;
    `on_one_core` has the candidates of those beside others, in the forms that they have."""
    widest = max((len(each) for each in stages if not isinstance(each, str)), default=0)
    main = plan.only_lane
    beside = {core_lane(n): Lane(device=main.device, resources=ONE_CORE) for n in range(widest)}
    chosen = with_each(replace(plan, lanes={MAIN: main}), on_one_core)
    calls = {call.name: call for call in chosen.calls}
    placed, last = list[PlannedCall](), dict[str, str]()
    for stage in stages:
        lanes = {MAIN: [stage]} if isinstance(stage, str) else _named(stage)
        alone = [n for names in lanes.values() for n in names if not may_run_beside(calls[n])]
        if MAIN not in lanes and alone:
            raise InternalError(f"call {alone[0]!r} cannot run beside others")
        ended = {name: lane for lane, name in last.items()}
        last = dict[str, str]()
        for lane, names in lanes.items():
            for name in names:
                after = tuple(n for n in ended if ended[n] != lane) if name == names[0] else ()
                placed.append(replace(calls[name], lane=lane, after=after))
            last[lane] = names[-1]
    return replace(chosen, calls=tuple(placed), lanes={MAIN: main, **beside})


def _named(stage: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    return {core_lane(number): list(names) for number, names in enumerate(stage) if names}
