"""Candidates of one's choice are found, timed in turn, and shown."""

from __future__ import annotations

import pytest

import candidates
from candidates import candidate, main, text_of
from tilewright.testing.implementations import made_up_placement, plain, single

TASK = single("dense", (1, 784), (784, 512), constants=(1,))
OPERATOR = "op:dense[k=784,n=512]"


def found(text: str) -> str | None:
    chosen = candidate(text, TASK, plain(TASK), made_up_placement())
    return None if chosen is None else text_of(chosen)


def test_a_text_names_a_candidate_and_what_it_leaves_out_has_the_least_estimate() -> None:
    whole = "dense_packed[block=64 order=columns tile_rows=1]"
    assert found("dense_packed") == "dense_packed[block=128 order=columns tile_rows=1]"
    assert found("dense_packed[block=64]") == found(whole) == whole
    assert found("generic") == "generic[]"


@pytest.mark.parametrize(
    "text", ["conv2d_direct", "dense_packed[block=63]", "dense_packed[blocks=64]"]
)
def test_what_the_task_cannot_have_is_none(text: str) -> None:
    assert found(text) is None


def test_candidates_are_timed_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    main([OPERATOR, "dense_packed", "generic", "--rounds", "2", "--target", "simulated"])
    key, first, second = capsys.readouterr().out.splitlines()
    assert key.startswith("dense-")
    assert first.startswith("  dense_packed[block=") and "ratio" not in first
    assert second.startswith("  generic[]: median ") and ", ratio " in second


def test_of_a_network_tasks_are_looked_at_that_all_can_compute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "render", lambda task, chosen, on, view: f"the {view}")
    main(["zoo:mlp", "dense_packed", "--tir", "--target", "simulated"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2 and set(lines[1::2]) == {"the tir"}
    assert all(line.startswith("# dense-") and "dense_packed[" in line for line in lines[::2])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing"], "no implementation is called 'nothing'"),
        (["generic", "--rounds", "1"], "no interval"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([OPERATOR, *arguments])
    assert told in capsys.readouterr().err


def test_a_model_without_such_a_task_is_an_error() -> None:
    with pytest.raises(SystemExit, match=r"no task of op:dense.* has all of conv2d_direct"):
        main([OPERATOR, "conv2d_direct", "--target", "simulated"])
