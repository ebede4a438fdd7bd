"""The tuners by name: ours, AutoTVM's names for them, and those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import cast

from tilewright.core.errors import UsageError, close_matches
from tilewright.core.plugins import load_plugins
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
def tuners() -> dict[str, TunerFactory]:
    """All factories by name. A module offers `TUNERS`, names with their factories."""
    found: dict[str, TunerFactory] = {}
    for module in _MODULES:
        offered = import_module(f"tilewright.search.tuners.{module}").TUNERS
        found.update(cast(Mapping[str, TunerFactory], offered))
    for name, factory in load_plugins(GROUP).items():
        found[name] = cast(TunerFactory, factory)
    return found


def tuner_factory(name: str) -> TunerFactory:
    """The factory with this name or alias; raises UsageError for an unknown one.

    Dashes and underscores count alike, as AutoTVM's users wrote both.
    """
    known = tuners()
    alike = {other.replace("-", "_"): other for other in (*ALIASES, *known)}
    wanted = alike.get(name.replace("-", "_"), name) if name not in known else name
    wanted = ALIASES.get(wanted, wanted)
    if wanted not in known:
        raise UsageError(
            f"no tuner is called {name!r}", hint=close_matches(name, [*known, *ALIASES])
        )
    return known[wanted]


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
