"""What tests of kernels for ARM look at: machine code, and results where QEMU is."""

from __future__ import annotations

import re

import pytest

import emulated_kernels

needs_emulation = pytest.mark.skipif(
    emulated_kernels.emulator() is None,
    reason="no QEMU for user programs, or no compiler for ARM, is here",
)


def spilled(text: str, instruction: str) -> list[str]:
    """Lines of the innermost loop that move vector registers to the stack or back."""
    loops = re.split(r"^(?=\.LBB)", text, flags=re.MULTILINE)
    inner = max(loops, key=lambda loop: loop.count(f"\t{instruction}\t"))
    inside = inner[: inner.rindex(f"\t{instruction}\t")]
    return [line for line in inside.splitlines() if re.search(r"\b[qd]\d+.*\[sp", line)]
