"""What counts as the same answer of two versions."""

from __future__ import annotations

import json

import pytest

from replayed_commands import COMMANDS, Ended, differences


def answered(data: object, code: int = 0, stderr: str = "") -> Ended:
    return Ended(code, json.dumps({"schema_version": 1, "data": data}), stderr)


def test_numbers_and_more_fields_are_the_same() -> None:
    before = answered({"latency_s": 0.1, "tasks": [{"name": "a"}]}, stderr="took 3.5 ms in /a/b/c")
    now = answered(
        {"latency_s": 0.2, "tasks": [{"name": "a", "flop": 3}], "more": 1},
        stderr="took 12 ms in /d/e",
    )
    assert not list(differences(before, now))
    assert list(differences(now, before)) == ["no field .data.more", "no field .data.tasks[].flop"]


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (Ended(0, "", ""), Ended(70, "", ""), "exit code 0, now 70"),
        (Ended(0, "a table", ""), Ended(0, "a list", ""), "-a table"),
        (Ended(2, "", "error: no x"), Ended(2, "", "error: no y"), "+error: no y"),
    ],
)
def test_other_codes_texts_and_messages_differ(before: Ended, now: Ended, told: str) -> None:
    assert told in list(differences(before, now))


def test_every_verb_is_replayed() -> None:
    from tilewright.cli.main import build_app

    verbs = {command.split()[0] for command in COMMANDS}
    assert {name for name in build_app() if not name.startswith("-")} <= verbs
