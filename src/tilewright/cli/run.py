"""`tilewright run`: arrays from .npy files, and to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from tilewright.cli.flags import TargetFlag, TargetOrArtifactFlags, ThreadedFlags
from tilewright.cli.output import Answer
from tilewright.cli.work import working
from tilewright.core import errors, input_files
from tilewright.core.codec import to_builtins
from tilewright.core.events import Note
from tilewright.core.output_files import replacing, write_text
from tilewright.core.schedules import RunMode, is_plan
from tilewright.core.units import parse_duration
from tilewright.report import shown
from tilewright.report.tables import Column, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.deploy.plan_models import LoadedPlan

Given: TypeAlias = "Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]]"
"""Arrays by name, or in the order of the inputs."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-][^A-Za-z0-9._-]*|[^A-Za-z0-9._-]+")
_LONGEST = 100
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


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """What is for plans alone."""

    mode: Annotated[
        RunMode | None,
        Parameter(
            help="Of a plan: sequential, parallel as it says, or auto, the faster of both "
            "[default: auto].",
            show_default=False,
        ),
    ] = None
    trace: Annotated[
        Path | None,
        Parameter(
            help="Of a plan: a file in which the plan and the run are beside each other, for "
            "Perfetto (.json).",
            show_default=False,
        ),
    ] = None


