"""What each part measures: workloads, candidates for them, and labels that say what they stand for.

Nothing here knows an implementation: those that are installed and apply to a workload on the target
are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any

import numpy as np

from tilewright.core.forms import CHANNELS_LAST, PLAIN
from tilewright.core.records import Candidate, Placement
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.insight.single_operators import main_task
from tilewright.kernels.registry import applicable, ports_in
from tilewright.kernels.spaces import MAX_ERROR, TaskSpace, ranked_defaults, spaces
from tilewright.models import ModelOptions
from tilewright.models.configurations import CONFIGURATIONS, configurations_of, drawn
from tilewright.plan.preparation import prepare_outline

Wish = tuple[dict[str, Any], Workload, Candidate]

NETWORKS = ("zoo:resnet50", "zoo:mobilenet_v2", "zoo:bert_base", "zoo:vit_b16")
BASELINE = "cuda_default"
TF32_ERROR = 2e-3
"""Allowed where products may be computed in tf32."""
_OPTIONS = ModelOptions(seed=0)
_MOST_CHECKED_FLOP = 4e8
_CHECKED_SETTINGS, _RANKED, _DRAWN = 3, 12, 3
_FAMILIES = tuple(name for name, family in CONFIGURATIONS.items() if family.dtype == "float32")
_ROWS = 400

ODD = (
    "op:relu[shape=3x5x7x11]",
    "op:softmax[shape=13x101]",
    "op:conv2d[c=3,h=61,w=53,k=3,pad=0,out=17]",
    "op:conv2d[c=1,h=37,k=5,pad=2,out=24]",
    "op:conv2d[c=4,h=29,k=3,pad=1,out=4,stride=2]",
    "op:conv2d[c=24,h=14,k=1,out=144]",
    "op:conv2d[n=3,c=24,h=13,k=3,pad=2,out=36,dilation=2]",
    "op:conv2d[n=32,c=3,h=31,k=7,pad=3,out=8,stride=2]",
    "op:conv2d[c=24,h=17,k=3,pad=1,out=48,groups=4]",
    "op:dense[m=1,k=1001,n=997]",
    "op:dense[m=7,k=63,n=129]",
    "op:dense[m=127,k=257,n=61]",
    "op:batch_matmul[b=5,m=17,k=31,n=13]",
    "op:softmax[shape=7x4099]",
    "op:relu[shape=1x1x1x1]",
)
"""Prime extents, one row, one channel: what tiles do not divide."""
ON_CODES = (
    ("dense", (128, 768), (768, 768)),
    ("dense", (128, 768), (768, 3072)),
    ("dense", (128, 3072), (3072, 768)),
    ("batch_matmul", (12, 128, 64), (12, 128, 64)),
    ("batch_matmul", (12, 128, 128), (12, 128, 64)),
    ("conv2d", (1, 64, 56, 56), (64, 64, 3, 3)),
    ("conv2d", (1, 256, 14, 14), (256, 256, 3, 3)),
    ("conv2d", (1, 256, 56, 56), (64, 256, 1, 1)),
)
"""Products of bert_base and convolutions of resnet50, as codes and as singles."""
STUDIED = (
    "op:conv2d[c=3,h=225,k=3,out=32]",
    "op:conv2d[c=3,h=225,k=7,out=32]",
)
"""Seed 000's convolution; padding and height vary."""


def wishes(part: str, placement: Placement) -> Iterator[Wish]:
    """What a part measures. Raises KeyError for a part that is not there."""
    return PARTS[part](placement)


def _checks(placement: Placement) -> Iterator[Wish]:
    """Every implementation that applies: its best guess, and other settings that are valid; the
    best guess with the channels of images last."""
    on_codes = (
        (labels, workload)
        for labels, workload, _ in _codes(placement)
        if labels["setting"] == "codes"
    )
    for labels, workload in chain(_checked(placement), on_codes):
        if workload.flop > _MOST_CHECKED_FLOP:
            continue
        for space in _spaces(workload, placement):
            chosen = [guess[0] for guess in (space.best_guess,) if guess is not None]
            random = np.random.default_rng(0)
            numbers = random.permutation(space.numbers)[: _CHECKED_SETTINGS - 1]
            chosen += [space.part.candidate(int(number)) for number in numbers]
            for candidate in dict.fromkeys(chosen):
                yield labels, workload, candidate
        for candidate in _channels_last(workload, placement):
            yield labels, workload, candidate


