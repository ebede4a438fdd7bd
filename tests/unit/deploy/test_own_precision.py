"""How `compare` names what our network is in, of a mixture by the coarsest type in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs

from helpers.fakes.prepared_network import prepared, two_convolutions
from helpers.fakes.session import compare_row
from tilewright.core.forms import stored_in
from tilewright.deploy.comparing import _own_precision  # pyright: ignore[reportPrivateUsage]
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument
from tilewright.report.comparison import against_baseline, counts

NETWORK = prepared(two_convolutions())


def named(precision: str, implementation: str = "", stored: str | None = None) -> str:
    """Of the network with one call changed: its implementation, the type of its result, and what it
    reads where that is on codes."""
    first, *others = NETWORK.plan.calls
    if implementation.endswith("_int8"):
        codes = ("uint8", "int8", "int32", "float32")
        arguments = tuple(
            Argument(type=TensorType(each.type.shape, dtype), role=each.role)
            for each, dtype in zip(first.workload.arguments, codes, strict=False)
        )
        first = replace(first, workload=replace(first.workload, arguments=arguments))
    forms = (*first.candidate.forms[:-1], stored_in(first.candidate.forms[-1], stored))
    name = implementation or first.candidate.implementation
    changed = structs.replace(first.candidate, implementation=name, forms=forms)
    plan = replace(NETWORK.plan, calls=(replace(first, candidate=changed), *others))
    return _own_precision(replace(NETWORK, precision=cast(Any, precision)), plan)


@pytest.mark.parametrize(
    ("implementation", "stored", "told"),
    [
        ("", None, "auto (fp32)"),
        ("", "bfloat16", "auto (bf16)"),
        ("conv2d_bfloat16", None, "auto (bf16)"),
        ("conv2d_bfloat16", "float16", "auto (bf16)"),
        ("conv2d_float16", None, "auto (fp16)"),
        ("dense_int8_weights", None, "auto (int8 weights)"),
        ("conv2d_int8", None, "auto (int8)"),
        ("conv2d_int8", "bfloat16", "auto (int8)"),
    ],
)
def test_a_mixture_is_named_by_its_coarsest_type(
    implementation: str, stored: str | None, told: str
) -> None:
    assert named("auto", implementation, stored) == told
    assert named("bfloat16", implementation, stored) == "bf16"


def test_peers_in_the_coarsest_type_of_a_mixture_count() -> None:
    row = replace(compare_row("a", "openvino", 1.2, precision="bf16"), own_precision="auto (bf16)")
    assert counts(row) and not counts(replace(row, precision="fp32"))


def test_a_mixture_is_compared_with_what_an_earlier_version_called_by_its_type() -> None:
    row = replace(compare_row("a", "openvino", 1.2, precision="bf16"), own_precision="auto (bf16)")
    found = against_baseline([row], [replace(row, own_precision="bf16")])
    assert found is not None and found.ratio == pytest.approx(1.0)