def run(
    artifact: Annotated[Path, Parameter(help="The folder that optimize or plan wrote.")],
    /,
    *,
    input: Annotated[
        tuple[str, ...],
        Parameter(
            help="An array file, x.npy, or NAME=x.npy; repeat for several inputs. Without names "
            "they are given in the model's order.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    limit: Annotated[
        str | None,
        Parameter(
            help="The longest that all of it may take, compiling included (20s, 5m); then it is "
            "ended, with exit code 1.",
            show_default=False,
        ),
    ] = None,
    plan_flags: PlanFlags = PlanFlags(),
    target_flag: TargetOrArtifactFlags = TargetOrArtifactFlags(),
    flags: ThreadedFlags = ThreadedFlags(),
) -> None:
    """Run a compiled network on arrays from files and keep its outputs as .npy files.

    The outputs go to --out, by default ./tilewright-out/NAME/outputs. An artifact made for rpc:KEY
    runs on such a board with the same --target and --tracker. A plan is compiled first; of several
    networks each runs once, and names of inputs begin with its own: --input resnet18/input=x.npy.
    """
    if not input:
        raise errors.UsageError(
            "run needs the model's inputs.", hint="--input x.npy or --input NAME=x.npy"
        )
    if limit is not None and not parse_duration(limit.strip()):
        raise errors.UsageError(f"--limit {limit!r} is no time.", hint="--limit 5m")
    given = read_inputs(input)
    if is_plan(artifact):
        mode, trace = plan_flags.mode or "auto", plan_flags.trace
        _run_plan(artifact, given, mode, trace, target_flag, flags)
        return
    if plan_flags != PlanFlags():
        raise errors.UsageError(
            "--mode and --trace are for plans; an artifact runs as it was compiled.",
            hint="tilewright plan MODEL --out FOLDER",
        )
    arrays = _by_name(given, lambda: input_names_of(artifact, verify=target_flag.verify))
    with working(flags, target_flag) as work:
        work.session.verify = target_flag.verify
        outputs = work.session.run(artifact, arrays)
        work.answer = _answer(artifact, outputs, flags, {})


def _run_plan(
    plan: Path,
    given: Given,
    mode: RunMode,
    trace: Path | None,
    target: TargetFlag,
    flags: ThreadedFlags,
) -> None:
    """Run networks as their plan says; what both ways took is told with the outputs."""
    from tilewright.deploy.plan_checks import told

    if target.target != TargetFlag().target:
        raise errors.UsageError("a plan has devices of its own", hint="Leave --target out.")
    loaded, arrays = _for_plan(plan, given)
    with working(flags, target) as work, work.session.open_plan(loaded, mode=mode) as network:
        outputs = network.run(arrays)
        try:
            checks = network.checked(arrays, outputs)
        except errors.TilewrightError as error:
            checks = ()
            work.session.events(Note(message=f"nobody knows the error against float32: {error}"))
        work.answer = _answer(
            plan,
            outputs,
            flags,
            {
                "mode": network.mode,
                "times_s": network.times_s,
                "same": network.same,
                "checks": to_builtins(checks),
            },
            (network.choice, *map(told, checks)),
        )
        for check in checks:
            if not check.right:
                work.session.events(Note(message=f"beyond the allowed error: {told(check)}"))
        if trace is not None:
            write_text(trace, network.traced())


def _for_plan(plan: Path, given: Given) -> tuple[LoadedPlan, Mapping[str, NDArray[Any]]]:
    """The plan with its models, and the arrays by name. Raises UsageError for those that its
    networks do not take, before anything is compiled."""
    from tilewright.deploy.network_calls import ordered_inputs
    from tilewright.deploy.plan_models import loaded_plan

    loaded = loaded_plan(plan)
    arrays = _by_name(given, lambda: [port.name for port in loaded.inputs])
    ordered_inputs(loaded.inputs, arrays)
    return loaded, arrays


def _answer(
    place: Path,
    outputs: Mapping[str, NDArray[Any]],
    flags: ThreadedFlags,
    told: Mapping[str, object],
    remarks: Sequence[str] = (),
) -> Answer:
    name = place.resolve().name or "artifact"
    records = _write(outputs, flags.out or Path("tilewright-out") / name / "outputs")
    return Answer(
        command="run",
        data={"artifact": str(place), "outputs": records, **told},
        rows=Table(columns=_COLUMNS, records=tuple(records), title="Outputs"),
        remarks=remarks,
        saved=False,
    )


def input_names_of(artifact: Path, *, verify: bool) -> list[str]:
    """The inputs of an artifact, in order."""
    from tilewright.deploy.opening import input_names

    return input_names(artifact, verify=verify)


def _by_name(arrays: Given, inputs: Callable[[], Sequence[str]]) -> Mapping[str, NDArray[Any]]:
    """Arrays without names take those of the inputs, in order."""
    if isinstance(arrays, Mapping):
        return arrays
    names = inputs()
    if len(names) != len(arrays):
        raise errors.UsageError(
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


def read_inputs(texts: Sequence[str]) -> Given:
    """The arrays of `--input`: by name when all have one, in order when none has.

    Raises UsageError for a mixture or a name given twice, ModelError for an unreadable file.
    """
    pairs = [split_input(text) for text in texts]
    names = [name for name, _ in pairs if name is not None]
    if not names:
        return [read_array(path) for _, path in pairs]
    if len(names) < len(pairs):
        raise errors.UsageError("Name all inputs or none: --input NAME=x.npy")
    if len(set(names)) < len(names):
        raise errors.UsageError("--input gives one name twice.")
    return {name: read_array(path) for name, (_, path) in zip(names, pairs, strict=True)}


def split_input(text: str) -> tuple[str | None, Path]:
    """`NAME=x.npy` → name and path; names and paths may hold `=`, an existing file decides."""
    if "=" not in text or Path(text).is_file():
        return None, Path(text)
    cuts = [index for index, char in enumerate(text) if char == "=" and index]
    if not cuts:
        return None, Path(text)
    cut = next((index for index in cuts if Path(text[index + 1 :]).is_file()), cuts[0])
    return text[:cut], Path(text[cut + 1 :])


def read_array(path: Path) -> NDArray[Any]:
    """One array; files that hold Python objects are refused, as they could run code."""
    import numpy as np

    try:
        with input_files.readable(path, f"input {str(path)!r}"), path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, OverflowError) as error:
        raise errors.ModelError(
            f"input {str(path)!r} is no array file: {error}",
            hint="numpy.save writes the format that is wanted here.",
        ) from error


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write one array. Raises OutputError; the file is as before then."""
    import numpy as np

    with replacing(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def file_names(names: Iterable[str]) -> list[str]:
    """A file name for each output: plain characters, never a path, none twice."""
    taken: set[str] = set()
    files: list[str] = []
    for index, name in enumerate(names):
        stem = _UNSAFE.sub("_", name).lstrip(".")[:_LONGEST] or f"output{index}"
        while stem.casefold() in taken:
            stem = f"{stem}_{index}"
        taken.add(stem.casefold())
        files.append(f"{stem}.npy")
    return files


def describe(array: NDArray[Any]) -> dict[str, Any]:
    """Shape, type and range; the range is over the finite values, None without any."""
    import numpy as np

    values = np.asarray(array)
    finite = values[np.isfinite(values)].astype(np.float64)
    told = {"min": finite.min, "max": finite.max, "mean": finite.mean}
    return {
        "shape": list(values.shape),
        "dtype": str(values.dtype),
        **{name: float(of()) if finite.size else None for name, of in told.items()},
        "not_finite": int(values.size - finite.size),
    }