def _checked(placement: Placement) -> Iterator[tuple[dict[str, Any], Workload]]:
    for text in ODD:
        yield {"operator": text}, _operator(text, placement)
    yield from _of_networks(placement, 1)


def _defaults(placement: Placement) -> Iterator[Wish]:
    """Default settings of the networks' operators, those where tf32 is allowed if it makes a
    difference, and TVM's own schedule of each."""
    for batch in (1, 8):
        for labels, workload in _of_networks(placement, batch):
            yield from _against_baseline(labels, workload, placement)
            usual, allowed = (
                ranked_defaults(workload, _plain(workload), placement, error)[0][0]
                for error in (MAX_ERROR, TF32_ERROR)
            )
            if allowed != usual:
                yield labels | {"setting": "tf32"}, workload, allowed


def _tuning(placement: Placement) -> Iterator[Wish]:
    """The candidates of each operator that are expected to be fastest, best first."""
    for labels, workload in _of_networks(placement, 1):
        found = spaces(workload, _plain(workload), placement)
        offered = [
            (float(estimate_s), index, int(number))
            for index, space in enumerate(found)
            for number, estimate_s in zip(space.numbers, space.estimates_s, strict=True)
        ]
        for rank, (_, index, number) in enumerate(sorted(offered)[:_RANKED]):
            yield labels | {"rank": rank}, workload, found[index].part.candidate(number)


def _rows(placement: Placement) -> Iterator[Wish]:
    """Configurations drawn at random, in default settings and in random ones."""
    for turn in range(_ROWS):
        for family in _FAMILIES:
            for numbers in islice(_configurations(family), turn, turn + 1):
                text = configurations_of(family).text(numbers)
                workload = _operator(text, placement)
                labels = {"family": family, "operator": text}
                for label, candidate in _settings(workload, placement, turn):
                    yield labels | {"setting": label}, workload, candidate


def _study(placement: Placement) -> Iterator[Wish]:
    """Seed 000's convolution along padding and height, in default settings, in those with channels
    last, and in TVM's."""
    texts = [
        (operator, "pad", pad, operator.replace("]", f",pad={pad}]"))
        for operator in STUDIED
        for pad in range(4)
    ]
    texts += [
        (operator, "h", height, operator.replace("h=225", f"h={height}"))
        for operator in STUDIED
        for height in range(200, 261)
    ]
    for operator, parameter, value, text in texts:
        labels = {"operator": operator, "parameter": parameter, "value": value}
        workload = _operator(text, placement)
        yield from _against_baseline(labels, workload, placement)
        for candidate in _channels_last(workload, placement):
            yield labels | {"setting": "channels last"}, workload, candidate


def _codes(placement: Placement) -> Iterator[Wish]:
    """Products of codes in default settings, the same of singles, and of codes by TVM's schedule;
    of images with their channels last, too."""
    for operator, *shapes in ON_CODES:
        named = _attributes(operator, shapes)
        for setting, kinds in (("codes", ("uint8", "int8")), ("singles", ("float32",) * 2)):
            arguments = tuple(
                Argument(type=TensorType(shape, kind), role=role)
                for shape, kind, role in zip(
                    shapes, kinds, ("data", _SECOND[operator]), strict=True
                )
            )
            anchor = Step(operator=operator, inputs=(0, 1), attributes=attributes(**named))
            workload = Workload(arguments=arguments, steps=(anchor,))
            labels = {"operator": f"{operator} {shapes[0]} {shapes[1]}"}
            ranked = [it for it, _ in ranked_defaults(workload, _plain(workload), placement)]
            yield labels | {"setting": setting}, workload, ranked[0]
            for candidate in ranked[1:]:
                if setting == "codes" and candidate.implementation == BASELINE:
                    yield labels | {"setting": "baseline"}, workload, candidate
            for candidate in _channels_last(workload, placement):
                yield labels | {"setting": f"{setting}, channels last"}, workload, candidate


