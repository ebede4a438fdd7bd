"""Verbs about what runs where: plan it, and see what would become of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from tilewright.core.arguments import (
    Error,
    Text,
    named_of,
    one_of,
    path_of,
    path_or_none,
    texts_of,
    truth_of,
)
from tilewright.core.schedules import RunMode, ScheduleResult, Second
from tilewright.deploy import planning, simulating
from tilewright.deploy.planned_network import PlannedNetwork
from tilewright.models import ModelOptions
from tilewright.models.given import Model, several_models
from tilewright.plan.network_scheduling import Wanted
from tilewright.plan.scheduling.plan_file import Plan, read_plan
from tilewright.serving.plan_serving import PlannedRun, opened_plan
from tilewright.session.forecasts import Names
from tilewright.session.opened import Opened


class PlanWishes(TypedDict, total=False):
    """The arguments that `plan` takes beside what it plans.

    `planner` is a name, and one that searches takes that many `seconds` at most; a `robust` one
    counts with the upper ends of predicted intervals; with `merge` calls that compute alike from
    one tensor may become one. `front` is what is weighed against latency, "energy", "price" or
    "memory": the answer has that front, for which there are up to eight searches of so many seconds
    more. `wanted` says what is to be least within which limits. `tables` are files of what calls
    take on devices of which nothing else is known (docs/reference/scheduling-problem.md), by the
    names of these. With `time_calls` the network, one on this CPU, is compiled, and its calls are
    timed in their places. `options`, `settings` and `max_error` are those of `predict`. The plan is
    written to the folder `out`, with a page and a trace. None is the default of each.
    """

    planner: str | None
    seconds: int | None
    robust: bool | None
    front: Second | None
    wanted: Wanted | None
    tables: Mapping[str, Text] | None
    time_calls: bool | None
    merge: bool | None
    options: ModelOptions | None
    settings: str | None
    max_error: Error | None
    out: Text | None


class PlanVerbs(Opened):
    """`plan`, `simulate`, `run` of a plan."""

    def plan(
        self,
        what: Model | Sequence[Model],
        devices: Names = (),
        **wishes: Unpack[PlanWishes],
    ) -> ScheduleResult:
        """Plan when each call runs, where, on which cores. Measures `time_calls` and links.

            session.plan("zoo:googlenet", ["llvm", "cuda -model=H100"], out="plan").latency_s

        `what` is one model or several, which run at a time, each once, or the file of a scheduling
        problem (.json, without `devices`). Models are planned in the precision of `options`,
        folders that `optimize` wrote as they were compiled. `devices` are targets, by default the
        session's, which need not be here; "8*cuda -model=H100" are eight. The wishes are
        arguments by name, and `PlanWishes` says what each is.

        Raises `ModelError` for a file that is no problem or limits that no schedule can keep,
        `NegativeVerdict` where the planner found none that keeps them, `TargetError` for no device.
        """
        said = {name: wish for name, wish in wishes.items() if wish is not None}
        request = planning.request_of(said)
        timed = truth_of(said.get("time_calls", False), "time_calls")
        models, names = several_models(what), texts_of(devices, "devices")
        options = self._said(wishes.get("options"), wishes.get("max_error"))
        wanted = one_of(said.get("wanted", Wanted()), "wanted", Wanted, "a Wanted(…)")
        given = named_of(said.get("tables", {}), "tables")
        if not names and not given and len(models) == 1 and str(models[0]).endswith(".json"):
            planning.refuse_precision(options)
            return planning.plan_problem(path_of(models[0], "what"), request, wanted, timed=timed)
        networks = planning.Networks(
            models=tuple(self._given(model, options).argument for model in models),
            devices=planning.devices_of(
                names or (self._target,), given, self._tracker, self._threads
            ),
            predicted=planning.predicted_with(
                options, wishes.get("settings"), wishes.get("max_error"), timed=timed
            ),
            wanted=wanted,
        )
        return planning.plan_networks(networks, request, self.records, self.events)

    def open_plan(
        self, plan: Text | Plan, *, mode: RunMode = "auto"
    ) -> PlannedNetwork | PlannedRun:
        """Compile the networks of a plan (its place, or what was read), to be called right away.

            with session.open_plan("plan") as networks:
                outputs = networks.run({"resnet18/input": array, "mobilenet_v2/input": other})

        One network on this CPU runs in this process; otherwise a process for each device and set of
        cores computes parts. In the `mode` "parallel" all runs as planned, in "sequential" one call
        after the other on the device that is fastest alone; "auto" keeps the faster one. Raises
        `ModelError` for what is no plan of networks, `TargetError` for devices that are not there.
        """
        saved = plan if isinstance(plan, Plan) else read_plan(path_of(plan, "plan"))
        return opened_plan(saved, self.records, mode, self._tracker, self.events)

    def simulate(
        self,
        plan: Text,
        *,
        times_s: Mapping[str, float] | Text | None = None,
        upper: bool = False,
        slower: Mapping[str, float] | None = None,
        out: Text | None = None,
    ) -> ScheduleResult:
        """Carry a plan out in thought, with other times than it was made for.

        `plan` is a file or folder that `plan` wrote. Calls take `times_s` seconds by their names,
        which may be a file {"conv1": 9e-05, …}, with `upper` the upper ends of their intervals, and
        on the devices that `slower` names so many times as long. A page and a trace of both are
        written to the folder `out`.
        """
        otherwise = simulating.Otherwise(
            times_s=simulating.times_of(times_s),
            upper=truth_of(upper, "upper"),
            slower=named_of(slower or {}, "slower"),
        )
        return simulating.simulate_plan(path_of(plan, "plan"), otherwise, path_or_none(out, "out"))
