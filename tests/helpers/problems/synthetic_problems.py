"""Made-up problems shaped like networks, for tests and for timing solvers.

Costs are drawn, but have the structure of real ones: kernels with a favourite block, transforms
that cost as much as the tensor is large, additions that a producer may absorb, concatenations that
may be written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.plan.assignment.problem import FORBIDDEN, Costs, Problem, Table, TableRole, Variable

_ALONE, _ABSORBED = "alone", "absorbed"


@dataclass(slots=True, kw_only=True)
class Builder:
    """Collects a network operator by operator; methods take and give names of tensors.

    Every tensor has `layouts` layouts, `plain` among them, every convolution `candidates` choices.
    """

    candidates: int
    layouts: int
    seed: int = 0
    variables: list[Variable] = field(default_factory=list[Variable])
    tables: list[Table] = field(default_factory=list[Table])
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    @property
    def blocks(self) -> tuple[str, ...]:
        """All layouts of a tensor."""
        return ("plain", *(f"blocked{4 * n}" for n in range(1, self.layouts)))

    def tensor(self, values: Sequence[str] = ()) -> str:
        """A new tensor, with all layouts by default."""
        name = f"layout{len(self.variables)}"
        values = tuple(values) or self.blocks
        self.variables.append(Variable(name=name, kind="layout", values=values, subject=name))
        return name

    def conv(self, source: str, residual: str | None = None) -> str:
        """A convolution of a tensor, then the addition of another one in a kernel of its own or,
        with the time depending on all layouts, in the convolution's."""
        ports = [(self._block(), self._block()) for _ in range(self.candidates)]
        values = tuple(f"conv{n}:{read},{write}" for n, (read, write) in enumerate(ports))
        choice = self._choice(values)
        self._priced((choice,), self._drawn((len(values),), 200e6), "kernel")
        self._read(source, choice, [read for read, _ in ports])
        if residual is None:
            result = self.tensor()
            self._written(result, choice, [write for _, write in ports])
            return result
        role = self._choice((_ALONE, _ABSORBED))
        result = self.tensor()
        writes = [self.blocks.index(write) for _, write in ports]
        costs = self._drawn((len(values), 2, self.layouts, self.layouts), 20e6)
        for place, write in enumerate(writes):
            absorbed = costs[place, 1].copy()
            costs[place, 1] = FORBIDDEN
            costs[place, 1, :, write] = absorbed[:, write]
        self._priced((choice, role, residual, result), costs, "kernel")
        return result

    def join(self, sources: Sequence[str]) -> str:
        """A concatenation; each part is copied or, in the same layout, written in place."""
        result = self.tensor()
        for source in sources:
            part = self._choice(("copied", "in place"))
            size = (len(self._values(source)), self.layouts)
            copied = self._drawn(size, 30e6)
            same = np.array(
                [[a == b for b in self.blocks] for a in self._values(source)], dtype=np.bool_
            )
            in_place = np.where(same, self._drawn(size, 2e6), FORBIDDEN)
            costs = np.stack([copied, in_place])
            self._priced((part, source, result), costs, "transform")
        return result

    def close(self, source: str) -> None:
        """An output of the network, which is plain."""
        result = self.tensor(("plain",))
        self._priced((source, result), self._transforms(source, ("plain",)), "transform")

    def problem(self, name: str) -> Problem:
        """What was collected."""
        return Problem(variables=tuple(self.variables), tables=tuple(self.tables), name=name)

    def _choice(self, values: tuple[str, ...]) -> str:
        name = f"choice{len(self.variables)}"
        self.variables.append(Variable(name=name, kind="choice", values=values, subject=name))
        return name

    def _read(self, source: str, choice: str, layouts: Sequence[str]) -> None:
        self._priced((source, choice), self._transforms(source, layouts), "transform")

    def _written(self, result: str, choice: str, layouts: Sequence[str]) -> None:
        costs = [[0 if block == write else FORBIDDEN for write in layouts] for block in self.blocks]
        self._priced((result, choice), np.array(costs), "rule")

    def _transforms(self, source: str, layouts: Sequence[str]) -> Costs:
        costs = self._drawn((len(self._values(source)), len(layouts)), 40e6)
        for row, before in enumerate(self._values(source)):
            costs[row, [after == before for after in layouts]] = 0
        return costs

    def _values(self, name: str) -> tuple[str, ...]:
        return next(each.values for each in reversed(self.variables) if each.name == name)

    def _block(self) -> str:
        return self.blocks[int(self.rng.integers(self.layouts))]

    def _drawn(self, shape: tuple[int, ...], typical: float) -> Costs:
        return (typical * self.rng.lognormal(sigma=0.5, size=shape)).astype(np.int64)

    def _priced(self, variables: tuple[str, ...], costs: Costs, role: TableRole) -> None:
        self.tables.append(Table(variables=variables, costs=costs, role=role))


def residual_network(depth: int, *, candidates: int, layouts: int, seed: int = 0) -> Problem:
    """A chain of `depth` convolutions where every third adds what came in three before (resnet)."""
    builder = Builder(candidates=candidates, layouts=layouts, seed=seed)
    shortcut = current = builder.conv(builder.tensor(("plain",)))
    for number in range(1, depth):
        if number % 3:
            current = builder.conv(current)
        else:
            shortcut = current = builder.conv(current, shortcut)
    builder.close(current)
    return builder.problem(f"residual-{depth}")


def joined_network(cells: int, *, candidates: int, layouts: int, seed: int = 0) -> Problem:
    """Cells of four branches of one to three convolutions, concatenated (inception)."""
    builder = Builder(candidates=candidates, layouts=layouts, seed=seed)
    current = builder.conv(builder.tensor(("plain",)))
    for _ in range(cells):
        branches: list[str] = []
        for length in (1, 2, 3, 1):
            branch = current
            for _ in range(length):
                branch = builder.conv(branch)
            branches.append(branch)
        current = builder.join(branches)
    builder.close(current)
    return builder.problem(f"joined-{cells}")


def dense_network(layers: int, *, candidates: int, layouts: int, seed: int = 0) -> Problem:
    """Two convolutions at a time whose result is appended to all that came before (densenet)."""
    builder = Builder(candidates=candidates, layouts=layouts, seed=seed)
    current = builder.conv(builder.tensor(("plain",)))
    for _ in range(layers):
        current = builder.join([current, builder.conv(builder.conv(current))])
    builder.close(current)
    return builder.problem(f"dense-{layers}")


def headed_network(heads: int, *, candidates: int, layouts: int, seed: int = 0) -> Problem:
    """A residual chain with two outputs from every third convolution, joined in the end (SSD)."""
    builder = Builder(candidates=candidates, layouts=layouts, seed=seed)
    current = shortcut = builder.conv(builder.tensor(("plain",)))
    outputs: list[str] = []
    for _ in range(heads):
        shortcut = current = builder.conv(builder.conv(builder.conv(current)), shortcut)
        outputs += [builder.conv(current), builder.conv(current)]
    builder.close(builder.join(outputs))
    return builder.problem(f"headed-{heads}")


def tangled_network(layers: int, *, candidates: int, layouts: int, seed: int = 0) -> Problem:
    """Every convolution's result is joined with those of all before: as wide as it is deep."""
    builder = Builder(candidates=candidates, layouts=layouts, seed=seed)
    seen = [builder.conv(builder.tensor(("plain",)))]
    for _ in range(layers):
        seen.append(builder.conv(builder.join(seen)))
    builder.close(seen[-1])
    return builder.problem(f"tangled-{layers}")
