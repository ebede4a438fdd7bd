"""Blocks of up to so many calls are cut out of networks."""

from __future__ import annotations

from helpers.scheduling import on_cores, plain_problem
from planners import beside, parts


def test_networks_are_cut_where_every_way_goes_through() -> None:
    waits = "a>b a>c b>d c>d d>e d>f e>g f>g g>h"
    problem = plain_problem({name: on_cores(20) for name in "abcdefgh"}, waits)
    found = list(parts(problem, 5))
    assert [[call.name for call in part.calls] for part in found] == [list("abcd"), list("defgh")]
    assert [call.name for call in found[0].calls if call.answer] == ["d"], "what others read"


def test_long_sections_are_cut_by_numbers_and_chains_left_out() -> None:
    waits = "a>b a>c b>d c>e d>f e>f f>g g>h"
    problem = plain_problem({name: on_cores(20) for name in "abcdefgh"}, waits)
    found = [[call.name for call in part.calls] for part in parts(problem, 3)]
    assert found == [list("abc"), list("def")], "f, g, h is a chain"


def test_networks_beside_each_other_do_not_wait() -> None:
    one = plain_problem({name: on_cores(20) for name in "ab"}, "a>b")
    both = beside(one, one)
    assert [call.name for call in both.calls] == ["0/a", "0/b", "1/a", "1/b"]
    assert [(wait.before, wait.after) for wait in both.waits] == [("0/a", "0/b"), ("1/a", "1/b")]
