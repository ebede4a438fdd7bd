"""`tilewright show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilewright.cli.flags import SharedFlags, TargetOrArtifactFlags
from tilewright.cli.output import Answer, emit, keep
from tilewright.cli.streams import write_data
from tilewright.cli.warn import warn
from tilewright.cli.work import working
from tilewright.core.errors import UsageError
from tilewright.report.escape import visible_lines
from tilewright.report.tables import Column, Table

View = Literal["graph", "tir", "asm"]
_COLUMNS = tuple(Column(field=name, label=name) for name in ("name", "view", "text"))


def show(
    name: Annotated[
        str,
        Parameter(help="A task's key from a report, op:conv2d[...], a model, or an artifact."),
    ],
    /,
    *,
    graph: Annotated[
        bool, Parameter(help="Operators and tensors (default).", negative="", show_default=False)
    ] = False,
    tir: Annotated[
        bool, Parameter(help="The scheduled loops.", negative="", show_default=False)
    ] = False,
    asm: Annotated[
        bool, Parameter(help="The machine code.", negative="", show_default=False)
    ] = False,
    target_flag: TargetOrArtifactFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Show what a task or a model became: its graph, its loops, its machine code.

    Of an artifact, without a view: what it is, made from what, for which machine.
    """
    flags, target_flag = flags or SharedFlags(), target_flag or TargetOrArtifactFlags()
    from tilewright.deploy.manifest import is_artifact

    view = _view(graph=graph, tir=tir, asm=asm)
    if view is None and is_artifact(name):
        return _show_artifact(name, target_flag, flags)
    view = view or "graph"
    with working(flags, target=target_flag.target, tracker=target_flag.tracker) as work:
        work.session.verify = target_flag.verify
        text = work.session.show(name, view)
    record = {"name": name, "view": view, "text": text}
    answer = Answer(
        command="show",
        data=record,
        rows=Table(columns=_COLUMNS, records=(record,)),
        warnings=work.warnings,
    )
    if flags.format in ("json", "csv"):
        emit(answer, flags)
        return 0
    keep(answer, flags)
    body = visible_lines(text.rstrip("\n"))
    if flags.format == "md":
        fence = "`" * max(3, _longest_fence(body) + 1)
        body = f"{fence}\n{body}\n{fence}"
    write_data(f"{body}\n")
    return 0


def _show_artifact(name: str, target_flag: TargetOrArtifactFlags, flags: SharedFlags) -> int:
    from tilewright.deploy.describing import describe
    from tilewright.report.artifacts import artifact_tables, artifact_tasks

    result = describe(Path(name), verify=target_flag.verify)
    answer = Answer(
        command="show",
        data=result,
        rows=artifact_tasks(result),
        tables=artifact_tables(result),
        warnings=result.warnings,
    )
    emit(answer, flags)
    for warning in result.warnings:
        warn(warning)
    return 0


def _view(*, graph: bool, tir: bool, asm: bool) -> View | None:
    asked: list[View] = []
    if graph:
        asked.append("graph")
    if tir:
        asked.append("tir")
    if asm:
        asked.append("asm")
    if len(asked) > 1:
        names = " and ".join(f"--{view}" for view in asked)
        raise UsageError(f"{names} exclude each other; choose one.")
    return asked[0] if asked else None


def _longest_fence(text: str) -> int:
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return longest
