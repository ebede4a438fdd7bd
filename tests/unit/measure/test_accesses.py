"""Ways to reach devices: who is asked for a target, and what each can do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.plugins.offer import offering
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.records import Placement
from tilewright.hardware.device import local_placement
from tilewright.measure.accesses.registry import access_to, accesses
from tilewright.measure.targeting import (
    open_measurer,
    open_networks,
    placement_of,
    target_rows,
    usable_placement,
)
from tilewright.testing.implementations import made_up_placement

HERE = local_placement(1)


class Toy:
    """An access of another package, for targets that begin with `toy`."""

    name = "toy"
    here = False
    runs_networks = False
    note = ""

    def placement(self, target: str, _tracker: str | None, _threads: int | None):
        if not target.startswith("toy"):
            return None
        device = replace(HERE.device, class_key="toy", instance="toy", access="toy")
        return replace(HERE, device=device)

    def rows(self, _threads: int | None):
        return ()

    def refusal(self, _placement: Placement) -> None:
        return None

    def measurer(self, placement: Placement, *, seed: int, energy: object = None):
        return ("measurer", placement, seed, energy)

    def networks(self, placement: Placement):
        return ("networks", placement)


TOY = Toy()


@pytest.fixture
def toy(tmp_path: Path):
    with offering(tmp_path, {"tilewright.accesses": {"toy": f"{__name__}:TOY"}}):
        yield


def test_ours_by_name() -> None:
    assert list(accesses()) == ["rpc", "simulated", "cuda", "described", "here"]
    assert all(name == access.name for name, access in accesses().items())
    assert access_to(HERE.device).runs_networks and access_to(HERE.device).here


def test_a_device_that_no_package_reaches() -> None:
    lost = replace(HERE.device, access="heer")
    with pytest.raises(TargetError, match="reaches devices by 'heer'") as caught:
        access_to(lost)
    assert "here" in (caught.value.hint or "")


def test_another_packages_access_is_asked_first(toy: None) -> None:
    placement = placement_of("toy -size=2", None, None)
    assert placement.device.access == "toy"
    assert open_measurer(placement, seed=3) == ("measurer", placement, 3, None)
    assert open_networks(placement) == ("networks", placement)
    assert placement_of("llvm", None, 1).device == HERE.device


def test_what_is_only_described_runs_nothing() -> None:
    made_up = made_up_placement(64)
    for opened in (lambda: open_measurer(made_up, seed=0), lambda: open_networks(made_up)):
        with pytest.raises(TargetError, match="cannot run on this machine"):
            opened()
    foreign = placement_of('{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}', None, None)
    with pytest.raises(TargetError, match="cannot run on this machine"):
        usable_placement(foreign)


def test_a_tracker_is_for_remote_targets() -> None:
    with pytest.raises(UsageError, match="A tracker is for rpc: targets"):
        placement_of("llvm", "127.0.0.1:9190", None)
    with pytest.raises(UsageError, match="needs the address of its tracker"):
        placement_of("rpc:box", None, None)


def test_this_machine_is_listed_first() -> None:
    rows = target_rows(1)
    assert (rows[0].name, rows[0].usable) == ("llvm", True)
    assert {"rpc:KEY", "cuda -model=H100"} <= {row.name for row in rows[1:]}


def test_the_simulated_device_is_always_usable() -> None:
    """It builds nothing, so no compiler can be missing."""
    for threads in (None, 2):
        (row,) = [row for row in target_rows(threads) if row.name == "simulated"]
        assert row.usable and row.threads == (threads or 1) and row.target and row.detail
    placement = placement_of("simulated", None, 9)
    assert placement.resources.threads == 4, "it has four cores"
    assert placement_of("simulated", None, None).binding.cpus == (0,)
