"""Guesses at what was meant are made only where one is likely."""

from __future__ import annotations

import pytest

from tilewright.core.errors import all_known, close_matches

pytestmark = pytest.mark.regression

NETWORKS = ("bert_base", "densenet121", "resnet18", "resnet34", "vgg16", "Worst")


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("resnet19", "resnet18"),
        ("resnet3", "resnet34"),
        ("ResNet18", "resnet18"),
        ("bert", "bert_base"),
        ("bert-base", "bert_base"),
        ("worst", "Worst"),
    ],
)
def test_a_slip_of_the_fingers_gets_a_guess(name: str, guess: str) -> None:
    assert close_matches(name, NETWORKS).startswith(f"Did you mean {guess}")


@pytest.mark.parametrize("name", ["warm", "mobilenet", "b", "transformer", ""])
def test_anything_else_gets_the_list(name: str) -> None:
    hint = close_matches(name, NETWORKS)
    assert hint == "Known: Worst, bert_base, densenet121, resnet18, resnet34, vgg16"


def test_names_are_shown_as_is_asked_for() -> None:
    assert close_matches("ab\x9b", ["ab\x9bc"], repr) == "Did you mean 'ab\\x9bc'?"
    assert close_matches("z", ["a"], repr) == "Known: 'a'"


def test_very_long_lists_are_cut_and_empty_ones_said() -> None:
    assert all_known(f"name{n:04}" for n in range(150)).endswith("name0099 and 50 more")
    assert all_known([]) == "None is known."
