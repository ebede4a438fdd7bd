"""The API reference, docs/reference/api, made from the docstrings of what packages may import.

    python benchmarks/api_reference.py            # write the pages
    python benchmarks/api_reference.py --check    # say which pages are out of date, and exit with 1

Sources are read by griffe (`pip install '.[docs]'`) and not imported, so nothing is run or timed.
What a page holds is named in `PAGES`: add a name there, or a docstring in the sources, and run the
command again. tests/unit/test_api_reference.py fails while a page differs from the docstrings.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import griffe

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference" / "api"
COMMAND = "python benchmarks/api_reference.py"
WIDTH = 88

Sections = Mapping[str, tuple[str, ...]]
"""Headings of a page, with paths below `tilewright`; one that ends in `.*` is a whole module."""

PAGES: Mapping[str, tuple[str, str, Sections]] = {
    "tilewright": (
        "API: using tilewright",
        "Open a session, call a verb, use its result: [Python](../python.md) shows how by example.",
        {
            "Sessions": ("session.open", "session.Session"),
            "Arguments of the verbs": (
                "models.loaded.ModelOptions",
                "models.shape_grid.ShapeGrid",
                "deploy.wishes.Wishes",
                "search.levels.GraphLevel",
                "collect.design.Design",
                "insight.core_design.CoresDesign",
                "insight.evaluating.EvaluateRequest",
            ),
            "Compiled networks": (
                "deploy.shipment.OptimizedNetwork",
                "deploy.artifact.load",
                "deploy.artifact.Artifact",
                "deploy.several_shapes.OptimizedShapes",
                "deploy.artifact.ShapedArtifact",
                "deploy.shape_set.Choice",
                "deploy.compiling.compile",
                "deploy.compiling.CompiledNetwork",
                "deploy.decoding.decoder",
                "deploy.decoding.Decoder",
            ),
            "Serving": ("serving.serve.serve", "serving.server.Server", "serving.requests.Answer"),
            "Results": (
                "core.results.*",
                "core.comparisons.*",
                "core.neighbours.*",
                "core.artifacts.ShapesResult",
                "core.artifacts.ShapeRow",
            ),
            "Results about predictions": (
                "core.predictions.*",
                "core.sufficient_cores.*",
                "core.planning.*",
                "core.schedules.*",
                "predict.evaluation.Evaluation",
            ),
            "Results about serving": ("core.serving.*",),
            "Cards": ("report.predictor_cards.write_cards",),
            "Progress": ("core.events.*",),
            "Errors": (
                "core.errors.TilewrightError",
                "core.errors.UsageError",
                "core.errors.TargetError",
                "core.errors.ModelError",
                "core.errors.InputError",
                "core.errors.OutputError",
                "core.errors.StoreError",
                "core.errors.NegativeVerdict",
                "core.errors.InternalError",
                "core.refusals.*",
            ),
        },
    ),
    "values": (
        "API: values that everything trades in",
        "Frozen values: where kernels run, what a kernel is made of, what came of measuring it.",
        {
            "Devices and placements": (
                "core.records.Device",
                "core.records.Placement",
                "core.records.PlacementKey",
                "core.targets.*",
            ),
            "Forms and element types": (
                "core.forms.*",
                "core.layouts.Layout",
                "core.element_types.ElementType",
                "core.element_types.element_type",
                "core.element_types.element_types",
            ),
            "Candidates and outcomes": (
                "core.records.Candidate",
                "core.records.Protocol",
                "core.records.Measurement",
                "core.records.Failure",
                "core.records.EnergyUse",
            ),
            "Plans": ("graph.plan.NetworkPlan", "graph.plan_result.PlanResult"),
        },
    ),
    "plug-ins": (
        "API: what plug-ins implement",
        "A plug-in is an object with the methods of one of these protocols, which needs no base "
        "class, announced as [plug-ins](../plug-ins.md) says.",
        {
            "Implementations": ("kernels.base.*", "cost.demand.Demand"),
            "Tuners": ("search.tuners.base.*",),
            "Accesses": ("measure.accesses.base.Access", "measure.base.Measurer"),
            "Builders": ("compiler.builders.base.Builder", "compiler.builders.base.Kernel"),
            "Meters": ("hardware.meters.base.*",),
            "Peers": ("measure.peers.base.*", "measure.peers.engine.Engine"),
            "Solvers": (
                "plan.assignment.solution.*",
                "plan.assignment.problem_file.read_problem",
                "plan.assignment.solving.solve",
            ),
            "Planners": (
                "plan.planners.Planner",
                "plan.planners.planned",
                "plan.planners.planner_named",
            ),
            "Planners of schedules": (
                "plan.scheduling.scheduler.*",
                "plan.scheduling.parts.*",
                "plan.scheduling.problem.SchedulingProblem",
                "plan.scheduling.schedule.*",
                "plan.scheduling.faults.faults",
                "plan.scheduling.measures.*",
                "plan.scheduling.decoding.decode",
                "plan.scheduling.planning.schedule_with",
                "plan.scheduling.simulator.simulate",
            ),
            "Stores": ("store.base.Store", "store.base.Archive", "store.open_store"),
        },
    ),
    "kernels": (
        "API: what kernels are written with",
        "Specs and lowerings share these. By example: [adding an implementation]"
        "(../adding-an-implementation.md), [a lowering with an anchor]"
        "(../lowering-with-an-anchor.md).",
        {
            "Workloads": (
                "graph.workload.Workload",
                "graph.workload.Argument",
                "graph.workload.Step",
                "graph.network.TensorType",
                "kernels.base.anchored",
            ),
            "Specs": (
                "kernels.streaming.*",
                "kernels.columns.column",
                "kernels.columns.chosen",
                "kernels.ports.plain_ports",
                "kernels.ports.alike_ports",
                "kernels.ports.anchored_ports",
            ),
            "Products in register tiles": (
                "kernels.register_tile.*",
                "kernels.matrix_products.MatrixProduct",
                "kernels.matrix_products.product",
                "kernels.matrix_products.batch_product",
            ),
            "Programs": ("compiler.lower.program.Program", "compiler.lower.values.Value"),
            "Scheduling moves": (
                "compiler.lower.loops.*",
                "compiler.lower.dense_packed.vectorize_columns",
            ),
            "Estimates": ("kernels.spaces.ranked_defaults", "kernels.estimates.facts"),
        },
    ),
    "testing": (
        "API: suites for plug-ins",
        "Each suite is a class for pytest, whose attributes name what is checked, and functions "
        "that run one check or all of them.",
        {
            "Implementations": ("testing.implementations.*",),
            "Tuners": ("testing.tuners.*", "testing.landscapes.*"),
            "Accesses": ("testing.accesses.*",),
            "Builders": ("testing.builders.*",),
            "Meters": ("testing.meters.*",),
            "Peers": ("testing.peers.*",),
            "Solvers": ("testing.solvers.*",),
            "Planners": ("testing.planners.*",),
            "Planners of schedules": ("testing.schedulers.*",),
            "Stores": ("testing.stores.*", "testing.records.*"),
            "CUDA text": (
                "testing.cuda_execution.*",
                "hardware.gpus.CudaLaunch",
                "hardware.gpus.CudaProgram",
                "compiler.cuda.launches.cuda_program",
            ),
        },
    ),
}


def api_pages() -> dict[Path, str]:
    """Each page's path and text, from the docstrings as they are now."""
    package = griffe.load("tilewright", search_paths=[ROOT / "src"], resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    return {
        FOLDER / f"{name}.md": "\n\n".join(_page(package, *described)) + "\n"
        for name, described in PAGES.items()
    }


def _page(package: griffe.Module, title: str, about: str, sections: Sections) -> Iterator[str]:
    yield f"<!-- Made by `{COMMAND}` from docstrings; do not edit. -->"
    yield f"# {title}"
    yield about
    for heading, paths in sections.items():
        yield f"## {heading}"
        for path in paths:
            for item in _items(package, path):
                yield from _item(item)


def _items(package: griffe.Module, path: str) -> list[griffe.Class | griffe.Function]:
    """The classes and functions that a path stands for, a module's in the order of its source."""
    if not path.endswith(".*"):
        return [_resolved(package[path])]
    module = package[path.removesuffix(".*")]
    found = [
        _resolved(member)
        for name, member in module.members.items()
        if not name.startswith("_") and not member.is_alias
        if member.is_class or member.is_function
    ]
    return sorted(found, key=lambda item: item.lineno or 0)


def _resolved(item: griffe.Object | griffe.Alias) -> griffe.Class | griffe.Function:
    final = item.final_target if isinstance(item, griffe.Alias) else item
    return cast("griffe.Class | griffe.Function", final)


def _item(item: griffe.Class | griffe.Function) -> Iterator[str]:
    yield f"### `{item.name}`"
    yield f"`{_import(item)}`"
    if isinstance(item, griffe.Function):
        yield _code(_signature(item))
        yield _text(item)
        return
    if _is_called(item):
        yield _code(_signature(item))
    yield _text(item)
    yield from _members(item)


def _import(item: griffe.Object) -> str:
    """The statement that imports it, from `tilewright` itself where it is offered there."""
    package = cast("griffe.Module", item.package)
    home = item.path.rpartition(".")[0]
    offered = package.members.get(item.name)
    if offered is not None and offered.is_alias and offered.final_target is item:
        home = "tilewright"
    return f"from {home} import {item.name}"


def _is_called(item: griffe.Class) -> bool:
    """Whether making one is a caller's business and not that of a protocol or a suite."""
    bases = {str(base).rpartition(".")[2] for base in item.bases}
    return not bases & {"Protocol", "ABC", "TypedDict"} and bool(list(item.parameters)[1:])


def _members(item: griffe.Class) -> Iterator[str]:
    members = sorted(
        (member for member in item.all_members.values() if _is_shown(member)),
        key=lambda member: (not member.is_attribute, _depth(item, member), member.lineno or 0),
    )
    for member in members:
        final = cast("griffe.Object", member.final_target if member.is_alias else member)
        if isinstance(final, griffe.Function):
            yield f"#### `{item.name}.{final.name}`"
            yield _code(_signature(final))
            yield _text(final)
        elif "property" in final.labels or (final.docstring and final.name not in _fields(item)):
            yield f"#### `{item.name}.{final.name}`"
            yield _code(_attribute(final))
            yield _text(final)


def _is_shown(member: griffe.Object | griffe.Alias) -> bool:
    """Public, or a call; with a docstring, without which there is nothing to tell."""
    final = member.final_target if isinstance(member, griffe.Alias) else member
    public = not final.name.startswith("_") or final.name == "__call__"
    return public and final.docstring is not None and not final.is_class


def _depth(item: griffe.Class, member: griffe.Object | griffe.Alias) -> int:
    """Which base a member comes from: its own come first."""
    final = member.final_target if isinstance(member, griffe.Alias) else member
    homes = [item.path, *(base.path for base in item.mro())]
    home = cast("griffe.Class", final.parent).path
    return homes.index(home) if home in homes else len(homes)


def _fields(item: griffe.Class) -> set[str]:
    return {parameter.name for parameter in item.parameters}


def _attribute(item: griffe.Object) -> str:
    found = cast("griffe.Attribute", item)
    return found.name if found.annotation is None else f"{found.name}: {found.annotation}"


def _signature(item: griffe.Class | griffe.Function) -> str:
    """A call as it is written, on one line where it fits, else an argument per line."""
    returns = "" if isinstance(item, griffe.Class) or not item.returns else f" -> {item.returns}"
    method = isinstance(item, griffe.Class) or cast("griffe.Object", item.parent).is_class
    static = "staticmethod" in item.labels
    parameters = list(item.parameters)[1 if method and not static else 0 :]
    written = list(_parameters(parameters))
    line = f"{item.name}({', '.join(written)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{item.name}(", *(f"    {each}," for each in written), f"){returns}"])


def _parameters(parameters: list[griffe.Parameter]) -> Iterator[str]:
    kinds = griffe.ParameterKind
    before: griffe.ParameterKind | None = None
    for parameter in parameters:
        if before is kinds.positional_only and parameter.kind is not before:
            yield "/"
        if parameter.kind is kinds.keyword_only and before not in (
            kinds.keyword_only,
            kinds.var_positional,
        ):
            yield "*"
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(parameter.kind, "")
        typed = f": {parameter.annotation}" if parameter.annotation is not None else ""
        given = parameter.default is not None and not stars
        equals = " = " if typed else "="
        yield f"{stars}{parameter.name}{typed}" + (f"{equals}{parameter.default}" if given else "")
        before = parameter.kind


def _code(text: str) -> str:
    return f"```py\n{text}\n```"


def _text(item: griffe.Object) -> str:
    """The docstring as Markdown; `<` begins no tag."""
    text = item.docstring.value if item.docstring is not None else ""
    return text.replace("<", "&lt;") if "`" not in text else text


def main() -> int:
    """Write what changed, or only say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [
        (path, text)
        for path, text in api_pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in stale:
        print(f"{path.relative_to(ROOT)} is out of date" + ("" if check else ": written"))
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
