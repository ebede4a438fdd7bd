"""Who computes the requests of a server."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from tilewright.core.serving import InstanceService
from tilewright.hardware.probe import allotted_cpus
from tilewright.serving.instance import Instance, Seat, Service
from tilewright.serving.layouts import Kind, Layout, kinds_of, layout_text, placed
from tilewright.serving.posts import LocalPost, RemotePost
from tilewright.serving.served import Elsewhere, limited


class Crew(Protocol):
    """Processes that compute requests of a queue: `running` of them at a time, each in a slot, and
    `own_slots` more slots for what they try by themselves. `choice` says why there are these."""

    @property
    def layout(self) -> Layout:
        """The number of cores of each process."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def own_slots(self) -> int: ...

    @property
    def choice(self) -> str: ...

    def begin(self, service: Service, first_slot: int) -> None:
        """Start, and wait until all are ready; `first_slot` is the first of their own. Raises what
        the first raises that does not start."""
        ...

    def expected_s(self, network: str) -> float:
        """Seconds that a network takes where it is fastest; infinite where nobody computes it."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether nobody is left who computes anything."""
        ...

    def statistics(self) -> tuple[InstanceService, ...]:
        """What each process did so far."""
        ...

    def stop(self, *, at_once: bool) -> None:
        """End all, and wait for that; `at_once` in the middle of requests, which are answered as
        cancelled."""
        ...


class Instances:
    """Processes that each compute whole requests: some here, on cores of their own, each with as
    many as `here` says, or of such a kind, and one for each device elsewhere. `device` is what
    people call this machine, where they named devices. Raises TargetError where there are fewer
    cores."""

    choice = ""

    def __init__(
        self, here: Sequence[int | Kind], elsewhere: Sequence[Elsewhere] = (), device: str = ""
    ) -> None:
        self.here = self._kinds = kinds_of(here)
        cores = tuple(kind.cores for kind in self._kinds)
        self._places = placed(cores, allotted_cpus())
        self._elsewhere, self._device = elsewhere, device
        threads = tuple(each.placement.resources.threads for each in elsewhere)
        self.layout, self.text = (*cores, *threads), layout_text((*self.here, *threads))
        self.running = self.own_slots = len(self.layout)
        self._instances: list[Instance] = []

    def seats(self, service: Service) -> list[Seat]:
        """A process for each instance, which does not run yet."""
        here = [
            Seat(
                post=LocalPost(service.worker, cpus, service.slots),
                networks={
                    name: limited(network, kind.batch) for name, network in service.networks.items()
                },
                device=self._device,
                kind=kind,
            )
            for kind, cpus in zip(self._kinds, self._places, strict=True)
        ]
        elsewhere = [
            Seat(
                post=RemotePost(each.placement, service.slots),
                networks=each.networks,
                device=each.name,
            )
            for each in self._elsewhere
        ]
        return here + elsewhere

    def begin(self, service: Service, first_slot: int) -> None:
        self._instances = [
            Instance(number, seat, first_slot + number, service)
            for number, seat in enumerate(self.seats(service))
        ]
        for instance in self._instances:
            instance.ready.result()

    def expected_s(self, network: str) -> float:
        return min((each.expected_s(network) for each in self._instances), default=inf)

    @property
    def is_lost(self) -> bool:
        return all(instance.state == "lost" for instance in self._instances)

    def statistics(self) -> tuple[InstanceService, ...]:
        return tuple(instance.statistics() for instance in self._instances)

    def stop(self, *, at_once: bool) -> None:
        for instance in self._instances:
            instance.stop(at_once=at_once)
        for instance in self._instances:
            instance.join()
