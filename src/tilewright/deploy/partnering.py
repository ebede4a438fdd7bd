"""A network that runs beside another one: `profile MODEL --beside MODEL`.

network    cores 0      12.8 ms alone    13.1 ms beside
partner    core  1       4.6 ms alone     5.2 ms beside
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from tilewright.core.errors import NegativeVerdict, UsageError
from tilewright.core.neighbours import BesideResult, CallBeside
from tilewright.core.processes import ChildError
from tilewright.core.records import Placement
from tilewright.core.scratch import scratch_folder
from tilewright.deploy import opening
from tilewright.deploy.manifest import is_artifact
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.measure import kernels, network_timing, targeting
from tilewright.measure.beside import Player, running
from tilewright.measure.networks import NetworkRunner, NetworkWorker
from tilewright.measure.pairs import pair_times
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.store.base import Store
from tilewright.store.known_candidates import SettingsName, choose_plan

_NAME = "partner"
_ROUNDS, _WINDOW_S = 5, 0.3
_MOST_S, _BEGIN_S = 60.0, 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """A MODEL, or the folder of an artifact, that runs on cores of its own."""

    model: str
    placement: Placement


def with_partner(
    asked: tuple[str, int] | None, placement: Placement
) -> tuple[Placement, Partner | None]:
    """The placement on its first CPUs, and the partner that was asked for, a MODEL and its threads,
    on the next ones. Raises UsageError where kernels do not run on CPUs of this machine,
    TargetError where there are too few."""
    if asked is None:
        return placement, None
    model, threads = asked
    if not targeting.in_this_process(placement):
        raise UsageError(
            "a partner runs on other cores of this machine, beside a network on its CPU.",
            hint="Leave out --beside, or --target.",
        )
    own, other = kernels.beside(placement, threads)
    return own, Partner(model=model, placement=other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """A partner that is compiled and loaded; `name` tells it from others in device classes."""

    partner: Partner
    name: str
    player: Player

    def beside(
        self, runner: NetworkRunner, name: str, plan: NetworkPlan, inputs: Sequence[Array]
    ) -> BesideResult:
        """What a loaded network and the partner take beside each other. Raises NegativeVerdict
        where one of them crashes, hangs, or ends before the other was timed."""
        own = partial(runner.keep_running, name, inputs, most_s=_MOST_S)
        try:
            with ThreadPoolExecutor(2) as pool:
                times = pair_times((own, self.player), pool, rounds=_ROUNDS, window_s=_WINDOW_S)
                alone_s = network_timing.time_places(runner, name, plan, inputs)
                with running([self.player], pool, _BEGIN_S):
                    beside_s = network_timing.time_places(runner, name, plan, inputs)
        except (ChildError, NegativeVerdict) as error:
            raise NegativeVerdict(f"beside {self.partner.model}: {error}") from error
        slowdown, partner_slowdown = times.slowdowns
        return BesideResult(
            partner=self.partner.model,
            threads=self.partner.placement.resources.threads,
            alone_s=median(times.alone_s[0]),
            beside_s=median(times.beside_s[0]),
            slowdown=slowdown,
            partner_alone_s=median(times.alone_s[1]),
            partner_beside_s=median(times.beside_s[1]),
            partner_slowdown=partner_slowdown,
            spread=times.spread,
            joint_gain=times.joint_gain,
            calls=tuple(
                CallBeside(name=call, alone_s=alone_s[call], beside_s=beside_s[call])
                for call in alone_s
                if call in beside_s
            ),
        )


def opened(
    partner: Partner, options: ModelOptions, settings: SettingsName, max_error: float, store: Store
) -> tuple[PreparedNetwork, NetworkPlan]:
    """The partner's network and its plan; nothing is compiled yet.

    `options`, `settings` and `max_error` are those of the network that it runs beside. Shapes,
    names and calibration inputs among them are of that network alone; an artifact is as it was
    compiled; of a network for which nothing has shipped the best settings are taken. Raises what
    opening a model and choosing its plan raise.
    """
    own = replace(options, batch=None, shapes={}, keep=(), calibration=None)
    if is_artifact(partner.model):
        own = ModelOptions(seed=options.seed)
    placement = targeting.allowing(partner.placement, own)
    network, artifact = opening.open_model(partner.model, own, placement)
    if artifact is not None:
        return network, artifact.plan(network, partner.placement)
    placement = replace(placement, precision=network.precision)
    if settings == "shipped" and store.shipped(network.key, placement.key) is None:
        settings = "best"
    return network, choose_plan(network, store, placement, settings, max_error)


@contextmanager
def company(
    partner: Partner,
    network: PreparedNetwork,
    plan: NetworkPlan,
    seed: int,
    *,
    most_s: float = _MOST_S,
) -> Generator[Company]:
    """The partner's network, compiled and loaded in a process of its own; it runs `most_s` seconds
    at a time at most."""
    inputs, threads = network.sample_inputs(seed), partner.placement.resources.threads
    with scratch_folder() as folder, NetworkWorker(partner.placement) as worker:
        worker.compile(plan, network.graph.constants, folder)
        worker.load(_NAME, folder, plan.constant_names)
        yield Company(
            partner=partner,
            name=f"{network.key}x{threads}",
            player=partial(worker.keep_running, _NAME, inputs, most_s=most_s),
        )
