"""What a `collect` command asks for, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import get_args

from tilewright.core.arguments import count_of, counts_of, error_of, texts_of, truth_of
from tilewright.core.budget import Limit
from tilewright.core.codec import canonical_json, digest
from tilewright.core.errors import TargetError, UsageError, close_matches
from tilewright.core.records import Placement
from tilewright.core.targets import Binding
from tilewright.hardware.holding import (
    CONTROLS,
    GPU_CONTROLS,
    USUAL,
    ControlName,
    Held,
    checked,
    combinations,
    usable_cpus,
)
from tilewright.kernels.base import CPU, MIXED
from tilewright.measure.accesses.cuda import card_of
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.circumstances import Cache, Circumstances
from tilewright.models import ModelOptions
from tilewright.models.configurations import CONFIGURATIONS, configurations_of, of_type
from tilewright.models.loaded import ON_CODES

CACHES: tuple[Cache, ...] = get_args(Cache)
_CONTROLS: Mapping[str, ControlName] = {**CONTROLS, **GPU_CONTROLS}
DTYPES = tuple(dict.fromkeys(family.dtype for family in CONFIGURATIONS.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What `collect` varies beside the configurations of operators.

    A configuration is measured in its default settings, in the best known ones, and in `settings`
    random ones. `adaptive` spends part of the samples on configurations near those that were
    predicted badly. `informative` first measures the configurations from which the others can be
    predicted best, judged by the models of a known device class, instead of random ones. Everything
    is measured with each number of `threads` (none: that of the session), in each state of
    `caches`, in each element type of `dtypes`, beside each number of `neighbours`, copies of the
    kernel that run on other cores meanwhile, and with each value of the machine's controls:
    `clocks`, `power_caps` and `cache_ways`, texts such as "1.5GHz", "65W" and "4", `governors` by
    their names, `turbo` and `smt` "on" or "off", or "usual" for what they are set to. A GPU has
    `clocks`, `power_caps`, and `multiprocessors`, "64": how many of them kernels get. Of networks,
    as few tasks are measured as make up `share` of their time, above 0 and at most 1, by measured
    times where they are known and by predicted ones elsewhere; with 1 all of them.
    """

    settings: int = 3
    adaptive: bool = False
    informative: bool = False
    threads: tuple[int, ...] = ()
    caches: tuple[Cache, ...] = ("usual",)
    dtypes: tuple[str, ...] = ("float32",)
    neighbours: tuple[int, ...] = (0,)
    smt: tuple[str, ...] = (USUAL,)
    governors: tuple[str, ...] = (USUAL,)
    turbo: tuple[str, ...] = (USUAL,)
    clocks: tuple[str, ...] = (USUAL,)
    power_caps: tuple[str, ...] = (USUAL,)
    cache_ways: tuple[str, ...] = (USUAL,)
    multiprocessors: tuple[str, ...] = (USUAL,)
    share: float = 1.0

    def __post_init__(self) -> None:
        """One value may stand where several may. Raises UsageError for other kinds."""
        count_of(self.settings, "settings")
        truth_of(self.adaptive, "adaptive")
        truth_of(self.informative, "informative")
        if error_of(self.share, "share") > 1:
            raise UsageError(
                f"share is a part of a network's time, at most 1, not {self.share:g}.",
                hint="--share 0.9 takes the operators that make up 90 %.",
            )
        for name in ("caches", "dtypes", *_CONTROLS):
            object.__setattr__(self, name, texts_of(getattr(self, name), name))
        for name, least in (("threads", 1), ("neighbours", 0)):
            object.__setattr__(self, name, counts_of(getattr(self, name), name, least))

    @property
    def held(self) -> tuple[tuple[Held, ...], ...]:
        """Every combination of values of controls; an empty one leaves all as they are. Raises
        UsageError for a text that is no value."""
        return combinations({control: getattr(self, name) for name, control in _CONTROLS.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """What is to be measured: configurations of operator `families`, `samples` candidates of each,
    and every task of `models`."""

    families: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    samples: int = 200
    design: Design = field(default_factory=Design)
    budget: Limit
    options: ModelOptions
    seed: int = 0

    @property
    def key(self) -> str:
        """Identity of what is asked for, whatever the budget."""
        usual = asdict(Design())
        special = {
            name: value
            for name, value in asdict(self.design).items()
            if value != usual[name] and name not in ("settings", "dtypes")
        }
        if self.options.precision != ModelOptions().precision:
            special["precision"] = self.options.precision
        asked = [self.families, self.models, self.samples, self.design.settings, self.seed]
        return digest(canonical_json(["collect", *asked, *([special] if special else [])]))


def collect_request(
    families: Sequence[str],
    models: Sequence[str],
    *,
    samples: int,
    design: Design,
    budget: Limit,
    options: ModelOptions,
) -> CollectRequest:
    """The request, checked; `all` stands for every family. Raises UsageError for an unknown family,
    for one that has no kernels in a type, for values that a factor cannot have, for a share without
    models, and for a precision that kernels of what is asked for do not have."""
    _check(samples, design)
    if options.precision == MIXED or (options.precision == ON_CODES and families):
        raise UsageError(
            f"no kernels of operators are measured in {options.precision}",
            hint="--precision bfloat16 takes networks and families, int8 networks; --dtype int8 "
            "takes families on codes.",
        )
    if design.share < 1 and not models:
        raise UsageError(
            "--share is a part of a network's time, and no network is named.",
            hint="tilewright collect zoo:resnet50 --share 0.9",
        )
    names = [
        of_type(name, dtype)
        for name in families
        if name != "all"
        for dtype in _types_of(name, design)
    ]
    if "all" in families:
        names = [name for name, family in CONFIGURATIONS.items() if family.dtype in design.dtypes]
    return CollectRequest(
        families=tuple(dict.fromkeys(names)),
        models=tuple(models),
        samples=samples,
        design=design,
        budget=budget,
        options=options,
        seed=options.seed,
    )


def _types_of(name: str, design: Design) -> tuple[str, ...]:
    """The types asked for; a family that is named by its type has that one."""
    dtype = configurations_of(name).dtype
    return design.dtypes if dtype == "float32" else (dtype,)


def _check(samples: int, design: Design) -> None:
    count_of(samples, "samples", 1)
    for flag, values, known in (
        ("--cache", design.caches, CACHES),
        ("--dtype", design.dtypes, DTYPES),
    ):
        for value in values:
            if value not in known:
                raise UsageError(f"{flag} {value!r} is not known", hint=close_matches(value, known))
    if not (design.caches and design.dtypes and design.neighbours and design.held):
        raise UsageError(
            "A factor needs at least one value.", hint="`usual`, or 0 of --neighbours, for none."
        )


def circumstances_of(
    placements: Sequence[Placement], design: Design, root: Path = Path("/")
) -> tuple[Circumstances, ...]:
    """Every combination of a placement, a state of the caches, neighbours and values of controls,
    whose files are below `root`.

    Raises TargetError where the cores do not suffice, and for a control that cannot be set here,
    UsageError for circumstances that cannot be had on a remote device or GPU, and for a value out
    of a control's range.
    """
    found: list[Circumstances] = []
    for placement, held, cache, neighbours in product(
        placements, design.held, design.caches, design.neighbours
    ):
        place = Circumstances(usual=placement, cache=cache, neighbours=neighbours, held=held)
        if place.special and not access_to(placement.device).here:
            raise UsageError(
                "--cache, --neighbours and controls that are held, such as --clock, are for "
                "kernels that run on this machine; a remote device is timed by its own server.",
                hint="Leave them out with --target rpc:KEY.",
            )
        if held:
            place = replace(place, held=_of_device(held, placement))
        found.append(_on_usable_cpus(place, root))
        if held:
            checked(place.held, placement.binding.cpus, root)
    return tuple(found)


def _of_device(held: Sequence[Held], placement: Placement) -> tuple[Held, ...]:
    """The same, of the card where the placement is on one. Raises UsageError for a control that the
    device has not."""
    card = None if placement.target.kind in CPU else card_of(placement)
    of_cpus, of_cards = CONTROLS.values(), GPU_CONTROLS.values()
    known = of_cards if card else of_cpus if placement.target.kind in CPU else ()
    for one in held:
        if one.control not in known:
            kinds = [k for k, each in (("CPU", of_cpus), ("GPUs", of_cards)) if one.control in each]
            raise UsageError(
                f"--{one.control} is for kernels on this machine's {' and '.join(kinds)}, not for "
                f"{placement.target.model}.",
                hint="Leave it out, or --target.",
            )
    return tuple(replace(one, gpu=card) for one in held)


def _on_usable_cpus(place: Circumstances, root: Path) -> Circumstances:
    """The same on the CPUs that are there while its controls are held. Raises TargetError where
    they do not suffice."""
    threads, allotted = place.usual.resources.threads, place.usual.binding.cpus
    usable = usable_cpus(place.held, allotted, root)
    there, needed = len(usable), threads * (1 + place.neighbours)
    without = " without SMT" if there < len(allotted) else ""
    if place.neighbours and needed > there:
        raise TargetError(
            f"{place.neighbours} copies beside a kernel of {threads} threads need "
            f"{needed} logical CPUs; this process is allotted {there}{without}",
            hint="Use fewer --neighbours, or fewer --threads.",
        )
    if without and needed > there:
        raise TargetError(
            f"a kernel of {threads} threads needs {needed} logical CPUs; without SMT this process "
            f"has {there}",
            hint=f"Use --threads {there}, or leave out --smt off.",
        )
    return replace(place, usual=replace(place.usual, binding=Binding(cpus=usable)))
