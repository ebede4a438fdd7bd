"""What the reader should know before trusting the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.results import OptimizeResult, TaskReport
from tilewright.report import shown

NOISY_NETWORK = 0.1
NOISY_TASK = 0.3
UNEXPLAINED = 0.1


def noise_warnings(result: OptimizeResult) -> tuple[str, ...]:
    """The run's own warnings first, then those that its numbers suggest.

    Over the median, a network's spread is the interquartile range, a task's the whole range.
    """
    found = list(result.warnings)
    for what, spread in (
        ("network's time", result.latency_spread),
        ("reference's time", result.reference_spread),
    ):
        if spread > NOISY_NETWORK:
            found.append(
                f"The {what} varied by {shown.percent(spread)} between rounds; "
                "close other programs and measure again before trusting small differences."
            )
    noisy = noisy_tasks(result.tasks)
    if noisy:
        share = shown.percent(sum(task.share or 0.0 for task in noisy))
        found.append(
            f"{len(noisy)} tasks with {share} of the time varied by more than "
            f"{shown.percent(NOISY_TASK)} while they were measured."
        )
    return tuple(dict.fromkeys(found))


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
