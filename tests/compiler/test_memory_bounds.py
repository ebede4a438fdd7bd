"""No kernel touches memory outside its operands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.commands.warm_commands import warm
from helpers.kernels import guarded_memory

pytest.importorskip("tvm")

from tilewright.core.forms import PLAIN, Form, blocked, form_texts, stored_in
from tilewright.graph.workload import Workload
from tilewright.testing.implementations import single

WINDOW = {"dilation": (1, 1)}
SAME = {"kernel": (3, 3), "strides": (1, 1), "padding": (1, 1, 1, 1), **WINDOW}
DOWN = {"kernel": (3, 3), "strides": (2, 2), "padding": (0, 1, 1, 0), **WINDOW}
B, P, LINE = blocked(16), PLAIN, stored_in(blocked(32), "bfloat16")


def conv(
    channels: int, filters: int, extent: int, kernel: tuple[int, int], groups: int = 1
) -> Workload:
    padding = (kernel[0] // 2, kernel[1] // 2) * 2
    return single(
        "conv2d",
        (1, channels, extent, extent),
        (filters, channels // groups, *kernel),
        constants=(1,),
        strides=(1, 1),
        padding=padding,
        dilation=(1, 1),
        groups=groups,
    )


def row(channels: int, filters: int, width: int) -> Workload:
    """A convolution 1×1 of a single row."""
    attributes = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    shapes = (1, channels, 1, width), (filters, channels, 1, 1)
    return single("conv2d", *shapes, constants=(1,), **attributes)


_MORE = frozenset({"1x1", "3x3", "5x5", "1x7 and 7x1", "max pool"})
"""Much like others."""
CASES: dict[str, list[tuple[Workload, tuple[Form, ...]]]] = {
    "average pool": [
        (single("avg_pool2d", (1, 32, 8, 8), count_include_pad=include, **named), forms)
        for include in (True, False)
        for named in (SAME, DOWN)
        for forms in ((B, B), (P, P), (P, B))
    ],
    "max pool": [
        (single("max_pool2d", (1, 32, 8, 8), **named), forms)
        for named in (SAME, DOWN, {**SAME, "padding": (2, 2, 2, 2)})
        for forms in ((B, B), (P, P), (B, blocked(32)))
    ],
    "3x3": [(conv(32, 32, 8, (3, 3)), (B, P, B)), (conv(32, 32, 7, (3, 3)), (P, P, B))],
    "1x7 and 7x1": [(conv(32, 32, 9, (1, 7)), (B, P, B)), (conv(32, 32, 9, (7, 1)), (B, P, B))],
    "5x5": [(conv(32, 32, 9, (5, 5)), (B, P, blocked(32)))],
    "1x1": [(conv(64, 32, 7, (1, 1)), (B, P, B)), (conv(64, 32, 7, (1, 1)), (P, P, P))],
    "channels that nothing divides": [
        (conv(32, 37, 8, kernel), (form, P, P))
        for kernel in ((1, 1), (3, 3))
        for form in (B, P)
    ],
    "depthwise": [
        (conv(32, 32, 9, (3, 3), 32), (B, P, B)),
        (conv(32, 32, 9, (5, 5), 32), (P, P, B)),
    ],
    "rows": [
        (single("softmax", (16, 24), axis=1), (P, P)),
        (single("reduce_mean", (1, 64, 7, 7), axes=(2, 3), keepdims=True), (B, B)),
    ],
    "tile registers": [
        (row(64, 64, width), (LINE, P, LINE)) for width in (7, 17, 49)
    ] + [(conv(32, 64, 9, (3, 3)), (LINE, P, LINE))],
    "copies": [
        (single("identity", (1, 64, 7, 7)), forms)
        for forms in ((P, B), (B, blocked(32)), (blocked(64), P))
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.on_request if name in _MORE else ()) for name in CASES],
)
def test_operands_may_lie_at_the_edge_of_memory(name: str) -> None:
    cases = [[task.text, form_texts(forms)] for task, forms in CASES[name]]
    code = f"from {guarded_memory.__name__} import main\nmain({cases!r})"
    ended, out, err = warm(Path(__file__).parents[1], os.environ, code=code)
    lines = out.splitlines()
    last = lines[-1] if lines else ""
    assert ended == 0 and last == "done", f"{last}\n{err[-600:]}"
    assert len(lines) > len(CASES[name])


def test_the_guard_bites() -> None:
    script = (
        "from helpers.kernels.guarded_memory import guarded\n"
        "import ctypes\n"
        "view = guarded(64, at_end=sys.argv[1] == 'end')\n"
        "offset = 64 if sys.argv[1] == 'end' else -1\n"
        "print(ctypes.c_char.from_address(view.ctypes.data + offset).value)\n"
    )
    for side in ("end", "start"):
        code = script.replace("sys.argv[1]", repr(side))
        assert warm(Path(__file__).parents[1], os.environ, code=code)[0] < 0
