"""The spaces of a task's implementations, and what they would pick unmeasured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.tuning import FORMS, MadeUp, workload
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, blocked
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels import spaces as space_module
from tilewright.kernels.search_space import LISTED
from tilewright.kernels.spaces import (
    TaskSpace,
    default_candidate,
    ranked_defaults,
    search_space,
    spaces,
    too_inexact,
)


def made_up(**knobs) -> MadeUp:
    return MadeUp(
        "one",
        knobs or {"z": (4, 1, 2), "a": ("x", "y"), "flag": (True, False)},
        guess=lambda s: 1.0 + abs(int(s["z"]) - 2) + (s["a"] == "x") if "z" in s else 1.0,
        allowed=lambda s: not (s.get("z") == 4 and s.get("a") == "x"),
    )


def space(spec: MadeUp) -> TaskSpace:
    return TaskSpace(workload=workload(), forms=FORMS, placement=PLACEMENT, spec=spec)


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make these implementations the only ones; what is remembered of a task is forgotten."""

    def put(*specs: MadeUp) -> None:
        space_module.forget_spaces()
        monkeypatch.setattr(space_module, "applicable", lambda *_: list(specs))

    yield put
    space_module.forget_spaces()


def test_both_ways() -> None:
    found = space(made_up())
    assert len(found.numbers) == 3 * 2 * 2 - 2
    seen = set()
    for number in found.numbers:
        candidate = found.part.candidate(int(number))
        assert found.part.knobs.number(dict(candidate.settings)) == number
        assert list(candidate.settings) == sorted(candidate.settings)
        assert candidate.forms == FORMS
        seen.add(candidate)
    assert len(seen) == len(found.numbers) == len(found.estimates_s)


def test_the_default_has_the_least_estimate(offer) -> None:
    offer(MadeUp("two", {"k": (1,)}, guess=lambda _: 5.0), made_up())
    chosen, estimate = default_candidate(workload(), FORMS, PLACEMENT)
    assert chosen.implementation == "one" and chosen.setting("z") == 2
    assert chosen.setting("a") == "y"
    assert estimate == 1.0
    ranked = ranked_defaults(workload(), FORMS, PLACEMENT)
    assert [(c.implementation, s) for c, s in ranked] == [("one", 1.0), ("two", 5.0)]


def test_implementations_without_settings_are_left_out(offer) -> None:
    empty = MadeUp("none", {"k": (1, 2)}, guess=lambda _: 0.1, allowed=lambda _: False)
    offer(empty, made_up())
    assert [s.spec.name for s in spaces(workload(), FORMS, PLACEMENT)] == ["one"]
    offer(empty)
    with pytest.raises(InternalError, match="no implementation"):
        spaces(workload(), FORMS, PLACEMENT)


def test_the_hopeless_are_not_searched_yet_have_a_default(offer) -> None:
    offer(made_up(), MadeUp("slow", {"k": (1,)}, guess=lambda _: 50.0))
    assert [s.spec.name for s in spaces(workload(), FORMS, PLACEMENT)] == ["one"]
    assert [p.name for p in search_space(workload(), FORMS, PLACEMENT).parts] == ["one"]
    ranked = ranked_defaults(workload(), FORMS, PLACEMENT)
    assert [candidate.implementation for candidate, _ in ranked] == ["one", "slow"]


def test_what_is_too_inexact_is_left_out_unless_nothing_is_more_exact(offer) -> None:
    rough, exact = made_up(), MadeUp("two", {"k": (1,)}, guess=lambda _: 5.0)
    rough.bound, exact.bound = 1e-5, 2e-6
    offer(rough, exact)

    def left(max_error: float) -> list[str]:
        ranked = ranked_defaults(workload(), FORMS, PLACEMENT, max_error)
        searched = [s.spec.name for s in spaces(workload(), FORMS, PLACEMENT, max_error)]
        assert searched == sorted(c.implementation for c, _ in ranked)
        return searched

    assert left(1e-4) == left(1e-5) == ["one", "two"]
    assert left(5e-6) == left(1e-12) == ["two"]
    assert too_inexact(workload(), FORMS, PLACEMENT, 5e-6) == {"one"}
    assert not too_inexact(workload(), FORMS, PLACEMENT, 1e-5)


def test_codes_may_round_to_their_neighbour_whatever_error_is_allowed(offer) -> None:
    rounding, exact = made_up(), MadeUp("two", {"k": (1,)}, guess=lambda _: 5.0)
    rounding.bound, exact.bound = 1 / 255, 2e-6
    offer(rounding, exact)
    argument = Argument(type=TensorType((4, 8), "int8"))
    codes = Workload(arguments=(argument,), steps=(Step(operator="relu", inputs=(0,)),))
    assert codes.result.dtype == "int8"
    assert not too_inexact(codes, (PLAIN, PLAIN), PLACEMENT, 1e-4)


def test_a_large_space_is_sampled() -> None:
    looks = 0

    def allowed(s) -> bool:
        nonlocal looks
        looks += 1
        return s["a"] != s["b"]

    knobs = {name: tuple(range(1000)) for name in "abc"}
    huge = space(MadeUp("huge", knobs, guess=lambda s: 1.0 + int(s["a"]), allowed=allowed))
    assert huge.part.knobs.range_length == 10**9 > LISTED
    assert 1000 < len(huge.numbers) < 10_000
    assert looks < 100_000
    best = huge.best_guess
    assert best is not None and best[1] == huge.estimates_s.min() < 10.0


@pytest.mark.parametrize("extent", [7, 17, 35, 73, 149])
def test_real_spaces_number_both_ways(extent: int) -> None:
    named = attributes(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1)
    task = Workload(
        arguments=(
            Argument(type=TensorType((1, 32, extent, extent))),
            Argument(type=TensorType((32, 32, 3, 3)), role="constant"),
        ),
        steps=(Step(operator="conv2d", inputs=(0, 1), attributes=named),),
    )
    found = search_space(task, (blocked(16), PLAIN, blocked(16)), PLACEMENT)
    numbers = found.sample(np.random.default_rng(0), 200)
    assert len(set(numbers)) == 200
    for number in numbers:
        assert found.valid(number)
        assert found.number(found.candidate(number)) == number
    estimates = found.estimates_s(numbers)
    assert estimates is not None and (estimates > 0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_the_allowed_error_holds_for_every_type_of_floats(offer, dtype: str) -> None:
    """In halves the least bound there is may be above it."""
    rough, exact = made_up(), MadeUp("two", {"k": (1,)}, guess=lambda _: 5.0)
    rough.bound, exact.bound = 0.5, 0.008
    offer(rough, exact)
    argument = Argument(type=TensorType((4, 8), dtype))
    floats = Workload(arguments=(argument,), steps=(Step(operator="relu", inputs=(0,)),))
    assert too_inexact(floats, (PLAIN, PLAIN), PLACEMENT, 1e-4) == {"one"}
