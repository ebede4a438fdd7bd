"""`tilewright compare`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tilewright.cli.answers import answer_of
from tilewright.cli.baseline import read_baseline
from tilewright.cli.flags import ChoiceFlags, ModelOrArtifactFlags, SharedFlags
from tilewright.cli.output import emit, plain
from tilewright.cli.streams import write_message
from tilewright.cli.work import working
from tilewright.core.errors import ModelError, NegativeVerdict, UsageError
from tilewright.report.comparison import AgainstBaseline, against_baseline

if TYPE_CHECKING:
    from tilewright.core.results import CompareResult, CompareRow

DEFAULT_PEERS = "onnxruntime,openvino,torch"


def compare(
    *models: Annotated[
        str, Parameter(help="Models or artifacts: .onnx files, zoo:NAME, artifact folders.")
    ],
    peers: Annotated[
        str,
        Parameter(
            help="Whom to compare with, separated by commas; missing ones are skipped. There is "
            "torch_compiled, too, which compiles for tens of seconds; doctor lists all."
        ),
    ] = DEFAULT_PEERS,
    choice: ChoiceFlags | None = None,
    baseline: Annotated[
        Path | None, Parameter(help="What an earlier `compare --format json` printed.")
    ] = None,
    fail_below: Annotated[
        float | None,
        Parameter(
            help="Exit with 1 when the geometric mean of the speed-ups is below this; with "
            "--baseline, when that mean divided by the earlier one is."
        ),
    ] = None,
    model_flags: ModelOrArtifactFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Time networks side by side with other engines: in turn, same cores, same threads."""
    from tilewright.deploy.comparing import require_models

    flags, model_flags = flags or SharedFlags(), model_flags or ModelOrArtifactFlags()
    require_models(models)
    if fail_below is not None and not (math.isfinite(fail_below) and fail_below > 0):
        raise UsageError(f"--fail-below must be a number above 0, not {fail_below}.")
    peer_names = _peer_names(peers)
    earlier = read_baseline(baseline) if baseline is not None else None
    choice, options = choice or ChoiceFlags(), model_flags.options(flags.seed)
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        work.session.verify = model_flags.verify
        result = work.session.compare(
            models,
            peers=peer_names,
            options=options,
            settings=choice.settings,
            max_error=choice.max_error,
        )
    against = _against(result, earlier, baseline)
    if against is not None:
        result = replace(result, baseline_geomean=against.then.value)
    answer = answer_of(
        "compare",
        result,
        work,
        data=_data(result, against),
        remarks=_remarks(against),
        warnings=_thread_warning(against),
    )
    emit(answer, flags)
    if fail_below is not None:
        _judge(result, against, fail_below)
    return 0


def _peer_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError("--peers names no peer.", hint=f"Default: {DEFAULT_PEERS}")
    return names


def _against(
    result: CompareResult, earlier: Sequence[CompareRow] | None, path: Path | None
) -> AgainstBaseline | None:
    if earlier is None:
        return None
    against = against_baseline(result.rows, earlier)
    if against is None:
        raise ModelError(
            f"{path} has no model and peer in common with this comparison.",
            hint="Make a new one: tilewright compare MODEL… --format json",
        )
    return against


def _data(result: CompareResult, against: AgainstBaseline | None) -> dict[str, Any]:
    data: dict[str, Any] = plain(result)
    if against is not None:
        low, high = against.ratio_bounds
        data["baseline"] = {
            "models": list(against.models),
            "geomean_speedup": against.now.value,
            "baseline_geomean": against.then.value,
            "ratio": against.ratio,
            "ratio_low": low,
            "ratio_high": high,
        }
    return data


def _remarks(against: AgainstBaseline | None) -> list[str]:
    if against is None:
        return []
    low, high = against.ratio_bounds
    between = "" if low is None or high is None else f", between {low:.3f} and {high:.3f}"
    return [
        f"Against the baseline, over {len(against.models)} models: {against.ratio:.3f}{between}"
        f" ({against.now.value:.3f} now, {against.then.value:.3f} then)"
    ]


def _thread_warning(against: AgainstBaseline | None) -> list[str]:
    if against is None or not against.other_threads:
        return []
    return ["The baseline was measured with another number of threads."]


def _judge(result: CompareResult, against: AgainstBaseline | None, fail_below: float) -> None:
    value = against.ratio if against is not None else result.geomean_speedup
    what = "ratio to the baseline" if against is not None else "geometric mean speed-up"
    if value is None:
        raise NegativeVerdict("--fail-below has nothing to judge: no peer ran at our precision.")
    if value < fail_below:
        raise NegativeVerdict(f"The {what} is {value:.4f}, below {fail_below:g}.")
    write_message(f"The {what} is {value:.4f}, not below {fail_below:g}.")
