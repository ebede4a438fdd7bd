"""Plans over several devices, and of several networks: served, and run once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self, get_args

from msgspec import structs

from tilewright.core import arguments
from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink
from tilewright.core.schedules import PlanCheck, RunMode, ScheduledSlot, ScheduledTransfer
from tilewright.core.scratch import scratch_folder
from tilewright.deploy.network_calls import ordered_inputs
from tilewright.deploy.plan_checks import checked, told_same
from tilewright.deploy.plan_parts import PlanParts
from tilewright.deploy.planned_network import (
    PlannedNetwork,
    beside_its_plan,
    is_for_one_process,
    planned_network,
)
from tilewright.graph.network import Array
from tilewright.kernels.base import CPU
from tilewright.plan.scheduling.plan_file import Plan
from tilewright.serving.flows import Span
from tilewright.serving.instance import Supervision
from tilewright.serving.plan_crew import PlanCrew
from tilewright.serving.planned_networks import PlannedNetworks
from tilewright.serving.server import Server, ServerOptions
from tilewright.store.base import Store

SUPERVISION = Supervision(starts=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """How a plan is carried out: in which mode (see `PlanCrew`), which is measured with so many
    requests `together`; who knows its remote devices, if not whom it names; and whether a network
    that is in it several times is served under one name, `grouped`."""

    mode: RunMode = "auto"
    together: int = 3
    tracker: str | None = None
    grouped: bool = True


class PlanServer(Server):
    """A server of the networks of a plan, which are computed in parts. Raises as `PlanParts`
    does."""

    def __init__(self, plan: Plan, store: Store, terms: PlanTerms, options: ServerOptions) -> None:
        folder, sink = scratch_folder(), options.events
        try:
            parts = PlanParts(plan, store, folder.path, tracker=terms.tracker, events=sink)
            self.prepared = {name: parts.network(name) for name in parts.names}
            networks = PlannedNetworks(parts, grouped=terms.grouped)
            self.crew = PlanCrew(parts, networks, terms.mode, folder, terms.together)
            super().__init__(networks.groups, self.crew, options)
        except BaseException:
            folder.close()
            raise


class PlannedRun:
    """The networks of a plan, ready to run beside each other as it says, each once.

    `inputs` are their inputs; of several networks the name of each is before those of its own,
    "resnet18/input". `mode` is how they run, "parallel" or "sequential", `times_s` are the medians
    of both where both were timed, and `choice` says so; `same` says whether both gave the same
    results on drawn inputs, bit for bit, None where there was one way, or where no difference is
    known but outputs of sizes that inputs decide were not compared. `close` ends its processes.
    """

    def __init__(
        self, plan: Plan, store: Store, mode: RunMode, tracker: str | None, events: EventSink
    ) -> None:
        self._plan = plan
        options = ServerOptions(queue=64, supervision=SUPERVISION, events=events)
        terms = PlanTerms(mode=mode, together=1, tracker=tracker, grouped=False)
        self._server = PlanServer(plan, store, terms, options)
        self.mode, self.times_s = self._server.crew.mode, self._server.crew.times_s
        self.same = self._server.crew.same
        told = told_same(self.same, other_kernels=True)
        self.choice = f"{self._server.choice} {told}".strip()
        self._ports = [
            structs.replace(port, name=self._full(name, port.name))
            for name, each in self._server.networks.items()
            for port in each.inputs
        ]
        self.inputs = tuple(port.name for port in self._ports)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _full(self, network: str, tensor: str) -> str:
        return f"{network}/{tensor}" if len(self._plan.networks) > 1 else tensor

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run every network once on inputs by name; returns outputs by name. Raises UsageError for
        a wrong name, shape or type, InputError for an index out of range, RequestFailed where no
        process is left that computes them."""
        arrays = iter(ordered_inputs(self._ports, arguments.named_of(inputs, "inputs")))
        crew, networks = self._server.crew, self._server.networks
        crew.spans.clear()
        crew.gather(len(networks))
        try:
            answers = {
                name: self._server.submit(name, {port.name: next(arrays) for port in served.inputs})
                for name, served in networks.items()
            }
        except BaseException:
            crew.gather(0)
            raise
        found: dict[str, Array] = {}
        for name, answer in answers.items():
            names, result = self._server.networks[name].outputs, answer.result()
            given = {names[0].name: result} if len(names) == 1 else result
            found |= {self._full(name, tensor): array for tensor, array in given.items()}
        return found

    def checked(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> tuple[PlanCheck, ...]:
        """The errors of outputs for these inputs against float32, of networks that were planned in
        another precision. Raises ModelError where ONNX Runtime does not run a model."""
        return checked(self._plan, self._server.prepared, inputs, outputs)

    def traced(self) -> str:
        """The plan and the last run beside each other, as a trace for Perfetto: parts, and the
        copies of tensors to and from GPUs."""
        spans = list(self._server.crew.spans)
        ran = [
            ScheduledSlot(
                call=span.part,
                network=span.network,
                device=span.place[0],
                cores=span.place[1],
                begin_s=span.begin_s,
                end_s=span.end_s,
            )
            for span in spans
        ]
        return beside_its_plan(self._plan, ran, [way for span in spans for way in self._ways(span)])

    def _ways(self, span: Span) -> Iterator[ScheduledTransfer]:
        """What was copied for a part, by the names of the calls that made it, from the host or to
        it; nothing where the plan has no host."""
        host = next((each.name for each in self._plan.problem.devices if each.kind in CPU), "")
        for copy in span.copies if host else ():
            ends = (host, span.place[0]) if copy.to_device else (span.place[0], host)
            yield ScheduledTransfer(
                call=self._full(
                    span.network, self._server.crew.maker_of(span.network, copy.tensor)
                ),
                origin=ends[0],
                destination=ends[1],
                begin_s=copy.begin_s,
                end_s=copy.end_s,
            )

    def close(self) -> None:
        """End all processes."""
        self._server.close()


def opened_plan(
    plan: Plan, store: Store, mode: RunMode, tracker: str | None, events: EventSink
) -> PlannedNetwork | PlannedRun:
    """The networks of a plan, ready to run: one of this CPU, each call on one core or on all, in
    this process, others in parts. Raises UsageError for an unknown mode, and as `planned_network`
    and `PlanParts` do."""
    if mode not in get_args(RunMode):
        known = ", ".join(get_args(RunMode))
        raise UsageError(f"no mode is called {mode!r}.", hint=f"Known: {known}.")
    if plan.networks and not is_for_one_process(plan):
        return PlannedRun(plan, store, mode, tracker, events)
    return planned_network(plan, store, mode=mode)
