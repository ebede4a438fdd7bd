"""The tuners by name: ours, AutoTVM's names for them, and those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import cast

from tilewright.core.plugins import Offers
from tilewright.search.tuners.base import Tuner, TunerFactory, TuningTask

GROUP = "tilewright.tuners"
DEFAULT = "default"
_MODULES = (
    "default",
    "grid",
    "randomly",
    "genetic",
    "droplet",
    "neighbourhood",
    "xgb",
    "metaschedule",
)
ALIASES: Mapping[str, str] = {
    "gridsearch": "grid",
    "ga": "genetic",
}
_COMPILED = ("itervar", "curve", "store", "metaschedule")
_COMPILED_BY_DEFAULT = frozenset({"xgb", "xgb_rank"})


@cache
def _offers() -> Offers[TunerFactory]:
    """Of ours, a module offers `TUNERS`, names with their factories."""
    ours: dict[str, TunerFactory] = {}
    for module in _MODULES:
        offered = import_module(f"tilewright.search.tuners.{module}").TUNERS
        ours.update(cast(Mapping[str, TunerFactory], offered))
    return Offers(GROUP, kind="tuner", built_in=ours, needs=("__call__",))


def tuners() -> dict[str, TunerFactory]:
    """All factories by name, ours first."""
    return _offers().usable()


def tuner_factory(name: str) -> TunerFactory:
    """The factory with this name or alias; raises UsageError for an unknown one, PluginError where
    a package offers it that is broken.

    Dashes and underscores count alike, as AutoTVM's users wrote both.
    """
    factory = _offers().find(name)
    if factory is None and name in ALIASES:
        factory = _offers().find(ALIASES[name])
    if factory is None:
        raise _offers().unknown(name, ALIASES)
    return factory


def make_tuner(name: str, task: TuningTask) -> Tuner:
    """A tuner for a task."""
    return tuner_factory(name)(task)


def replayable() -> tuple[str, ...]:
    """The names worth comparing on stored sweeps, the default first: those that need a compiler
    while they search, and those that without one do what another does, are left out."""
    return tuple(
        name
        for name in tuners()
        if not name.endswith(_COMPILED) and name not in _COMPILED_BY_DEFAULT
    )
