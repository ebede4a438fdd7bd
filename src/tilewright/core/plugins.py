"""What other installed packages offer as entry points, beside what is built in.

    peers = Offers[PeerMaker](
        "tilewright.peers", kind="peer", built_in={"torch": torch_peer}, needs=("__call__",)
    )
    peers.named("torch")()

A package's object is imported when its name is asked for, so that one that is broken takes nothing
else with it. Where a package and tilewright offer the same name, the package's is meant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from tilewright.core.errors import (
    TargetError,
    TilewrightError,
    UsageError,
    close_matches,
    last_line,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PREFIX = "tilewright."
"""What the names of our groups of entry points begin with."""

_IMPORT_FAULTS = (
    *(ImportError, SyntaxError, AttributeError, NameError, TypeError, ValueError, LookupError),
    *(ArithmeticError, AssertionError, OSError, RuntimeError, TilewrightError),
)
"""What importing a module of somebody else's raises."""

_Offered = TypeVar("_Offered")


class PluginError(TargetError):
    """What another package offers cannot be used: it does not load, or lacks what it must have."""


class Offers(Generic[_Offered]):
    """All of one kind, by name: `built_in` has ours, the entry-point group `group` the others.

    `needs` names the attributes that each must have, `__call__` for a function.
    """

    def __init__(
        self,
        group: str,
        *,
        kind: str,
        built_in: Mapping[str, _Offered],
        needs: tuple[str, ...] = (),
    ) -> None:
        self.group = group
        self.kind = kind
        self._built_in = built_in
        self._needs = needs
        self._usable: tuple[object, dict[str, _Offered]] = (None, {})

    def names(self) -> tuple[str, ...]:
        """Ours, then those of other packages, which are not imported."""
        return tuple(dict.fromkeys((*self._built_in, *self.others())))

    def others(self) -> Collection[str]:
        """The names that other packages offer; they are not imported."""
        return _points().get(self.group, {}).keys()

    def find(self, name: str) -> _Offered | None:
        """What goes by this name, None where nothing does; dashes and underscores count alike.

        Raises PluginError where a package offers it that cannot be used.
        """
        if name not in self.others() and name not in self._built_in:
            name = {_alike(other): other for other in self.names()}.get(_alike(name), name)
        points = _points().get(self.group, {}).get(name)
        return self._built_in.get(name) if points is None else self._import(name, points)

    def knows(self, name: str) -> bool:
        """Whether something goes by this name; nothing is imported."""
        return _alike(name) in map(_alike, self.names())

    def named(self, name: str) -> _Offered:
        """The same; raises UsageError for an unknown name."""
        found = self.find(name)
        if found is None:
            raise self.unknown(name)
        return found

    def unknown(self, name: str, more: Collection[str] = ()) -> UsageError:
        """The error for a name that nothing goes by; `more` are names that would do, too."""
        return UsageError(
            f"no {self.kind} is called {name!r}", hint=close_matches(name, {*self.names(), *more})
        )

    def usable(self) -> dict[str, _Offered]:
        """All that can be used: ours, then those of other packages. A package's that has the name
        of ours stands in its place; what cannot be imported is left out."""
        if self._usable[0] is not _points():
            self._usable = (_points(), {})
            for name in self.names():
                with suppress(PluginError):
                    self._usable[1][name] = self.named(name)
        return self._usable[1]

    def _import(self, name: str, points: list[EntryPoint]) -> _Offered:
        offered = _loaded(self.kind, name, points)
        fault = self._fault(name, offered)
        if fault:
            raise _unusable(self.kind, points[0], f"{points[0].value}: {fault}")
        return cast(_Offered, offered)

    def _fault(self, name: str, offered: object) -> str:
        """Why an object that was imported is not what must be offered; empty where it is."""
        lacking = [need for need in self._needs if not hasattr(offered, need)]
        if lacking:
            return "it is no function" if "__call__" in lacking else f"it has no {lacking[0]!r}"
        if "__call__" not in self._needs and isinstance(offered, type):
            return "it is a class; an object of it is wanted"
        own = getattr(offered, "name", name) if "name" in self._needs else name
        return "" if _alike(own) == _alike(name) else f"it calls itself {own!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One entry point of another package; `fault` says why it cannot be used, None where it can,
    or where it was not tried."""

    group: str
    name: str
    package: str
    fault: str | None


def offered_names(*groups: str) -> list[str]:
    """The names that packages offer in some of our groups; nothing is imported."""
    return sorted({name for group in groups for name in _points().get(group, {})})


def installed_plugins(untried: Collection[str] = ()) -> list[Plugin]:
    """What other packages offer in all our groups; those of the groups `untried` are not imported,
    others are."""
    found: list[Plugin] = []
    for group, named in _points().items():
        words = group.removeprefix(PREFIX).replace("_", " ")
        kind = words.removesuffix("es") if words.endswith("sses") else words.removesuffix("s")
        for name, points in named.items():
            fault = None
            if group not in untried:
                try:
                    _loaded(kind, name, points)
                except PluginError as error:
                    fault = error.message
            found.append(Plugin(group=group, name=name, package=_packages(points), fault=fault))
    return found


def forget_plugins() -> None:
    """Look for packages anew wherever something is offered: some came, or went, meanwhile."""
    _points.cache_clear()


def _alike(name: object) -> str:
    """A name with dashes and underscores made one."""
    return str(name).replace("-", "_")


@lru_cache(maxsize=1)
def _points() -> Mapping[str, Mapping[str, list[EntryPoint]]]:
    """Those of all packages in our groups, by group and name; what reads them takes a while to
    import."""
    from importlib.metadata import entry_points

    known = entry_points()
    found: dict[str, dict[str, list[EntryPoint]]] = {}
    for group in sorted(name for name in known.groups if name.startswith(PREFIX)):
        for point in known.select(group=group):
            found.setdefault(group, {}).setdefault(point.name, []).append(point)
    return found


def _loaded(kind: str, name: str, points: list[EntryPoint]) -> object:
    if len(points) > 1:
        raise PluginError(
            f"more than one package offers a {kind} called {name!r}: {_packages(points)}",
            hint="Uninstall all but one of them.",
        )
    try:
        return cast(object, points[0].load())
    except _IMPORT_FAULTS as error:
        said = f"importing {points[0].value} fails: {type(error).__name__}: {last_line(error)}"
        raise _unusable(kind, points[0], said) from error


def _unusable(kind: str, point: EntryPoint, reason: str) -> PluginError:
    package = _packages([point])
    return PluginError(
        f"the {kind} {point.name!r} of the package {package} cannot be used: {reason}",
        hint=f"Update the package, or remove it: pip uninstall {package}",
    )


def _packages(points: list[EntryPoint]) -> str:
    return ", ".join(point.module if point.dist is None else point.dist.name for point in points)
