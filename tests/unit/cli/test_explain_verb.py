"""`tilewright explain`: operators, and the number of threads of a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from helpers.fakes.session import FakeSession

Command = Callable[..., Any]


def test_threads_without_a_number_are_the_question(
    tilewright: Command, session: FakeSession
) -> None:
    ran = tilewright("explain", "zoo:mlp", "--threads", "--format", "json")
    assert json.loads(ran.out)["data"]["best_threads"] == 1
    assert session.calls[0]["threads"] is None
    assert tilewright("explain", "op:conv2d[c=64]", "--threads", "3", "--confirm").code == 0
    opened, call = session.calls[2:]
    assert opened["threads"] == 3
    assert (call["name"], call["confirm"]) == ("op:conv2d[c=64]", True)
    ran = tilewright("explain", "zoo:mlp", "--thread-counts", "--threads", "8", "--format", "json")
    assert json.loads(ran.out)["data"]["best_threads"] == 1
    assert session.calls[4]["threads"] == 8


def test_factors_are_told_with_what_exchanging_them_does(tilewright: Command) -> None:
    shown = tilewright("explain", "op:conv2d[c=64]").out
    _, alone = shown.split("Factors, one varied at a time")
    assert "42.0 %" in alone
    assert "1=2.5" in alone
    assert "implementation" not in alone.split("Turning points")[0]
    ran = tilewright("explain", "op:conv2d[c=64]", "--format", "json")
    kind, width = json.loads(ran.out)["data"]["factors"]
    assert (kind["permutation_importance"], kind["partial_dependence"]) == (None, {})
    assert (width["permutation_importance"], width["partial_dependence"]) == (0.42, {"1": 2.5})


@pytest.mark.parametrize(
    ("tokens", "word"),
    [
        (("--thread-counts", "--versus", "zoo:mlp"), "--versus is for operators"),
        (("--confirm", "--threads"), "--confirm is for operators"),
        (("--threads", "2", "3"), "one number or none, not 2 3"),
        (("--threads", "0"), "at least 1"),
        (("--threads", "few"), "--threads"),
    ],
)
def test_threads_of_explain_that_make_no_sense(
    tilewright: Command, tokens: tuple[str, ...], word: str
) -> None:
    ran = tilewright("explain", "zoo:mlp", *tokens)
    assert ran.code == 2
    assert word in ran.err
