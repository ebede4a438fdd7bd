"""`show`: what a task's kernel became."""

from __future__ import annotations

from tilewright.core import errors, processes
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Placement
from tilewright.deploy import manifest, opening
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.kernels import WORKER
from tilewright.models import ModelOptions
from tilewright.models.source import is_model_file
from tilewright.report.shown import brief
from tilewright.store.base import Store
from tilewright.store.known_candidates import allowed_outcomes, ranked

OF_GPUS = ("cuda", "ptx", "sass")
VIEWS = ("graph", "tir", "asm", *OF_GPUS)
_TIMEOUT_S = 120.0
_TARGET_ERROR = errors.TargetError.__name__


def show(
    name: str,
    view: str,
    placement: Placement,
    store: Store,
    seed: int,
    *,
    verify: bool = True,
) -> str:
    """Text for a task's key, or for each task of a model, a single operator or an artifact.

    An artifact's tasks are shown as it computes them; `verify` as in `load`. Raises UsageError for
    a view that is none of `VIEWS` or that the target has not, TargetError where a tool is missing
    that makes it.
    """
    if view not in VIEWS:
        raise errors.UsageError(f"unknown view {view!r}", hint=errors.close_matches(view, VIEWS))
    if view in OF_GPUS and placement.target.kind != "cuda":
        raise errors.UsageError(
            f"kernels for the {placement.target.model} have no view {view!r}",
            hint="--asm is machine code; --target 'cuda -model=H100' compiles for a GPU.",
        )
    workload = store.workload(name)
    if workload is not None:
        candidates = [(workload, _best(workload, store, placement))]
    else:
        candidates = _of_network(name, placement, store, ModelOptions(seed=seed), verify=verify)
    if view == "graph":
        return "\n\n".join(describe(w, c) for w, c in candidates)
    with processes.Child(WORKER) as child:
        try:
            return "\n\n".join(
                f"# {w.key}\n"
                + str(child.request(("render", w.text, c, placement, view), _TIMEOUT_S))
                for w, c in candidates
            )
        except (processes.RemoteError, processes.ChildError) as error:
            if isinstance(error, processes.RemoteError) and error.kind == _TARGET_ERROR:
                raise errors.TargetError(error.message) from error
            raise errors.TilewrightError(f"the kernel could not be built: {error}") from error


def _of_network(
    name: str, placement: Placement, store: Store, options: ModelOptions, *, verify: bool
) -> list[tuple[Workload, Candidate]]:
    """The distinct tasks of a network with the best known of each, or with what shipped."""
    if ":" not in name and not is_model_file(name) and not manifest.is_artifact(name):
        raise errors.UsageError(
            f"no task or model is called {name!r}",
            hint="Keys of tasks are in the report and in `tilewright profile --format "
            "json`; models are FILE.onnx, zoo:NAME, op:NAME[...] and others.",
        )
    network, artifact = opening.open_model(name, options, placement, verify=verify)
    if artifact is None:
        return [
            (t.workload, _best(t.workload, store, placement, t.forms))
            for t in network.tasks.values()
        ]
    plan = artifact.plan(network, placement)
    return [(task.workload, plan.candidates[key]) for key, task in plan.tasks.items()]


def _best(
    workload: Workload, store: Store, placement: Placement, forms: tuple[Form, ...] | None = None
) -> Candidate:
    """The fastest that is known of a workload, in these forms where some are given; the default
    where nothing is."""
    outcomes = allowed_outcomes(workload, store, placement)
    best = ranked([o for o in outcomes if forms is None or o.candidate.forms == forms])
    if best:
        return best[0].candidate
    plain = (PLAIN,) * (len(workload.arguments) + 1)
    return default_candidate(workload, plain if forms is None else forms, placement)[0]


def describe(workload: Workload, candidate: Candidate) -> str:
    """A workload as text: arguments, steps, and what was chosen for it."""
    arguments = zip(workload.arguments, candidate.forms, strict=False)
    lines = [
        f"task {workload.key}",
        *(f"  %{n} = {each.role} {each.type} {form}" for n, (each, form) in enumerate(arguments)),
    ]
    for index, step in enumerate(workload.steps):
        value = len(workload.arguments) + index
        inputs = ", ".join(f"%{i}" for i in step.inputs)
        named = ", ".join(f"{key}={item}" for key, item in step.attributes if key != "model")
        mark = "  # anchor" if index == workload.anchor_index else ""
        kind = workload.types[value]
        lines.append(f"  %{value} = {step.operator}({inputs}; {named}) -> {kind}{mark}")
    settings = ", ".join(f"{key}={brief(value)}" for key, value in candidate.settings)
    lines += [
        f"  result layout {candidate.forms[-1]}",
        f"  {candidate.implementation}: {settings or 'no knobs'}",
        f"  {workload.flop} FLOP, {workload.bytes} bytes",
    ]
    return "\n".join(lines)
