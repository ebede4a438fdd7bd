"""What a network will need in memory, before anything is compiled."""

from __future__ import annotations

from math import prod

import pytest

from helpers.networks.fused_networks import ON, Builder, fused, planned
from tilewright.kernels.base import Workspaces
from tilewright.kernels.planned_memory import (
    CODE_BYTES,
    PAGE_BYTES,
    CompiledNetwork,
    LaneWorkspaces,
    planned_memory,
    pooled_bytes,
)

KIB = 1 << 10


@pytest.mark.parametrize(
    ("calls", "threads", "kib"),
    [
        ([], 2, 0),
        ([Workspaces(shared=(1,))], 2, 4),
        ([Workspaces(shared=(100 * KIB,)), Workspaces(shared=(60 * KIB,))], 2, 100),
        ([Workspaces(shared=(60 * KIB,)), Workspaces(shared=(100 * KIB,))], 2, 100),
        ([Workspaces(own=(40 * KIB, 8 * KIB))], 1, 48),
        ([Workspaces(own=(40 * KIB, 8 * KIB))], 3, 144),
        # a small buffer sits in the large piece, so that the next large one replaces nothing
        ([Workspaces(own=(40 * KIB,)), Workspaces(shared=(8 * KIB, 40 * KIB))], 2, 120),
    ],
)
def test_pools_keep_what_they_had(calls: list[Workspaces], threads: int, kib: int) -> None:
    assert pooled_bytes(calls, threads) == kib * KIB


@pytest.mark.parametrize(
    ("shared", "threads", "kib"),
    [
        ((60, 40), [[], []], 100),
        # what a call has given back the next one takes, beside what the team shares
        ((60,), [[(8,), (20,)], [(8,), (20,)]], 60 + 20 + 20),
        ((), [[(8, 8)], [(20,)], [(4,)]], 40),
    ],
)
def test_lanes_hold_what_teams_share_until_all_have_ended(
    shared: tuple[int, ...], threads: list[list[tuple[int, ...]]], kib: int
) -> None:
    sizes = tuple(tuple(tuple(KIB * n for n in call) for call in calls) for calls in threads)
    beside = LaneWorkspaces(shared=tuple(KIB * n for n in shared), threads=sizes)
    assert pooled_bytes([beside], 2) == kib * KIB
    later = Workspaces(shared=(8 * KIB,))
    assert pooled_bytes([beside, later], 2) == kib * KIB, "the pool of the caller has room"


def test_the_parts_add_up() -> None:
    b = Builder()
    x = b.input(1, 16, 14, 14)
    plan = planned(fused(b, b.conv(b.conv(x, 32), 16)))
    found = planned_memory(plan, ON.target)
    plane = 4 * 14 * 14
    assert found.interface_bytes == 2 * 16 * plane
    assert found.arena_bytes == 32 * plane
    sizes = [s.shape for s in plan.constants]
    assert found.weight_bytes == sum(4 * prod(shape) for shape in sizes) >= 2 * 4 * 16 * 32 * 9
    assert found.code_bytes == 2 * CODE_BYTES
    parts = (
        found.arena_bytes, found.weight_bytes, found.workspace_bytes, found.interface_bytes,
        found.code_bytes,
    )  # fmt: skip
    assert found.peak_bytes == sum(parts)


def test_what_was_compiled_is_believed() -> None:
    b = Builder()
    plan = planned(fused(b, b.conv(b.input(1, 16, 14, 14), 32)))
    (symbol,) = plan.symbols.values()
    compiled = CompiledNetwork(
        workspaces={symbol: Workspaces(shared=(5 * PAGE_BYTES,))}, library_bytes=777
    )
    found = planned_memory(plan, ON.target, compiled)
    assert (found.workspace_bytes, found.code_bytes) == (5 * PAGE_BYTES, 777)
