"""The tuners by name: ours, AutoTVM's names for them, and those of other packages."""

from __future__ import annotations

from tilewright.core.plugins import Offers
from tilewright.kernels.metaschedule import NAME as METASCHEDULE
from tilewright.search.tuners import (
    base,
    default,
    droplet,
    metaschedule,
    neighbourhood,
    unguided,
    walking,
    xgb,
)

DEFAULT = "default"
_BUILT_IN: dict[str, base.TunerFactory] = {
    DEFAULT: default.DefaultTuner,
    "grid": unguided.GridTuner,
    "random": unguided.RandomTuner,
    "genetic": walking.GeneticTuner,
    "droplet": droplet.DropletTuner,
    "neighbourhood": neighbourhood.NeighbourhoodTuner,
    **xgb.XGB_TUNERS,
    METASCHEDULE: metaschedule.MetaScheduleTuner,
}
_ALIASES = {"gridsearch": "grid", "ga": "genetic"}
_COMPILED = ("itervar", "curve", "store", METASCHEDULE)
_COMPILED_BY_DEFAULT = frozenset({"xgb", "xgb_rank"})

TUNERS = Offers[base.TunerFactory](
    "tilewright.tuners", kind="tuner", built_in=_BUILT_IN, needs=("__call__",)
)


def tuner_factory(name: str) -> base.TunerFactory:
    """The factory with this name or alias; raises UsageError for an unknown one, PluginError where
    a package offers it that is broken.

    Dashes and underscores count alike, as AutoTVM's users wrote both.
    """
    factory = TUNERS.find(name) or TUNERS.find(_ALIASES.get(name, name))
    if factory is None:
        raise TUNERS.unknown(name, _ALIASES)
    return factory


def replayable() -> tuple[str, ...]:
    """The names worth comparing on stored sweeps, the default first: those that need a compiler
    while they search, and those that without one do what another does, are left out."""
    return tuple(
        name
        for name in TUNERS.usable()
        if not name.endswith(_COMPILED) and name not in _COMPILED_BY_DEFAULT
    )
