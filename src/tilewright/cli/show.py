"""`tilewright show`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli import output, streams
from tilewright.cli.flags import SharedFlags, TargetOrArtifactFlags
from tilewright.cli.work import Work, working
from tilewright.core.errors import UsageError
from tilewright.report.escape import visible_lines
from tilewright.report.tables import Column, Table

_COLUMNS = tuple(Column(field=name, label=name) for name in ("name", "view", "text"))


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFlags:
    """What is shown, one of them."""

    graph: Annotated[
        bool, Parameter(help="Operators and tensors (default).", negative="", show_default=False)
    ] = False
    tir: Annotated[
        bool, Parameter(help="The scheduled loops.", negative="", show_default=False)
    ] = False
    asm: Annotated[bool, Parameter(help="The machine code.", negative="", show_default=False)] = (
        False
    )
    cuda: Annotated[
        bool, Parameter(help="CUDA C++, of a GPU's kernel.", negative="", show_default=False)
    ] = False
    ptx: Annotated[
        bool, Parameter(help="PTX, of a GPU's kernel.", negative="", show_default=False)
    ] = False
    sass: Annotated[
        bool, Parameter(help="The machine code of a GPU.", negative="", show_default=False)
    ] = False

    def chosen(self) -> str | None:
        """The one that was asked for, None where none was. Raises UsageError for several."""
        code = {"cuda": self.cuda, "ptx": self.ptx, "sass": self.sass}
        given = {"graph": self.graph, "tir": self.tir, "asm": self.asm, **code}
        asked = [view for view, wanted in given.items() if wanted]
        if len(asked) > 1:
            names = " and ".join(f"--{view}" for view in asked)
            raise UsageError(f"{names} exclude each other; choose one.")
        return asked[0] if asked else None


def show(
    name: Annotated[
        str,
        Parameter(help="A task's key from a report, op:conv2d[...], a model, or an artifact."),
    ],
    /,
    *,
    views: ViewFlags = ViewFlags(),
    target_flag: TargetOrArtifactFlags = TargetOrArtifactFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Show the kernels of a task or a model as a graph, as loops, or as code.

    For an artifact without a flag, show what it is: the network it was made from,
    its machine, its tasks and its files.
    """
    from tilewright.deploy.manifest import is_artifact

    view = views.chosen()
    with working(flags, target_flag) as work:
        if view is None and is_artifact(name):
            _tell_artifact(work, Path(name), verify=target_flag.verify)
            return
        view = view or "graph"
        work.session.verify = target_flag.verify
        record = {"name": name, "view": view, "text": work.session.show(name, view)}
        answer = output.Answer(
            command="show", data=record, rows=Table(columns=_COLUMNS, records=(record,))
        )
        if flags.format in ("json", "csv"):
            work.answer = answer
            return
    output.keep(replace(answer, warnings=work.warnings), flags)
    body = visible_lines(record["text"].rstrip("\n"))
    if flags.format == "md":
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
        body = f"{fence}\n{body}\n{fence}"
    streams.write_data(f"{body}\n")


def _tell_artifact(work: Work, folder: Path, *, verify: bool) -> None:
    from tilewright.deploy.manifest import is_shape_set
    from tilewright.deploy.opening import describe, describe_shapes
    from tilewright.report import islands
    from tilewright.report.artifacts import artifact_tables, artifact_tasks

    if is_shape_set(folder):
        work.tell("show", describe_shapes(folder, verify=verify))
        return
    result = describe(folder, verify=verify)
    work.answer = output.Answer(
        command="show",
        data=result,
        rows=artifact_tasks(result),
        tables=artifact_tables(result),
        remarks=islands.of_tasks(result.tasks),
        warnings=result.warnings,
    )
