"""A verb offers the flags that it heeds, and no others; its help has examples that can be typed."""

from __future__ import annotations

import ast
import inspect
import shlex
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import pytest

from helpers.commands.verbs import Verb, attributes, names, tree_of, verbs
from tilewright.cli.help_pages import EXAMPLES
from tilewright.cli.main import build_app
from tilewright.session import Session

pytestmark = pytest.mark.regression

VERBS = verbs()
EVERY_VERB = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
OF_SESSION = {
    "db": {"_location"},
    "threads": {"_threads"},
    "seed": {"seed"},
    "target": {"_target"},
    "tracker": {"_tracker"},
}
"""Flags that open the session, and the attributes of it that hold them."""

OF_OPTIONS = {"batch", "shape", "seed"}
"""Flags that go into the ModelOptions."""

EMITTERS = {"working"}
"""What answers where and how `--out` and `--format` say."""

CONVERTED = {"power": "meter_name", "meter": "meter_name"}
"""Flags that are read by a property of their class."""


def session_reads(methods: Iterable[str]) -> set[str]:
    """The attributes of a Session that its methods read, those they call included."""
    found: set[str] = set()
    left = list(methods)
    while left:
        name = left.pop()
        member = inspect.getattr_static(Session, name, None)
        function: Callable[..., Any] | None = getattr(member, "fget", member)
        if name in found or not inspect.isfunction(function):
            found.add(name)
            continue
        found.add(name)
        left += [
            node.attr
            for node in ast.walk(tree_of(function))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ]
    return found


def session_methods(verb: Verb) -> set[str]:
    """`work.session.NAME` in a verb's function."""
    return {
        node.attr
        for node in ast.walk(verb.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "session"
    }


def heeds(verb: Verb, flag: str) -> bool:
    """Whether something reads what a flag says."""
    tree = verb.tree
    read = attributes(tree)
    if flag in verb.own:
        return flag in names(tree)
    if flag in ("out", "format"):
        return flag in read or bool(names(tree) & EMITTERS)
    if flag in OF_OPTIONS and "options" in read and "options" in names(tree):
        return True
    if flag in OF_SESSION and session_reads(session_methods(verb)) & OF_SESSION[flag]:
        return True
    if CONVERTED.get(flag, flag) in read:
        return True
    group = verb.group_of(flag)
    assert group is not None
    known = [vars(base).get(name) for base in group.__mro__ for name in read]
    called = [method for method in known if inspect.isfunction(method)]
    asked = {name for method in called for name in attributes(tree_of(method))}
    members = [vars(base).get(name) for base in group.__mro__ for name in asked]
    told = [member.fget for member in members if isinstance(member, property)]
    return flag in asked or any(flag in attributes(tree_of(each)) for each in told)


@EVERY_VERB
def test_every_flag_is_heeded(verb: Verb) -> None:
    flags = [field.name for group in verb.groups for field in fields(group)]
    assert {"out", "format"} <= set(flags)
    ignored = [flag for flag in (*verb.own, *flags) if not heeds(verb, flag)]
    assert not ignored


@EVERY_VERB
def test_what_the_session_reads_is_offered(verb: Verb) -> None:
    """The other way round: no verb works with a seed or a database that nobody can choose."""
    read = session_reads(session_methods(verb))
    flags = {field.name for group in verb.groups for field in fields(group)} | set(verb.own)
    needed = {flag for flag, held in OF_SESSION.items() if read & held}
    if verb.group_of("target") is None:
        needed -= {"target", "tracker"}
    assert needed <= flags


def test_an_ignored_flag_is_found() -> None:
    """The test above would see one: `doctor` reads the database's path, but no seed."""
    read = session_reads(["doctor"])
    assert "_location" in read and "seed" not in read and "_threads" not in read


REFUSED = [
    ("run", "--seed", "1"),
    ("run", "--db", "x.db"),
    ("solve", "--threads", "2"),
    ("solve", "--db", "x.db"),
    ("simulate", "--threads", "2"),
    ("doctor", "--seed", "1"),
    ("doctor", "--threads", "2"),
    ("targets", "--db", "x.db"),
    ("fit", "--seed", "1"),
    ("study tuners", "--db", "x.db"),
    ("study tuners", "--seed", "1"),
    ("db info", "--threads", "2"),
    ("db gc", "--seed", "1"),
    ("db merge", "--db", "x.db"),
]


@pytest.mark.parametrize("tokens", REFUSED, ids=" ".join)
def test_flags_that_did_nothing_are_refused(
    tilewright: Callable[..., Any], tokens: tuple[str, str, str]
) -> None:
    verb, flag, value = tokens
    ran = tilewright(*verb.split(), flag, value)
    assert ran.code == 2
    assert flag in ran.err and "Unknown option" in ran.err


def test_examples_are_of_all_verbs() -> None:
    assert set(EXAMPLES) == {verb.name for verb in VERBS}


@EVERY_VERB
def test_examples_can_be_typed(verb: Verb) -> None:
    for line in EXAMPLES[verb.name]:
        program, *tokens = shlex.split(line)
        assert program == "tilewright"
        function, bound, _ = build_app().parse_args(tokens, exit_on_error=False, print_error=False)
        assert function is verb.function, line
        assert len(bound.arguments) > 0 or len(tokens) == len(verb.name.split()), line


@EVERY_VERB
def test_help_shows_the_examples(tilewright: Callable[..., Any], verb: Verb) -> None:
    ran = tilewright(*verb.name.split(), "--help")
    shown = " ".join(ran.out.split())
    assert "Examples:" in shown
    for line in EXAMPLES[verb.name]:
        assert line in shown


def test_verbs_are_in_groups(tilewright: Callable[..., Any]) -> None:
    out = tilewright("--help").out
    headings = ("Make a network faster", "See where its time goes", "Predict before it runs")
    headings += ("Experiments", "The machine and its records", "Help")
    places = [out.index(heading) for heading in (f"─ {name} ─" for name in headings)]
    assert places == sorted(places)
    for verb in VERBS:
        assert f"│ {verb.name.split()[0]} " in out


@pytest.mark.parametrize(
    ("tokens", "guess"),
    [
        (("optimze", "m"), "Did you mean optimize?"),
        (("optimize", "m", "--buget", "3"), "Did you mean --budget?"),
        (("db", "nfo"), "Did you mean info?"),
    ],
)
def test_a_slip_gets_a_guess(
    tilewright: Callable[..., Any], tokens: tuple[str, ...], guess: str
) -> None:
    ran = tilewright(*tokens)
    assert (ran.code, guess in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("tokens", [("xyz",), ("optimize", "m", "--foo", "3"), ("db", "drop")])
def test_what_is_far_from_everything_gets_none(
    tilewright: Callable[..., Any], tokens: tuple[str, ...]
) -> None:
    ran = tilewright(*tokens)
    assert ran.code == 2
    assert "Did you mean" not in ran.err