_SECOND = {"dense": "constant", "conv2d": "constant", "batch_matmul": "data"}


def _attributes(operator: str, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    if operator == "conv2d":
        beside = (shapes[1][2] // 2,) * 4
        return dict(strides=(1, 1), padding=beside, dilation=(1, 1), groups=1)
    turned = operator == "batch_matmul" and shapes[0][2] == shapes[1][2]
    return {"transpose_b": turned} if operator == "batch_matmul" else {}


def _channels_last(workload: Workload, placement: Placement) -> Iterator[Candidate]:
    """The default with the channels of images last, where that makes a difference."""
    forms = ports_in(CHANNELS_LAST, workload, placement.target, placement.resources)
    if forms is not None:
        yield ranked_defaults(workload, forms, placement)[0][0]


PARTS: dict[str, Callable[[Placement], Iterator[Wish]]] = {
    "checks": _checks,
    "defaults": _defaults,
    "tuning": _tuning,
    "study": _study,
    "codes": _codes,
    "rows": _rows,
}


def _against_baseline(
    labels: dict[str, Any], workload: Workload, placement: Placement
) -> Iterator[Wish]:
    ranked = [candidate for candidate, _ in ranked_defaults(workload, _plain(workload), placement)]
    yield labels | {"setting": "default"}, workload, ranked[0]
    for candidate in ranked:
        if candidate.implementation == BASELINE:
            yield labels | {"setting": "baseline"}, workload, candidate


def _settings(
    workload: Workload, placement: Placement, seed: int
) -> Iterator[tuple[str, Candidate]]:
    found, random = _spaces(workload, placement), np.random.default_rng(seed)
    default = ranked_defaults(workload, _plain(workload), placement)[0][0]
    others: dict[Candidate, None] = {}
    for _ in range(_DRAWN):
        space = found[int(random.integers(len(found)))]
        number = space.numbers[int(random.integers(len(space.numbers)))]
        others[space.part.candidate(int(number))] = None
    yield "default", default
    yield from (("random", candidate) for candidate in others if candidate != default)


@cache
def _of_networks(placement: Placement, batch: int) -> list[tuple[dict[str, Any], Workload]]:
    """The different tasks of the networks, with how often each is called."""
    found: list[tuple[dict[str, Any], Workload]] = []
    for name in NETWORKS:
        options = ModelOptions(seed=0, batch=None if batch == 1 else batch)
        tasks = prepare_outline(name, options, placement).tasks.values()
        counts: dict[Workload, int] = {}
        for task in tasks:
            counts[task.workload] = counts.get(task.workload, 0) + task.count
        for workload, count in counts.items():
            labels = {"network": name, "batch": batch, "task": workload.key, "count": count}
            found.append((labels, workload))
    return found


def _operator(text: str, placement: Placement) -> Workload:
    return main_task(text, _OPTIONS, placement).workload


@cache
def _drawn_so_far(family: str) -> list[Any]:
    return list(islice(drawn(family, 0), _ROWS))


def _configurations(family: str) -> Iterator[Any]:
    return iter(_drawn_so_far(family))


def _plain(workload: Workload) -> tuple[Any, ...]:
    return (PLAIN,) * (len(workload.arguments) + 1)


def _spaces(workload: Workload, placement: Placement) -> list[TaskSpace]:
    """The spaces of all implementations with valid settings, those of little promise too."""
    found = [
        TaskSpace(workload=workload, forms=_plain(workload), placement=placement, spec=spec)
        for spec in applicable(workload, placement.target, placement.resources)
    ]
    return [space for space in found if space.best_guess is not None]
