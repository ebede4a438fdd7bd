"""The shipped suites, run on what is built in and needs a compiler: LLVM's builder, this machine,
and servers of TVM's RPC."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.processes.rpc_processes import Farm, farm
from tilewright.compiler.builders.registry import builder_named
from tilewright.hardware.device import local_placement
from tilewright.measure.accesses.registry import accesses
from tilewright.testing.accesses import AccessConformance
from tilewright.testing.builders import BuilderConformance
from tilewright.testing.implementations import single

WORKLOADS = (
    single("relu", (1, 16, 8, 8)),
    single("dense", (4, 64), (64, 32), constants=[1]),
)


class TestLlvm(BuilderConformance):
    builder = builder_named("llvm")
    placement = local_placement()
    workloads = WORKLOADS


class TestHere(AccessConformance):
    access = accesses()["here"]
    target = "llvm"
    workloads = WORKLOADS


@pytest.fixture(scope="module")
def servers() -> Iterator[Farm]:
    with farm(1) as found:
        yield found


class TestRpc(AccessConformance):
    access = accesses()["rpc"]
    target = "rpc:box"
    workloads = WORKLOADS

    @pytest.fixture(autouse=True)
    def reached(self, servers: Farm) -> None:
        type(self).tracker = servers.address
