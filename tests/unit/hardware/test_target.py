"""Targets that a person writes: what is refused, and what is said to help."""

from __future__ import annotations

import pytest

from tilewright.core.errors import TargetError
from tilewright.hardware.target import read_target


@pytest.mark.parametrize(
    ("text", "helps"),
    [
        ("lvm", "Did you mean llvm?"),
        ("simulatde", "`tilewright targets` lists"),
        ('{"kind": "opencl"}', "`tilewright targets` lists"),
        ("cuda", "--target 'cuda -model=H100'"),
    ],
)
def test_another_kind_is_refused_with_a_way_out(text: str, helps: str) -> None:
    with pytest.raises(TargetError, match="is not supported") as caught:
        read_target(text)
    assert helps in (caught.value.hint or "")
