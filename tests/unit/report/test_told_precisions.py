"""In which precision a plan was made, of each network and of the devices that differ in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.scheduling import mode, plain_problem
from tilewright.plan.scheduling.answering import answer


@pytest.mark.parametrize(
    ("precisions", "beside", "said"),
    [
        ({"a": "bfloat16"}, {}, "bfloat16"),
        ({"a": "bfloat16"}, {"a": {"cuda": "float32"}}, "bfloat16, float32 on cuda"),
        ({"a": "int8", "b": "int8"}, {}, "int8"),
        ({"a": "int8", "b": "float32"}, {}, "a: int8, b: float32"),
        (
            {"a": "float16", "b": "int8"},
            {"a": {"cuda": "float32"}},
            "a: float16, float32 on cuda; b: int8",
        ),
        (
            {"a": "float16", "b": "float16"},
            {"a": {"cuda": "float32"}, "b": {"cuda": "float32"}},
            "float16, float32 on cuda",
        ),
    ],
)
def test_each_network_has_its_own(precisions: Any, beside: Any, said: str) -> None:
    found = answer(plain_problem({"a": (mode(us=1),)}), "sequential", 1.0).result
    told = str(replace(found, precisions=precisions, device_precisions=beside))
    assert [
        line.split(None, 1)[1].strip() for line in told.splitlines() if "precision " in line
    ] == [said]
