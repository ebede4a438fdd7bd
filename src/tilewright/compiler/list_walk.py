"""Annealing of a list of calls on the cores of one device, compiled: ten times as many steps as
Python takes (`plan/scheduling/planners/compiled_walk.py`).

    order a, b, c; modes 2, 1, 1 cores     each call on the soonest cores behind those before it
    a step                                 a call goes elsewhere in the order, or it has another
                                           mode, or two that are near each other have the same one

A call begins a hand-off after what it waits for, at once where it has the same cores as that. Cores
are the bits of a number. A list is placed from the first change on. All that a walk knows is in six
arrays:

    facts     for each call a row of those it waits for, one of those that wait for it, and one of
              the cores of its modes; each begins with how many there are
    lists     what is tried, what is taken now, the best; each an order, the mode of each call, and
              of what is taken the place of each call in the order
    numbers   rows of `_BEGINS` and so on: times by call of all three, when cores are free, when all
              before a place have ended, values, and for each mode a row of what it takes
    bits      rows of the cores that calls hold in all three, of the cores by when they are free,
              and of words
    free      of what is taken, when cores are free before each place
    rising    and those cores by when they are free
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.script import tirx as T

_SYMBOL = "walk"
_BEGINS, _ENDS, _KEPT_BEGINS, _KEPT_ENDS, _BEST_BEGINS = range(5)
_TAILS, _FREE, _LATEST, _VALUES, _SECONDS = range(5, 10)
_NOW, _LEAST, _WARMTH, _WEIGHT, _HANDOFF, _LIMIT, _READY, _SOONEST, _END = range(9)
_WORK, _KEPT_WORK = 9, 10
"""Columns of `_VALUES`."""
_HELD, _KEPT_HELD, _BEST_HELD, _RISING, _WORDS = range(5)
_RANDOM, _CORES, _STEPS, _MASK, _FIRST = range(5)
"""Columns of `_WORDS`."""
_BEFORE, _AFTER, _MODES = range(3)
_TRIED, _TAKEN, _BEST = range(3)
_ORDER, _MODE, _PLACE = range(3)
_NEAR = 4
"""Two calls that have the same mode from now on are at most so many places from each other."""
_NOTHING, _WHOLE, _LONGEST, _NEVER, _SAME, _SMALL = (
    tirx.const(value, "float64") for value in (0.0, 1.0, 1e299, 1e300, 1.0 + 1e-9, 2.0**-53)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCalls:
    """For each call the cores and seconds of its modes, and the calls that it waits for; the cores
    of the device, 62 at most, and the seconds of a hand-off."""

    cores: Sequence[Sequence[int]]
    seconds: Sequence[Sequence[float]]
    before: Sequence[Sequence[int]]
    device_cores: int
    handoff_s: float


class ListWalk:
    """A list that is made better by chance, from an order of the calls that keeps every wait, and
    a mode for each."""

    def __init__(
        self, calls: ListCalls, order: Sequence[int], modes: Sequence[int], seed: int
    ) -> None:
        count, kinds = len(calls.before), max(map(len, calls.cores))
        after: list[list[int]] = [[] for _ in calls.before]
        for number, waits in enumerate(calls.before):
            for each in waits:
                after[each].append(number)
        facts = [_counted(rows) for rows in (calls.before, after, calls.cores)]
        width = max(each.shape[1] for each in facts)
        facts = [np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in facts]
        size = max(count, calls.device_cores, _KEPT_WORK + 1)
        numbers = np.zeros((_SECONDS + kinds, size))
        for number in range(count - 1, -1, -1):
            own = calls.seconds[number]
            numbers[_SECONDS : _SECONDS + len(own), number] = own
            follows = [min(calls.seconds[n]) + numbers[_TAILS, n] for n in after[number]]
            numbers[_TAILS, number] = max(follows, default=0.0)
        numbers[_VALUES, [_NOW, _LEAST, _HANDOFF]] = inf, inf, calls.handoff_s
        bits = np.zeros((5, size), "uint64")
        bits[_WORDS, _CORES] = calls.device_cores
        bits[_WORDS, _RANDOM] = np.random.default_rng(seed).integers(1, 1 << 62)
        self._facts = _tensor(np.stack(facts, axis=1), "int32")
        self._lists = _tensor(np.stack([np.array([order, modes, order])] * 3), "int32")
        self._numbers, self._bits = _tensor(numbers, "float64"), _tensor(bits, "uint64")
        self._free = _tensor(np.zeros((count, calls.device_cores)), "float64")
        rising = np.tile(np.arange(calls.device_cores), (count, 1))
        self._rising = _tensor(rising, "uint64")
        self._cores, self._run = calls.device_cores, _compiled()

    def step(self, count: int, warmth: float, weight: float = 0.0) -> None:
        """Try so many changes, of which the first of all is none. Each is taken that ends no later
        than now, or later by a share that is `warmth` in the mean; the seconds of all cores that
        calls hold, over the number of cores, count as much as the end times `weight`."""
        for tensor, place, value in (
            (self._numbers, (_VALUES, _WARMTH), warmth),
            (self._numbers, (_VALUES, _WEIGHT), weight / self._cores),
            (self._bits, (_WORDS, _STEPS), count),
        ):
            values = tensor.numpy().copy()
            values[place] = value
            tensor.copyfrom(values)
        known = self._facts, self._lists, self._numbers, self._bits, self._free, self._rising
        self._run(*known)

    @property
    def latency_s(self) -> float:
        """When the last call ends of the best list; infinity before the first step."""
        return float(self._numbers.numpy()[_VALUES, _LEAST])

    @property
    def best(self) -> list[tuple[int, int, float, tuple[int, ...]]]:
        """Each call of the best list in order, with its mode, its begin in seconds and its cores;
        without begins and cores before the first step."""
        order, modes, _ = self._lists.numpy()[_BEST].tolist()
        begins_s = self._numbers.numpy()[_BEST_BEGINS].tolist()
        masks = self._bits.numpy()[_BEST_HELD].tolist()
        cores = [tuple(c for c in range(self._cores) if mask >> c & 1) for mask in masks]
        return [(call, modes[call], begins_s[call], cores[call]) for call in order]


def _tensor(values: np.ndarray, kind: str) -> Any:
    return tvm.runtime.tensor(np.ascontiguousarray(values.astype(kind)))


def _counted(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """A row for each, its length first, zeros at its end."""
    found = np.zeros((len(rows), 1 + max(map(len, rows))), "int32")
    for row, each in zip(found, rows, strict=True):
        row[: 1 + len(each)] = len(each), *each
    return found


@cache
def _compiled() -> Any:
    module = tvm.IRModule({_SYMBOL: _walk.with_attr("global_symbol", _SYMBOL)})
    return tvm.compile(module, tvm.target.Target("llvm")).jit()[_SYMBOL]


def _following(number: Any) -> Any:
    """The next random number (G. Marsaglia, Journal of Statistical Software 8, 2003)."""
    one = T.bitwise_xor(number, T.shift_left(number, T.uint64(13)))
    other = T.bitwise_xor(one, T.shift_right(one, T.uint64(7)))
    return T.bitwise_xor(other, T.shift_left(other, T.uint64(17)))


def _below(bits: Any, count: Any) -> Any:
    """The random number as one of so many."""
    return T.truncmod(T.cast(T.shift_right(bits[_WORDS, _RANDOM], T.uint64(33)), "int32"), count)


def _share(bits: Any) -> Any:
    """The random number as one above 0, up to 1."""
    whole = T.cast(T.shift_right(bits[_WORDS, _RANDOM], T.uint64(11)), "int64")
    return T.cast(whole + T.int64(1), "float64") * _SMALL


def _has(mask: Any, core: Any) -> Any:
    """Whether a core is among some."""
    bit = T.bitwise_and(T.shift_right(mask, T.cast(core, "uint64")), T.uint64(1))
    return bit > T.uint64(0)


def _count(bits: Any, column: int) -> Any:
    """A word as a number."""
    return T.cast(bits[_WORDS, column], "int32")


def _rising(bits: Any, place: Any) -> Any:
    """The core that is free after so many others."""
    return T.cast(bits[_RISING, place], "int32")


def _seconds(lists: Any, numbers: Any, call: Any) -> Any:
    """What a call takes in its mode of the list that is tried."""
    return numbers[_SECONDS + lists[_TRIED, _MODE, call], call]


def _cores(facts: Any, lists: Any, call: Any) -> Any:
    """The cores of that mode."""
    return facts[call, _MODES, 1 + lists[_TRIED, _MODE, call]]


@T.inline
def _draw(bits: Any) -> None:
    """Another random number."""
    bits[_WORDS, _RANDOM] = _following(bits[_WORDS, _RANDOM])


@T.inline
def _copy(lists: Any, calls: Any, to: Any, origin: Any) -> None:
    for each in T.serial(0, calls):
        lists[to, _ORDER, each] = lists[origin, _ORDER, each]
        lists[to, _MODE, each] = lists[origin, _MODE, each]


@T.inline
def _change_from(bits: Any, place: Any) -> None:
    """Say that the list is another one from this place on."""
    bits[_WORDS, _FIRST] = T.min(bits[_WORDS, _FIRST], T.cast(place, "uint64"))


@T.inline
def _set_mode(facts: Any, lists: Any, numbers: Any, bits: Any, call: Any, mode: Any) -> None:
    """Give a call this mode, or its last one."""
    held: T.float64 = T.cast(_cores(facts, lists, call), "float64")
    numbers[_VALUES, _WORK] -= held * _seconds(lists, numbers, call)
    lists[_TRIED, _MODE, call] = T.min(mode, facts[call, _MODES, 0] - 1)
    holds: T.float64 = T.cast(_cores(facts, lists, call), "float64")
    numbers[_VALUES, _WORK] += holds * _seconds(lists, numbers, call)
    _change_from(bits, lists[_TAKEN, _PLACE, call])


@T.inline
def _move(facts: Any, lists: Any, bits: Any, calls: Any, number: Any) -> None:
    """Elsewhere in the order, between what the call waits for and what waits for it."""
    place: T.int32 = lists[_TAKEN, _PLACE, number]
    least: T.int32 = 0
    last: T.int32 = calls - 1
    for way in T.serial(0, facts[number, _BEFORE, 0]):
        least = T.max(least, lists[_TAKEN, _PLACE, facts[number, _BEFORE, 1 + way]] + 1)
    for way in T.serial(0, facts[number, _AFTER, 0]):
        last = T.min(last, lists[_TAKEN, _PLACE, facts[number, _AFTER, 1 + way]] - 1)
    if last > least:
        _draw(bits)
        to: T.int32 = least + _below(bits, last - least + 1)
        _change_from(bits, T.min(place, to))
        while place < to:
            lists[_TRIED, _ORDER, place] = lists[_TRIED, _ORDER, place + 1]
            place += 1
        while place > to:
            lists[_TRIED, _ORDER, place] = lists[_TRIED, _ORDER, place - 1]
            place -= 1
        lists[_TRIED, _ORDER, to] = number


@T.inline
def _change(facts: Any, lists: Any, numbers: Any, bits: Any, calls: Any) -> None:
    """A call and one soon behind it in the same mode; or a call elsewhere, or in another mode, or
    both; or also one that waits for it in its mode."""
    _draw(bits)
    number: T.int32 = _below(bits, calls)
    _draw(bits)
    kind: T.int32 = _below(bits, 40)
    if kind < 10:
        _move(facts, lists, bits, calls, number)
    if kind < 5 or kind >= 10:
        _draw(bits)
        mode: T.int32 = _below(bits, facts[number, _MODES, 0])
        _set_mode(facts, lists, numbers, bits, number, mode)
        readers: T.int32 = facts[number, _AFTER, 0]
        if kind >= 17 and kind < 20 and readers > 0:
            _draw(bits)
            along: T.int32 = facts[number, _AFTER, 1 + _below(bits, readers)]
            _set_mode(facts, lists, numbers, bits, along, mode)
        if kind >= 20:
            _draw(bits)
            place: T.int32 = lists[_TAKEN, _PLACE, number] + 1 + _below(bits, _NEAR)
            if place < calls:
                _set_mode(facts, lists, numbers, bits, lists[_TRIED, _ORDER, place], mode)


@T.inline
def _limit(numbers: Any, bits: Any) -> None:
    """When the list has to end that is tried."""
    _draw(bits)
    later: T.float64 = _NOTHING - T.log(_share(bits))
    end: T.float64 = numbers[_VALUES, _NOW] * (_SAME + numbers[_VALUES, _WARMTH] * later)
    work: T.float64 = numbers[_VALUES, _WORK] - numbers[_VALUES, _KEPT_WORK]
    numbers[_VALUES, _LIMIT] = end - numbers[_VALUES, _WEIGHT] * work


@T.inline
def _look(facts: Any, lists: Any, numbers: Any, bits: Any, call: Any) -> None:
    """When a call may begin on any cores, `_READY`, and on those of a call that it waits for."""
    numbers[_VALUES, _READY] = _NOTHING
    numbers[_VALUES, _SOONEST] = _NEVER
    for way in T.serial(0, facts[call, _BEFORE, 0]):
        one: T.int32 = facts[call, _BEFORE, 1 + way]
        ready: T.float64 = numbers[_ENDS, one] + numbers[_VALUES, _HANDOFF]
        numbers[_VALUES, _READY] = T.max(numbers[_VALUES, _READY], ready)
        if _cores(facts, lists, one) == _cores(facts, lists, call):
            begin: T.float64 = _NOTHING
            for second in T.serial(0, facts[call, _BEFORE, 0]):
                two: T.int32 = facts[call, _BEFORE, 1 + second]
                if bits[_HELD, two] == bits[_HELD, one]:
                    begin = T.max(begin, numbers[_ENDS, two])
                else:
                    begin = T.max(begin, numbers[_ENDS, two] + numbers[_VALUES, _HANDOFF])
            for core in T.serial(0, _count(bits, _CORES)):
                if _has(bits[_HELD, one], core):
                    begin = T.max(begin, numbers[_FREE, core])
            if begin < numbers[_VALUES, _SOONEST]:
                numbers[_VALUES, _SOONEST] = begin
                bits[_WORDS, _MASK] = bits[_HELD, one]


@T.inline
def _choose(facts: Any, lists: Any, numbers: Any, bits: Any, call: Any) -> None:
    """The cores on which a call begins at the soonest: else those that were busy last."""
    count: T.int32 = _cores(facts, lists, call)
    enough: T.float64 = numbers[_FREE, _rising(bits, count - 1)]
    ready: T.float64 = T.max(numbers[_VALUES, _READY], enough)
    if numbers[_VALUES, _SOONEST] <= ready:
        ready = numbers[_VALUES, _SOONEST]
    else:
        bits[_WORDS, _MASK] = T.uint64(0)
        idle: T.int32 = _count(bits, _CORES) - 1
        while numbers[_FREE, _rising(bits, idle)] > ready:
            idle -= 1
        for back in T.serial(0, count):
            bit: T.uint64 = T.shift_left(T.uint64(1), bits[_RISING, idle - back])
            bits[_WORDS, _MASK] = T.bitwise_or(bits[_WORDS, _MASK], bit)
    numbers[_BEGINS, call] = ready
    numbers[_ENDS, call] = ready + _seconds(lists, numbers, call)
    bits[_HELD, call] = bits[_WORDS, _MASK]


@T.inline
def _hold(numbers: Any, bits: Any, call: Any) -> None:
    """Have the cores of a call busy until its end, and all in the order in which they are free."""
    for core in T.serial(0, _count(bits, _CORES)):
        if _has(bits[_HELD, call], core):
            numbers[_FREE, core] = numbers[_ENDS, call]
    for at in T.serial(1, _count(bits, _CORES)):
        moved: T.int32 = _rising(bits, at)
        place: T.int32 = at
        while place > 0:
            if numbers[_FREE, _rising(bits, place - 1)] > numbers[_FREE, moved]:
                bits[_RISING, place] = bits[_RISING, place - 1]
                bits[_RISING, place - 1] = T.cast(moved, "uint64")
                place -= 1
            else:
                place = 0


@T.inline
def _resume(numbers: Any, bits: Any, free: Any, rising: Any, place: Any) -> None:
    """The cores as they are before a place of what is taken."""
    for core in T.serial(0, _count(bits, _CORES)):
        numbers[_FREE, core] = free[place, core]
        bits[_RISING, core] = rising[place, core]


@T.inline
def _line_up(facts: Any, lists: Any, numbers: Any, bits: Any, calls: Any) -> None:
    """Place all calls by their order from the first change on, as long as they may end in time."""
    turn: T.int32 = _count(bits, _FIRST)
    numbers[_VALUES, _END] = numbers[_LATEST, turn]
    while turn < calls:
        call: T.int32 = lists[_TRIED, _ORDER, turn]
        _look(facts, lists, numbers, bits, call)
        _choose(facts, lists, numbers, bits, call)
        _hold(numbers, bits, call)
        numbers[_VALUES, _END] = T.max(numbers[_VALUES, _END], numbers[_ENDS, call])
        turn += 1
        if numbers[_ENDS, call] + numbers[_TAILS, call] > numbers[_VALUES, _LIMIT]:
            numbers[_VALUES, _END] = _NEVER
            turn = calls


@T.inline
def _sort(lists: Any, numbers: Any, bits: Any, calls: Any) -> None:
    """The list that was tried, in the order of the begins of its calls; those that begin at a time
    stay as they are."""
    for at in T.serial(1, calls):
        place: T.int32 = at
        moved: T.int32 = lists[_TRIED, _ORDER, at]
        while place > 0:
            other: T.int32 = lists[_TRIED, _ORDER, place - 1]
            if numbers[_BEGINS, other] > numbers[_BEGINS, moved]:
                lists[_TRIED, _ORDER, place] = other
                lists[_TRIED, _ORDER, place - 1] = moved
                place -= 1
                _change_from(bits, place)
            else:
                place = 0


@T.inline
def _take(lists: Any, numbers: Any, bits: Any, free: Any, rising: Any, calls: Any) -> None:
    """Have the list that was tried be what is taken, with the cores before each of its places."""
    _copy(lists, calls, _TAKEN, _TRIED)
    for call in T.serial(0, calls):
        numbers[_KEPT_BEGINS, call] = numbers[_BEGINS, call]
        numbers[_KEPT_ENDS, call] = numbers[_ENDS, call]
        bits[_KEPT_HELD, call] = bits[_HELD, call]
    first: T.int32 = _count(bits, _FIRST)
    _resume(numbers, bits, free, rising, first)
    latest: T.float64 = numbers[_LATEST, first]
    for at in T.serial(first, calls):
        call: T.int32 = lists[_TAKEN, _ORDER, at]
        lists[_TAKEN, _PLACE, call] = at
        numbers[_LATEST, at] = latest
        for core in T.serial(0, _count(bits, _CORES)):
            free[at, core] = numbers[_FREE, core]
            rising[at, core] = bits[_RISING, core]
        _hold(numbers, bits, call)
        latest = T.max(latest, numbers[_ENDS, call])
    numbers[_VALUES, _NOW] = numbers[_VALUES, _END]
    numbers[_VALUES, _KEPT_WORK] = numbers[_VALUES, _WORK]
    if numbers[_VALUES, _NOW] < numbers[_VALUES, _LEAST]:
        numbers[_VALUES, _LEAST] = numbers[_VALUES, _NOW]
        _copy(lists, calls, _BEST, _TAKEN)
        for call in T.serial(0, calls):
            numbers[_BEST_BEGINS, call] = numbers[_BEGINS, call]
            bits[_BEST_HELD, call] = bits[_HELD, call]


@T.prim_func
def _walk(
    facts_: T.handle,
    lists_: T.handle,
    numbers_: T.handle,
    bits_: T.handle,
    free_: T.handle,
    rising_: T.handle,
) -> None:
    """So many steps, the first of all without a change."""
    calls = T.int32()
    width = T.int32()
    rows = T.int32()
    size = T.int32()
    cores = T.int32()
    facts = T.match_buffer(facts_, (calls, 3, width), "int32")
    lists = T.match_buffer(lists_, (3, 3, calls), "int32")
    numbers = T.match_buffer(numbers_, (rows, size), "float64")
    bits = T.match_buffer(bits_, (5, size), "uint64")
    free = T.match_buffer(free_, (calls, cores), "float64")
    rising = T.match_buffer(rising_, (calls, cores), "uint64")
    for _step in T.serial(0, _count(bits, _STEPS)):
        _copy(lists, calls, _TRIED, _TAKEN)
        for call in T.serial(0, calls):
            numbers[_BEGINS, call] = numbers[_KEPT_BEGINS, call]
            numbers[_ENDS, call] = numbers[_KEPT_ENDS, call]
            bits[_HELD, call] = bits[_KEPT_HELD, call]
        numbers[_VALUES, _WORK] = numbers[_VALUES, _KEPT_WORK]
        numbers[_VALUES, _LIMIT] = _NEVER
        bits[_WORDS, _FIRST] = T.uint64(0)
        if numbers[_VALUES, _NOW] < _NEVER:
            bits[_WORDS, _FIRST] = T.cast(calls - 1, "uint64")
            _change(facts, lists, numbers, bits, calls)
            _limit(numbers, bits)
        _resume(numbers, bits, free, rising, _count(bits, _FIRST))
        _line_up(facts, lists, numbers, bits, calls)
        in_time: T.float64 = T.min(numbers[_VALUES, _LIMIT], _LONGEST)
        if numbers[_VALUES, _END] <= in_time:
            _sort(lists, numbers, bits, calls)
            _take(lists, numbers, bits, free, rising, calls)
