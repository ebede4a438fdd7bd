"""`tilewright run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tilewright.cli.arrays import describe, file_names, read_inputs, write_array
from tilewright.cli.flags import TargetOrArtifactFlags, ThreadedFlags
from tilewright.cli.output import Answer
from tilewright.cli.work import working
from tilewright.core.errors import UsageError
from tilewright.report import shown
from tilewright.report.tables import Column, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COLUMNS = (
    Column(field="name", label="output"),
    Column(field="shape", label="shape", show=lambda shape: "×".join(map(str, shape)) or "scalar"),
    Column(field="dtype", label="type"),
    Column(field="min", label="smallest", show=shown.number, number=True),
    Column(field="max", label="largest", show=shown.number, number=True),
    Column(field="mean", label="mean", show=shown.number, number=True),
    Column(field="not_finite", label="NaN or Inf", number=True),
    Column(field="file", label="file"),
)


def run(
    artifact: Annotated[Path, Parameter(help="The folder that optimize wrote.")],
    /,
    *,
    input: Annotated[
        tuple[str, ...],
        Parameter(
            help="An array file, x.npy, or NAME=x.npy; repeat for several inputs. Without names "
            "the order is the model's.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    target_flag: TargetOrArtifactFlags = TargetOrArtifactFlags(),
    flags: ThreadedFlags = ThreadedFlags(),
) -> None:
    """Run a compiled network on arrays from files and keep its outputs as .npy files.

    They go to --out, by default ./tilewright-out/NAME/outputs. What was made for rpc:KEY runs on
    such a board with the same --target and --tracker.
    """
    if not input:
        raise UsageError(
            "run needs the model's inputs.", hint="--input x.npy or --input NAME=x.npy"
        )
    arrays = _by_name(read_inputs(input), artifact, verify=target_flag.verify)
    with working(flags, target_flag) as work:
        work.session.verify = target_flag.verify
        outputs = work.session.run(artifact, arrays)
        name = artifact.resolve().name or "artifact"
        records = _write(outputs, flags.out or Path("tilewright-out") / name / "outputs")
        work.answer = Answer(
            command="run",
            data={"artifact": str(artifact), "outputs": records},
            rows=Table(columns=_COLUMNS, records=tuple(records), title="Outputs"),
            saved=False,
        )


def _by_name(
    arrays: Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]],
    artifact: Path,
    *,
    verify: bool,
) -> Mapping[str, NDArray[Any]]:
    """Arrays without names take those of the artifact's inputs, in order."""
    if isinstance(arrays, Mapping):
        return arrays
    from tilewright.deploy.manifest import read_manifest

    manifest = read_manifest(artifact, verify=verify)
    names = [port.name for port in manifest.inputs]
    if len(names) != len(arrays):
        raise UsageError(
            f"The network has {len(names)} inputs, {len(arrays)} were given.",
            hint="Its inputs: " + ", ".join(repr(name) for name in names),
        )
    return dict(zip(names, arrays, strict=True))


def _write(outputs: Mapping[str, NDArray[Any]], folder: Path) -> Sequence[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for (name, array), file in zip(outputs.items(), file_names(outputs), strict=True):
        path = folder / file
        write_array(path, array)
        records.append({"name": name, **describe(array), "file": str(path)})
    return records
