"""What every tuner must keep, as checks that another package can run on its own.

    from tilewright.testing.tuners import TunerConformance

    class TestMyTuner(TunerConformance):
        factory = staticmethod(my_factory)

Every check takes seconds at most and needs no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from tilewright.core.forms import PLAIN, blocked
from tilewright.core.records import Candidate, Settings
from tilewright.kernels.knobs import choice, split
from tilewright.kernels.search_space import LISTED, SearchSpace
from tilewright.search.tuners.base import Tuner, TunerFactory, TuningTask
from tilewright.testing.landscapes import Landscape, failed, measured, part, smooth

_ENDLESS = 200
"""More batches than any check needs; a tuner that goes on has no end."""
_MOST_LOOKS = 400_000
"""Settings of a space of a thousand million that a tuner may look at."""


def small(count: int = 13) -> SearchSpace:
    """Two implementations with different knobs, `count` + 3 valid settings in all."""
    knobs = [split("a", 2 * count, policy="candidates", candidates=range(1, 2 * count + 1))]
    even = part("even", knobs, filters=[lambda s: int(s["a"]) % 2 == 0])
    return SearchSpace([even, part("flags", [choice("flag", ("x", "y", "z"))])])


def time_of(settings: Settings) -> float:
    """Some time for each setting of `small`."""
    return 1e-4 * (1.0 + (int(settings["a"]) % 7 if "a" in settings else 3.0))


def _drain(tuner: Tuner, space: SearchSpace, told: Callable[[Candidate], object]) -> set[Candidate]:
    """Ask until nothing is left, telling as `told` says; everything that came, checked."""
    seen: set[Candidate] = set()
    for _ in range(_ENDLESS):
        candidates = _asked(tuner, space, 5, seen)
        if not candidates:
            assert not tuner.ask(5), "a tuner that had nothing left has something again"
            return seen
        for candidate in candidates:
            told(candidate)
    raise AssertionError(f"no end after {_ENDLESS} batches on a small space")


def _asked(
    tuner: Tuner, space: SearchSpace, count: int, seen: set[Candidate]
) -> Sequence[Candidate]:
    candidates = tuner.ask(count)
    assert len(candidates) <= count, f"{len(candidates)} proposals where {count} were asked for"
    for candidate in candidates:
        number = space.number(candidate)
        assert number is not None, f"{candidate} is not of the space"
        assert space.valid(number), f"{candidate} is not valid"
        assert candidate not in seen, f"{candidate} was proposed or told before"
        seen.add(candidate)
    return candidates


def _size(space: SearchSpace) -> int:
    assert space.listed is not None
    return len(space.listed)


def check_exhausts_small_spaces(factory: TunerFactory) -> None:
    """Every valid setting once, none twice, then nothing."""
    space = small()
    tuner = factory(TuningTask(space=space))
    seen = _drain(tuner, space, lambda c: tuner.tell([measured(c, time_of(dict(c.settings)))]))
    assert len(seen) == _size(space), f"{len(seen)} of {_size(space)} settings proposed"


def check_asked_without_being_told(factory: TunerFactory) -> None:
    """Proposals whose outcomes are still under way are not repeated."""
    space = small()
    seen = _drain(factory(TuningTask(space=space)), space, lambda c: None)
    assert len(seen) == _size(space), f"{len(seen)} of {_size(space)} settings proposed"


def check_failures_only(factory: TunerFactory) -> None:
    """A history of nothing but failures stops no tuner."""
    space = small(30)
    tuner = factory(TuningTask(space=space))
    seen = _drain(tuner, space, lambda c: tuner.tell([failed(c)]))
    assert len(seen) == _size(space), f"{len(seen)} of {_size(space)} settings proposed"


def check_failures_among_times(factory: TunerFactory) -> None:
    """Failures and times, several samples, the same candidate told again."""
    space = small(30)
    tuner = factory(TuningTask(space=space))

    def tell(candidate: Candidate) -> None:
        seconds = time_of(dict(candidate.settings))
        if seconds > 4e-4:
            tuner.tell([failed(candidate)])
        else:
            tuner.tell([measured(candidate, seconds, 1.1 * seconds, 0.9 * seconds)])
            tuner.tell([measured(candidate, 2 * seconds)])

    assert len(_drain(tuner, space, tell)) == _size(space)


def check_single_setting(factory: TunerFactory) -> None:
    """A space of one setting, with and without knobs."""
    for knobs in ([choice("only", (1,))], []):
        space = SearchSpace([part("one", knobs)])
        tuner = factory(TuningTask(space=space))
        (candidate,) = tuner.ask(8)
        assert space.number(candidate) == 0
        tuner.tell([measured(candidate, 1e-4)])
        assert tuner.ask(8) == []


def check_more_asked_than_left(factory: TunerFactory) -> None:
    """A count beyond what is left gives what is left."""
    space = small()
    tuner, seen = factory(TuningTask(space=space)), set[Candidate]()
    for _ in range(_ENDLESS):
        candidates = _asked(tuner, space, 100, seen)
        if not candidates:
            break
        tuner.tell([measured(c, time_of(dict(c.settings))) for c in candidates])
    assert len(seen) == _size(space)


def check_told_before_asked(factory: TunerFactory) -> None:
    """Outcomes from a database come first and are not asked for again."""
    space = small()
    assert space.listed is not None
    every = [space.candidate(int(number)) for number in space.listed]
    tuner, seen = factory(TuningTask(space=space)), set(every[:9])
    tuner.tell([measured(c, time_of(dict(c.settings))) for c in every[:6]])
    tuner.tell([failed(c) for c in every[6:9]])
    for _ in range(_ENDLESS):
        if not _asked(tuner, space, 4, seen):
            break
    assert seen == set(every)


def check_foreign_outcomes(factory: TunerFactory) -> None:
    """Outcomes of other spaces change nothing and break nothing."""
    space = small()
    own = space.candidate(1)
    strangers = [
        structs.replace(own, implementation="another"),
        structs.replace(own, forms=(PLAIN, blocked(16))),
        structs.replace(own, settings=(("a", 999),)),
        structs.replace(own, settings=()),
        structs.replace(own, settings=(*own.settings, ("more", True))),
    ]
    untouched, tuner = factory(TuningTask(space=space)), factory(TuningTask(space=space))
    tuner.tell([measured(c, 1e-9) for c in strangers])
    tuner.tell([failed(c) for c in strangers])
    assert tuner.ask(4) == untouched.ask(4), "outcomes of another space changed the proposals"


def check_same_seed_same_search(factory: TunerFactory) -> None:
    """The same seed and outcomes give the same proposals."""
    first, second = (
        [o.candidate for o in hill.search(factory(TuningTask(space=hill.space, seed=7)), 40)]
        for hill in (smooth(), smooth())
    )
    assert first == second, "two searches with one seed differ"


def check_guesses_first(factory: TunerFactory) -> None:
    """Guesses that fit the space are proposed before anything else, others never."""
    space = small()
    guesses = tuple(space.candidate(number) for number in (5, 9, 3))
    invalid = space.candidate(0)
    strange = structs.replace(guesses[0], implementation="another")
    task = TuningTask(space=space, guesses=(invalid, strange, *guesses, guesses[0]))
    tuner, seen = factory(task), set[Candidate]()
    first = [*_asked(tuner, space, 2, seen), *_asked(tuner, space, 2, seen)]
    assert tuple(first[:3]) == guesses, "the guesses do not come first, in their order"


def check_large_spaces(factory: TunerFactory) -> None:
    """A space of a thousand million settings is searched without looking at all of them."""
    looks = 0

    def half(settings: Settings) -> bool:
        nonlocal looks
        looks += 1
        assert looks < _MOST_LOOKS, f"{looks} settings of a large space looked at"
        return (int(settings["a"]) + int(settings["b"])) % 2 == 0

    names = ("a", "b", "c")
    knobs = [split(n, 1000, policy="candidates", candidates=range(1, 1001)) for n in names]
    space = SearchSpace([part("large", knobs, filters=[half])])
    assert space.range_length > LISTED
    far = Landscape(space=space, times=lambda s: 1e-6 * sum(int(s[name]) for name in names))
    tuner, seen = factory(TuningTask(space=space)), set[Candidate]()
    for _ in range(4):
        candidates = _asked(tuner, space, 8, seen)
        assert candidates, "nothing proposed on a large space"
        tuner.tell([far.outcome(candidate) for candidate in candidates])


def check_with_estimates(factory: TunerFactory) -> None:
    """Estimates, right or wrong, are welcome; proposals stay valid and distinct."""
    hill = smooth(estimated=True)
    tuner, seen = factory(TuningTask(space=hill.space)), set[Candidate]()
    for _ in range(6):
        candidates = _asked(tuner, hill.space, 8, seen)
        assert candidates, "nothing proposed where much is left"
        tuner.tell([hill.outcome(candidate) for candidate in candidates])


CHECKS: tuple[Callable[[TunerFactory], None], ...] = (
    check_exhausts_small_spaces,
    check_asked_without_being_told,
    check_failures_only,
    check_failures_among_times,
    check_single_setting,
    check_more_asked_than_left,
    check_told_before_asked,
    check_foreign_outcomes,
    check_same_seed_same_search,
    check_guesses_first,
    check_large_spaces,
    check_with_estimates,
)


def check_tuner(factory: TunerFactory) -> None:
    """All checks one after the other; raises AssertionError with what was not kept."""
    for check in CHECKS:
        check(factory)


class TunerConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `factory`."""

    factory: TunerFactory

    def test_exhausts_small_spaces(self) -> None:
        check_exhausts_small_spaces(self.factory)

    def test_asked_without_being_told(self) -> None:
        check_asked_without_being_told(self.factory)

    def test_failures_only(self) -> None:
        check_failures_only(self.factory)

    def test_failures_among_times(self) -> None:
        check_failures_among_times(self.factory)

    def test_single_setting(self) -> None:
        check_single_setting(self.factory)

    def test_more_asked_than_left(self) -> None:
        check_more_asked_than_left(self.factory)

    def test_told_before_asked(self) -> None:
        check_told_before_asked(self.factory)

    def test_foreign_outcomes(self) -> None:
        check_foreign_outcomes(self.factory)

    def test_same_seed_same_search(self) -> None:
        check_same_seed_same_search(self.factory)

    def test_guesses_first(self) -> None:
        check_guesses_first(self.factory)

    def test_large_spaces(self) -> None:
        check_large_spaces(self.factory)

    def test_with_estimates(self) -> None:
        check_with_estimates(self.factory)
