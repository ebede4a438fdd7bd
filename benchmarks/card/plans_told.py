"""What requests of carried plans took: parts, copies and hand-offs; in thought, and in tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles
from typing import Any

from pages import table
from tilewright.deploy.compiled_parts import CompiledPart
from tilewright.plan.scheduling.parts import Link, Mode, ScheduledCall
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot, TransferSlot
from tilewright.serving.flows import Span

CPU_NAME = "llvm"
_AT_ONCE = 1e15
"""Bytes a second of a link whose copies take what was measured, whatever their size."""
Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request for each network of a plan at a time: when, and which parts ran when."""

    began_s: float
    ended_s: float
    spans: tuple[Span, ...]

    @property
    def takes_s(self) -> float:
        """Seconds until all are answered."""
        return self.ended_s - self.began_s

    def handoffs_s(self, parts: Sequence[CompiledPart]) -> Iterator[float]:
        """Seconds between a part and what it read last, of another place, and at both ends."""
        ran = {span.part: span for span in self.spans}
        for network in dict.fromkeys(part.network for part in parts):
            own = [part for part in parts if part.network == network]
            for part in own:
                before = [own[n] for n in part.after]
                last = max(before, key=lambda p: ran[p.name].end_s, default=None)
                if last is None or last.place != part.place:
                    from_s = self.began_s if last is None else ran[last.name].end_s
                    yield max(0.0, ran[part.name].begin_s - from_s)
        yield max(0.0, self.ended_s - max(span.end_s for span in self.spans))


def own_s(part: str, requests: Sequence[Asked]) -> Iterator[float]:
    """Seconds that a part took beside the copies."""
    for span in (span for each in requests for span in each.spans if span.part == part):
        copied_s = sum(copy.end_s - copy.begin_s for copy in span.copies)
        yield span.end_s - span.begin_s - copied_s


def middle(values: Iterator[float]) -> float:
    """The median; 0 of nothing."""
    found = list(values)
    return median(found) if found else 0.0


def as_measured(
    problem: SchedulingProblem,
    parts: Sequence[CompiledPart],
    parts_s: Mapping[str, float],
    copies_s: Mapping[bool, float],
    handoff_s: float,
) -> SchedulingProblem:
    """The problem where the calls of each part take together what it took, each its share of what
    was predicted, and copies to a GPU (True) and back what those took."""
    several = len({part.network for part in parts}) > 1
    ratio = dict[tuple[str, str], float]()
    for part in parts:
        for call in part.calls:
            name = f"{part.network}/{call}" if several else call
            took = parts_s[part.name] / part.expected_s if part.expected_s else 1.0
            ratio[name, part.place[0]] = took

    def lasting(call: ScheduledCall, mode: Mode) -> Mode:
        seconds = mode.latency_s * ratio.get((call.name, mode.device), 1.0)
        return replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds)

    def copying(link: Link) -> Link:
        seconds = copies_s[link.origin == CPU_NAME]
        return replace(link, latency_s=seconds, bytes_per_s=_AT_ONCE)

    calls = tuple(
        replace(call, task="", modes=tuple(lasting(call, mode) for mode in call.modes))
        for call in problem.calls
    )
    links = tuple(copying(link) for link in problem.links)
    return replace(problem, calls=calls, links=links, handoff_s=handoff_s)


def without_pauses(problem: SchedulingProblem, schedule: Schedule) -> Schedule:
    """The schedule as it would be if hand-offs took nothing, in the same order. The simulator takes
    for a pause that is meant what a hand-off takes less than was planned."""
    ends, free = dict[tuple[str, str], float](), dict[Hashable, float]()
    moved = dict[Slot | TransferSlot, Slot | TransferSlot]()
    uses: list[Slot | TransferSlot] = [*schedule.slots, *schedule.transfers]
    for use in sorted(uses, key=lambda each: (each.begin_s, each.end_s)):
        lines: list[Hashable]
        if isinstance(use, TransferSlot):
            goal, lines = use.destination, [(use.origin, use.destination)]
            waits = [(use.call, "")]
        else:
            goal, device = "", schedule.mode_of(problem, use.call).device
            lines = [(device, core) for core in use.cores]
            names = [problem.calls[n].name for n, _ in problem.before[problem.numbers[use.call]]]
            there = {n: schedule.mode_of(problem, n).device == device for n in names}
            waits = [(name, "" if there[name] else device) for name in names]
        begin_s = max(
            (*(ends.get(w, 0.0) for w in waits), *(free.get(n, 0.0) for n in lines)), default=0.0
        )
        end_s = begin_s + use.end_s - use.begin_s
        ends[use.call, goal] = end_s
        free |= dict.fromkeys(lines, end_s)
        moved[use] = replace(use, begin_s=begin_s, end_s=end_s)
    found: list[Any] = [
        [moved[use] for use in each] for each in (schedule.slots, schedule.transfers)
    ]
    return replace(schedule, slots=tuple(found[0]), transfers=tuple(found[1]))


def report(found: Sequence[Line]) -> str:
    """A table: each way of each network, promised, measured and carried out in thought."""
    header = ["network", "way", "parts", "promised, ms", "measured, ms", "fastest tenth, ms",
              "better device alone ÷ it", "simulated ÷ run", "hand-off, µs", "error"]  # fmt: skip
    rows = list[list[str]]()
    for name in dict.fromkeys(line["network"] for line in found):
        own = [line for line in found if line["network"] == name]
        samples = {
            way: [s for line in own if line["part"] == "time" and line["way"] == way
                  for s in line["samples_s"]]
            for way in dict.fromkeys(line["way"] for line in own if "way" in line)
        }  # fmt: skip
        alone = [median(s) for way, s in samples.items() if way.startswith("alone") and s]
        for way, seconds in samples.items():
            facts = dict[str, Line]()
            for line in own:
                if line.get("way") == way:
                    facts[line["part"]] = line
            rows.append([name, way, *_cells(facts, seconds, min(alone, default=None))])
    return table(header, rows)


def _cells(
    facts: Mapping[str, Line], samples: Sequence[float], alone_s: float | None
) -> Iterator[str]:
    promised = facts.get("promised", {})
    counts = promised.get("parts", {})
    yield ", ".join(f"{n} {device}" for device, n in counts.items()) or "those of one device"
    yield f"{1e3 * promised['promised_s']:.3f}" if promised else "–"
    if not samples:
        yield from ("failed" if "failed" in facts else "–", "–", "–", "–", "–", "–")
        return
    takes_s, thought = median(samples), facts.get("simulated")
    yield f"{1e3 * takes_s:.3f}"
    yield f"{1e3 * (quantiles(samples, n=10)[0] if len(samples) > 1 else takes_s):.3f}"
    yield f"{alone_s / takes_s:.2f}" if alone_s else "–"
    yield f"{thought['simulated_s'] / takes_s:.2f}" if thought else "–"
    yield f"{1e6 * thought['handoff_s']:.0f}" if thought else "–"
    yield f"{facts['same']['error']:.1e}" if "same" in facts else "–"
