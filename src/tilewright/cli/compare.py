"""`tilewright compare`, and reading what an earlier one printed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from cyclopts import Parameter

from tilewright.cli import output, streams
from tilewright.cli.flags import (
    ChoiceFlags,
    ModelOrArtifactFlags,
    SharedFlags,
)
from tilewright.cli.precision_flags import names_in
from tilewright.cli.work import Work, working
from tilewright.core.comparisons import CompareResult, CompareRow
from tilewright.core.errors import ModelError, NegativeVerdict, UsageError
from tilewright.core.input_files import readable
from tilewright.report.comparison import AgainstBaseline, against_baseline
from tilewright.report.escape import visible

_KINDS: dict[str, type] = {
    **dict.fromkeys(("model", "peer", "precision"), str),
    **dict.fromkeys(("latency_s", "peer_latency_s", "speedup"), float),
    "threads": int,
}
_BOUNDS = ("speedup_low", "speedup_high")
_HINT = "It takes what `tilewright compare … --format json` prints, or compare.json from --out."


def compare(
    *models: Annotated[
        str, Parameter(help="Models or artifacts: .onnx files, zoo:NAME, artifact folders.")
    ],
    peers: Annotated[
        str | None,
        Parameter(
            help="Engines to compare with, separated by commas; missing ones are skipped. By "
            "default onnxruntime,openvino,torch, on GPUs onnxruntime,torch,torch_compiled,jax,"
            "tensorrt. torch_compiled and tensorrt compile for tens of seconds; doctor lists all."
        ),
    ] = None,
    choice: ChoiceFlags = ChoiceFlags(),
    baseline: Annotated[
        Path | None, Parameter(help="Output of an earlier `compare --format json`, as a file.")
    ] = None,
    fail_below: Annotated[
        float | None,
        Parameter(
            help="Exit with 1 if the geometric mean of the speed-ups is below this number; with "
            "--baseline, if that mean divided by the earlier one is below it."
        ),
    ] = None,
    model_flags: ModelOrArtifactFlags = ModelOrArtifactFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Time networks in turn with other engines, on the same cores with as many threads, or on the
    same GPU."""
    from tilewright.deploy.comparing import require_models

    require_models(models)
    if fail_below is not None and not (math.isfinite(fail_below) and fail_below > 0):
        raise UsageError(f"--fail-below must be a number above 0, not {fail_below}.")
    peer_names = _peer_names(peers)
    earlier = read_baseline(baseline) if baseline is not None else None
    with working(flags, model_flags) as work:
        work.session.verify = model_flags.verify
        result = work.session.compare(
            models,
            peers=peer_names,
            options=model_flags.options(flags.seed),
            settings=choice.settings,
            max_error=choice.max_error,
        )
        against = None if earlier is None else against_baseline(result.rows, earlier)
        if against is not None:
            _tell_against(work, result, against)
        elif earlier is None:
            work.tell("compare", result)
        else:
            raise ModelError(
                f"{baseline} has no model and peer in common with this comparison.",
                hint="Make a new one: tilewright compare MODEL… --format json",
            )
    if fail_below is not None:
        _judge(result, against, fail_below)


def _peer_names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = names_in(text)
    if not names:
        raise UsageError("--peers names no peer.", hint="`tilewright doctor` lists all.")
    return names


def _tell_against(work: Work, result: CompareResult, against: AgainstBaseline) -> None:
    """Tell a comparison beside an earlier one."""
    result = replace(result, baseline_geomean=against.then.value)
    low, high = against.ratio_bounds
    between = "" if low is None or high is None else f", between {low:.3f} and {high:.3f}"
    remark = (
        f"Against the baseline, over {len(against.models)} models: {against.ratio:.3f}{between}"
        f" ({against.now.value:.3f} now, {against.then.value:.3f} then)"
    )
    warnings = ["The baseline was measured with another number of threads."]
    baseline = {
        "models": list(against.models),
        "geomean_speedup": against.now.value,
        "baseline_geomean": against.then.value,
        "ratio": against.ratio,
        "ratio_low": low,
        "ratio_high": high,
    }
    work.tell(
        "compare",
        result,
        data=output.plain(result) | {"baseline": baseline},
        remarks=[remark],
        warnings=warnings if against.other_threads else (),
    )


def _judge(result: CompareResult, against: AgainstBaseline | None, fail_below: float) -> None:
    value = against.ratio if against is not None else result.geomean_speedup
    what = "ratio to the baseline" if against is not None else "geometric mean speed-up"
    if value is None:
        raise NegativeVerdict("--fail-below has nothing to judge: no peer ran at our precision.")
    if value < fail_below:
        raise NegativeVerdict(f"The {what} is {value:.4f}, below {fail_below:g}.")
    streams.write_message(f"The {what} is {value:.4f}, not below {fail_below:g}.")


class _Data(msgspec.Struct):
    rows: list[Any]


class _Envelope(msgspec.Struct):
    """What is around the rows of a comparison."""

    command: Literal["compare"]
    schema_version: Literal[1]
    data: _Data


def read_baseline(path: Path) -> tuple[CompareRow, ...]:
    """The rows of an earlier comparison. Raises ModelError for anything else."""
    try:
        with readable(path, f"baseline {str(path)!r}"):
            document: Any = json.loads(path.read_text(encoding="utf-8"))
        rows = msgspec.convert(document, _Envelope).data.rows
    except msgspec.ValidationError as error:
        raise ModelError(f"baseline {str(path)!r} holds no comparison.", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"baseline {str(path)!r} is no JSON: {error}", hint=_HINT) from error
    return tuple(_row(row, index, path) for index, row in enumerate(rows))


def _row(row: object, index: int, path: Path) -> CompareRow:
    fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    wrong = [name for name, kind in _KINDS.items() if not _is(fields.get(name), kind)]
    if wrong:
        raise ModelError(
            f"baseline {str(path)!r}, row {index}: {visible(', '.join(wrong))} missing or wrong.",
            hint=_HINT,
        )
    # comparisons of earlier versions have no bounds
    bounds = [name for name in _BOUNDS if _is(fields.get(name), float) and fields[name] > 0]
    # those of before precision was chosen do not tell ours
    own = ["own_precision"] if _is(fields.get("own_precision"), str) else []
    known: dict[str, Any] = {name: fields[name] for name in (*_KINDS, *bounds, *own)}
    return CompareRow(**known, max_abs_error=None, max_rel_error=None)


def _is(value: Any, kind: type) -> bool:
    """Whether a value is of a kind, and finite where it is a number."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return kind is str or math.isfinite(value)
