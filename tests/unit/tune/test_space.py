"""Numbering settings both ways."""

from __future__ import annotations

import pytest
from tuning_fakes import DEVICE, LAYOUTS, MadeUp, workload

from tilewright.core.errors import InternalError
from tilewright.graph.network import attributes
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.tune import space as space_module
from tilewright.tune.space import TaskSpace, default_candidate, spaces


def made_up(**knobs) -> MadeUp:
    return MadeUp(
        "one",
        knobs or {"z": (4, 1, 2), "a": ("x", "y"), "flag": (True, False)},
        guess=lambda s: 1.0 + abs(int(s["z"]) - 2) + (s["a"] == "x") if "z" in s else 1.0,
        allowed=lambda s: not (s.get("z") == 4 and s.get("a") == "x"),
    )


def space(spec: MadeUp) -> TaskSpace:
    return TaskSpace(workload=workload(), layouts=LAYOUTS, device=DEVICE, spec=spec)


def test_both_ways() -> None:
    found = space(made_up())
    assert len(found.settings) == 3 * 2 * 2 - 2
    seen = set()
    for index in range(len(found.settings)):
        candidate = found.candidate(index)
        assert found.index_of[candidate.settings] == index
        assert list(candidate.settings) == sorted(candidate.settings)
        assert candidate.layouts == LAYOUTS
        seen.add(candidate)
    assert len(seen) == len(found.settings) == len(found.estimates_s)


def test_the_default_has_the_least_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = MadeUp("two", {"k": (1,)}, guess=lambda _: 5.0)
    monkeypatch.setattr(space_module, "applicable", lambda *_: [slower, made_up()])
    chosen, estimate = default_candidate(workload(), LAYOUTS, DEVICE)
    assert chosen.implementation == "one" and chosen.setting("z") == 2
    assert chosen.setting("a") == "y"
    assert estimate == 1.0


def test_implementations_without_settings_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = MadeUp("none", {"k": (1, 2)}, guess=lambda _: 0.1, allowed=lambda _: False)
    monkeypatch.setattr(space_module, "applicable", lambda *_: [empty, made_up()])
    assert [s.spec.name for s in spaces(workload(), LAYOUTS, DEVICE)] == ["one"]
    monkeypatch.setattr(space_module, "applicable", lambda *_: [empty])
    with pytest.raises(InternalError, match="no implementation"):
        spaces(workload(), LAYOUTS, DEVICE)


def test_a_space_too_large_to_list_is_our_bug() -> None:
    huge = MadeUp("huge", {"a": tuple(range(200)), "b": tuple(range(200))}, guess=lambda _: 1.0)
    with pytest.raises(InternalError, match="more than"):
        _ = space(huge).settings


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
    for found in spaces(task, ("blocked16", "plain", "blocked16"), DEVICE):
        for index in range(0, len(found.settings), 7):
            assert found.index_of[found.candidate(index).settings] == index
