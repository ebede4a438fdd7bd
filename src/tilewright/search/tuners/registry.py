"""The tuners by name: ours, AutoTVM's names for them, and those of other packages."""

from __future__ import annotations

from tilewright.core.plugins import Offers
from tilewright.kernels.metaschedule import NAME as METASCHEDULE
from tilewright.search.tuners.base import TunerFactory
from tilewright.search.tuners.default import DefaultTuner
from tilewright.search.tuners.droplet import DropletTuner
from tilewright.search.tuners.genetic import GeneticTuner
from tilewright.search.tuners.metaschedule import MetaScheduleTuner
from tilewright.search.tuners.neighbourhood import NeighbourhoodTuner
from tilewright.search.tuners.unguided import GridTuner, RandomTuner
from tilewright.search.tuners.xgb import XGB_TUNERS

GROUP = "tilewright.tuners"
DEFAULT = "default"
_BUILT_IN: dict[str, TunerFactory] = {
    DEFAULT: DefaultTuner,
    "grid": GridTuner,
    "random": RandomTuner,
    "genetic": GeneticTuner,
    "droplet": DropletTuner,
    "neighbourhood": NeighbourhoodTuner,
    **XGB_TUNERS,
    METASCHEDULE: MetaScheduleTuner,
}
_ALIASES = {"gridsearch": "grid", "ga": "genetic"}
_COMPILED = ("itervar", "curve", "store", METASCHEDULE)
_COMPILED_BY_DEFAULT = frozenset({"xgb", "xgb_rank"})

TUNERS = Offers[TunerFactory](GROUP, kind="tuner", built_in=_BUILT_IN, needs=("__call__",))


def tuner_factory(name: str) -> TunerFactory:
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
