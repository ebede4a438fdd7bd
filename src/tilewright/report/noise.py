"""What the reader should know before trusting the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.results import OptimizeResult, ProfileResult, TaskReport
from tilewright.core.timings import NOISY_ROUNDS
from tilewright.report import shown

NOISY_NETWORK = 0.1
NOISY_TASK = 0.3
UNEXPLAINED = 0.1
_FAR_MORE = 2.0


def noise_warnings(result: OptimizeResult) -> tuple[str, ...]:
    """The run's own warnings first, then those that its numbers suggest.

    Over the median, a network's spread is the interquartile range, its variation the range of the
    rounds' medians, a task's spread the whole range.
    """
    found = list(result.warnings)
    for what, spread, variation, claim in (
        ("network's time", result.latency_spread, result.latency_variation, ""),
        (
            "reference's time",
            result.reference_spread,
            result.reference_variation,
            _range_of_speedup(result),
        ),
    ):
        if spread > NOISY_NETWORK or variation > NOISY_ROUNDS:
            varied = variation if variation > NOISY_ROUNDS else spread
            found.append(
                f"The {what} varied by {shown.percent(varied)} between rounds{claim}; "
                "close other programs and measure again before trusting small differences."
            )
    noisy = noisy_tasks(result.tasks)
    if noisy:
        share = shown.percent(sum(task.share or 0.0 for task in noisy))
        found.append(
            f"{len(noisy)} of the tasks, with {share} of the network's time, varied by more than "
            f"{shown.percent(NOISY_TASK)} while they were measured."
        )
    found += far_more_than_kernels(result.latency_s, result.tasks_latency_s, result.tasks)
    return tuple(dict.fromkeys(found))


def _range_of_speedup(result: OptimizeResult) -> str:
    low, high = result.speedup_vs_reference_low, result.speedup_vs_reference_high
    if low is None or high is None:
        return ""
    return f": the speed-up over it lies between {shown.ratio(low)} and {shown.ratio(high)}"


def profile_warnings(result: ProfileResult) -> tuple[str, ...]:
    """What the numbers of a profile suggest."""
    return far_more_than_kernels(result.network_latency_s, result.tasks_latency_s, result.tasks)


def far_more_than_kernels(
    network_s: float, tasks_s: float, tasks: Sequence[TaskReport]
) -> tuple[str, ...]:
    """A warning where a network takes more than twice the sum of its kernels: timed alone, where
    all were (`tasks_s` is not 0), else in place."""
    in_place_s = sum(task.in_place_s * task.count for task in tasks if task.in_place_s is not None)
    kernels_s = tasks_s or in_place_s
    if kernels_s <= 0 or network_s <= _FAR_MORE * kernels_s:
        return ()
    text = (
        f"The network takes {shown.seconds(network_s)}, {shown.ratio(network_s / kernels_s)} the "
        f"sum of its kernels timed {'alone' if tasks_s else 'in the network'} "
        f"({shown.seconds(kernels_s)})"
    )
    if tasks_s and in_place_s:
        text += f"; in the network they take {shown.seconds(in_place_s)}"
    return (
        f"{text}. Settings of single kernels hardly change that. Either other programs or too many "
        "threads disturb the run, or the network is so small that the time between its kernels "
        "matters.",
    )


def noisy_tasks(tasks: Sequence[TaskReport]) -> list[TaskReport]:
    """The tasks whose samples are spread wide."""
    return [task for task in tasks if task.spread > NOISY_TASK]


def difference(tasks_latency_s: float, network_latency_s: float) -> float | None:
    """The part of the network's time that the tasks' sum leaves open; negative when it exceeds."""
    if network_latency_s <= 0 or tasks_latency_s <= 0:
        return None
    return 1 - tasks_latency_s / network_latency_s


def explain_difference(tasks_latency_s: float, network_latency_s: float, explanation: str) -> str:
    """One or two sentences on how the parts add up to the whole."""
    apart = difference(tasks_latency_s, network_latency_s)
    if apart is None:
        return explanation
    side = "less" if apart >= 0 else "more"
    text = (
        f"The tasks add up to {shown.seconds(tasks_latency_s)}, {shown.percent(abs(apart))} {side} "
        f"than the network's {shown.seconds(network_latency_s)}."
    )
    if explanation:
        return f"{text} {explanation}"
    if abs(apart) > UNEXPLAINED:
        return f"{text} What causes the difference was not found."
    return text
