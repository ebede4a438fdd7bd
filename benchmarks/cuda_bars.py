"""What can be shown of kernels for GPUs where there is no GPU.

    python benchmarks/cuda_bars.py shapes [--count 300] [--jobs 2]   right under simulation?
    python benchmarks/cuda_bars.py shapes --only cuda_product_exchanged,transposed
    python benchmarks/cuda_bars.py compile [--count 60] [--jobs 2]   registers and spills
    python benchmarks/cuda_bars.py compile --only cuda_product_exchanged
    python benchmarks/cuda_bars.py smooth                            modelled time along sizes
    python benchmarks/cuda_bars.py layouts                           one convolution, NCHW and NHWC
    python benchmarks/cuda_bars.py chosen                            layouts of whole networks

`shapes` draws odd workloads (`cuda_shapes.py`), lowers each by every implementation that applies,
in settings that try what no setting before had, executes the text in three orders of blocks, warps
and lanes and compares it with numpy. It ends with 1 where a result is wrong, a launch would be
refused, or a value of a knob that can be had was never tried. `compile` asks NVIDIA's compiler
about the default settings of tasks of four networks for seven architectures, about those where tf32
is allowed as well if they differ, and ends with 1 where one spills. With `--only`, both look at the
kernels of some implementations, `shapes` also at those for some kinds of workloads, in the settings
that they have among all; they end with 1 where there are none. `smooth` follows the convolution of
a padding cliff that was reported to us, tells each step above 1.15 with its tiles, and ends with 1
where neither waves nor bytes explain one (`cuda_smooth.py`); `layouts` tells what its kernels are,
with its images in either layout. `chosen` solves the problem of layouts of networks by the facts'
estimates. Tables go to docs/benchmarks-cuda-kernels.md where `--page` is given; it has none of
`compile --only`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from covered_knobs import Covered, plain
from cuda_shapes import FAMILIES, drawn, unwritten
from cuda_smooth import HEADINGS, LARGEST, along, largest_step
from cuda_smooth import told as of_step
from pages import marks, replace_between, table
from tilewright.compiler.operands import physical_operands
from tilewright.core.events import Event, Note
from tilewright.core.forms import CHANNELS_LAST, IMAGE_LAYOUTS
from tilewright.core.records import Candidate, Device, Placement
from tilewright.core.targets import threads_alone
from tilewright.graph.arrays import to_logical
from tilewright.graph.workload import Workload
from tilewright.hardware.device import class_key
from tilewright.hardware.gpus import CudaProgram, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.insight.cuda_explaining import cuda_explainer
from tilewright.insight.cuda_studies import memory_bytes
from tilewright.kernels.base import Implementation
from tilewright.kernels.cuda.images import image_forms
from tilewright.kernels.estimates import estimate_s
from tilewright.kernels.registry import applicable, implementation, implementations, ports_in
from tilewright.kernels.spaces import MAX_ERROR, default_candidate
from tilewright.measure.checking import numpy_reference, relative_error, sample_arguments
from tilewright.models import ModelOptions
from tilewright.plan.assignment.solving import DEFAULT as SOLVER
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import plan_with
from tilewright.plan.preparation import prepare_outline
from tilewright.search.layout_costs import LayoutCosts

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks-cuda-kernels.md"
UNTUNED = "cuda_default"
TF32_ERROR = 2e-3
"""Allowed where products may be computed in tf32."""
MODEL = "H100"
ORDERS = (0, 1, 2)
ORDERS_OF_IMAGES = ("row by row", "channels last")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
NETWORKS = ("resnet50", "mobilenet_v2", "bert_base", "vit_b16")
IMAGE_NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1")
BATCHES = (1, 8, 32)
PADDING = "op:conv2d[c=3,h={h},k={k},pad={pad},out=32]"
_processes = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))
"""One that ends early ends the command."""


def placement(target: str) -> Placement:
    """A GPU that nobody has to have."""
    found = gpu_target(parse_gpu(target))
    device = Device(class_key=class_key(found), instance="", target=found, access="described")
    return Placement(device=device, resources=threads_alone(found.cores))


def program(workload: Workload, candidate: Candidate, on: Placement) -> CudaProgram:
    """A candidate's text and launches."""
    from tilewright.compiler.builders.cuda import program_of

    return program_of(workload, candidate, on.target, on.resources)


def fault(workload: Workload, candidate: Candidate, on: Placement) -> str:
    """What is wrong with a kernel; empty where it gives numpy's numbers in every order."""
    from tvm.error import InternalError

    from tilewright.testing.cuda_execution import KernelFault, LaunchRefused, cuda_executable

    arrays, form = sample_arguments(workload, 0), candidate.forms[-1]
    expected, scale = numpy_reference(workload, arrays)
    bound = implementation(candidate.implementation).error_bound(workload)
    try:
        made = program(workload, candidate, on)
    except InternalError as error:
        return f"cannot be lowered: {error}"
    executable = cuda_executable(made.source, on.target.architecture)
    physical = physical_operands(workload, candidate, arrays)
    given = {f"argument{place}": array for place, array in enumerate(physical)}
    for array in given.values():
        array.flags.writeable = False
    for seed in ORDERS:
        shape = form.physical_shape(workload.result.shape)
        result = unwritten(shape, workload.result.dtype)
        kept = {n: unwritten((size,), kind) for n, (size, kind) in made.workspaces.items()}
        try:
            executable.run(made.launches, given | kept | {"result": result}, seed=seed)
        except (KernelFault, LaunchRefused) as error:
            return f"{type(error).__name__}: {error}"
        logical = to_logical(result, form, workload.result.shape)
        error = relative_error(logical, expected, scale)
        if not error <= bound:
            return f"error {error:.3g} above {bound:.3g} in order {seed}"
    return ""


def candidates(
    covered: Covered,
    spec: Implementation,
    workload: Workload,
    on: Placement,
    rng: np.random.Generator,
) -> Iterator[Candidate]:
    """Settings with images row by row, then with channels last on either side, or on both, as far
    as that makes a difference."""
    ports = spec.port_forms(workload, on.target, on.resources)
    others = [forms for forms in ports if CHANNELS_LAST in forms]
    chosen = others[int(rng.integers(len(others)))] if others else ()
    for forms in filter(None, (plain(workload), chosen)):
        for settings in covered.pick(spec, workload, on, rng, forms):
            known = tuple(sorted(settings.items()))
            yield Candidate(implementation=spec.name, settings=known, forms=forms)


Ran = Counter[tuple[str, str, str]]
"""Kernels by kind, implementation and layout."""


def _names(text: str, kinds: Collection[str]) -> tuple[str, ...]:
    """Implementations, and `kinds` of workloads; argparse tells one that there is not."""
    names = tuple(text.split(","))
    known = {*kinds, *implementations()}
    if unknown := {*names} - known:
        raise argparse.ArgumentTypeError(f"nothing is called {', '.join(sorted(unknown))}")
    return names


def _shapes_part(
    part: int, parts: int, count: int, seed: int, only: Sequence[str] = ()
) -> tuple[Covered, Ran, list[str]]:
    on, covered = placement(f"cuda -model={MODEL}"), Covered()
    wrong: list[str] = []
    ran: Ran = Counter()
    rng = np.random.default_rng(seed)
    for number, (kind, workload) in enumerate(drawn(count, seed)):
        if number % parts != part:
            continue
        for spec in applicable(workload, on.target, on.resources):
            if spec.name == UNTUNED:
                continue
            for candidate in candidates(covered, spec, workload, on, rng):
                if only and not {kind, spec.name} & {*only}:
                    continue
                layout = ORDERS_OF_IMAGES[CHANNELS_LAST in candidate.forms]
                ran[kind, spec.name, layout] += 1
                found = fault(workload, candidate, on)
                if found:
                    wrong.append(f"{kind} {workload.key} {candidate}: {found}")
                    print(wrong[-1], file=sys.stderr, flush=True)
        if number % 20 == part:
            print(f"{number} of {count}, {len(wrong)} wrong", file=sys.stderr, flush=True)
    return covered, ran, wrong


def shapes(args: argparse.Namespace) -> int:
    """Execute odd shapes, and tell what was tried."""
    only: tuple[str, ...] = args.only
    work = partial(_shapes_part, parts=args.jobs, count=args.count, seed=args.seed, only=only)
    with _processes(args.jobs) as pool:
        found = list(pool.map(work, range(args.jobs)))
    covered, ran = Covered(), Counter[tuple[str, str, str]]()
    for each, counts, _ in found:
        covered.tried.update(each.tried)
        covered.offered |= each.offered
        ran.update(counts)
    if not ran:
        return _nothing()
    wrong, missing = [text for _, _, some in found for text in some], covered.missing()
    rows = [[name, kind, layout, str(count)] for (kind, name, layout), count in sorted(ran.items())]
    text = table(["implementation", "workloads", "images", "kernels"], rows)
    values = f"{len(covered.tried)} values of knobs, {len(missing)} never tried"
    summary = (
        f"{args.count} workloads, {sum(ran.values())} kernels in {len(ORDERS)} orders each"
        f"{'' if only else ', ' + values}: {len(wrong)} wrong."
    )
    _tell("shapes only" if only else "shapes", f"{text}\n\n{summary}", page=args.page)
    for line in missing:
        print(f"never tried: {line}")
    return int(bool(wrong or missing))


def tasks(count: int) -> list[tuple[str, Workload]]:
    """So many tasks of the networks at the batches, with the network's name: those with the most
    operations of each anchor first, in turn."""
    by_anchor: dict[str, list[tuple[str, Workload]]] = {}
    seen: set[str] = set()
    for batch in BATCHES:
        for network in NETWORKS:
            options = ModelOptions(batch=batch)
            prepared = prepare_outline(f"zoo:{network}", options, placement(f"cuda -model={MODEL}"))
            for task in prepared.tasks.values():
                if task.workload.text not in seen:
                    seen.add(task.workload.text)
                    name = task.workload.anchor_name or "none"
                    by_anchor.setdefault(name, []).append((f"{network}, {batch}", task.workload))
    for found in by_anchor.values():
        found.sort(key=lambda item: -item[1].flop)
    most = max(map(len, by_anchor.values()))
    turns = [found[n] for n in range(most) for found in by_anchor.values() if n < len(found)]
    return turns[:count]


def _compiled(item: tuple[str, Workload], only: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    from tilewright.compiler.cuda.compilers import compiled_source

    name, workload = item
    rows: list[tuple[Any, ...]] = []
    for arch, (layout, form) in product(
        ARCHITECTURES, zip(ORDERS_OF_IMAGES, IMAGE_LAYOUTS.values(), strict=True)
    ):
        on = placement(f"cuda -arch={arch}")
        forms = ports_in(form, workload, on.target, on.resources)
        if forms is None:
            continue
        chosen = (
            default_candidate(workload, forms, on, error)[0] for error in (MAX_ERROR, TF32_ERROR)
        )
        for candidate in dict.fromkeys(chosen):
            if only and candidate.implementation not in only:
                continue
            made = program(workload, candidate, on)
            done = compiled_source(made.source, arch)
            if done.reason:
                raise SystemExit(f"{name} {workload.key} {arch}: {done.reason}")
            reports = done.reports.values()
            rows.append(
                (
                    *(name, workload.key, candidate.implementation, layout, arch),
                    dict(candidate.settings),
                    max(report.registers for report in reports),
                    sum(it.spill_store_bytes + it.spill_load_bytes for it in reports),
                    sum(report.stack_bytes for report in reports),
                )
            )
    return rows


def compile_defaults(args: argparse.Namespace) -> int:
    """Compile the default settings of real tasks for every architecture."""
    only: tuple[str, ...] = args.only
    work = partial(_compiled, only=only)
    with _processes(args.jobs) as pool:
        rows = [row for rows in pool.map(work, tasks(args.count)) for row in rows]
    if not rows:
        return _nothing()
    wrong = [row for row in rows if row[7] or row[8]]
    for row in wrong:
        print(f"spills: {row}")
    summary: list[list[str]] = []
    kinds = product(sorted({row[2] for row in rows}), ORDERS_OF_IMAGES, ARCHITECTURES)
    for name, layout, arch in kinds:
        mine = [row for row in rows if row[2:5] == (name, layout, arch)]
        if mine:
            registers = [row[6] for row in mine]
            spills = sum(1 for row in mine if row[7] or row[8])
            ends = f"{min(registers)} to {max(registers)}"
            summary.append([name, layout, arch, str(len(mine)), ends, str(spills)])
    headings = ["implementation", "images", "architecture", "kernels", "registers", "spilling"]
    text = table(headings, summary)
    _tell("compiled", f"{text}\n\n{len(rows)} kernels, {len(wrong)} spill.", page=args.page)
    return int(bool(wrong))


def smooth(args: argparse.Namespace) -> int:
    """Follow the convolution along its padding and its height."""
    rows: list[list[str]] = []
    large: list[list[str]] = []
    for model in args.models.split(","):
        on = placement(f"cuda -model={model}")
        for kernel, layout in product((3, 7), IMAGE_LAYOUTS):
            sweeps = {
                "padding 0 to 3": {
                    f"padding {p}": PADDING.format(h=225, k=kernel, pad=p) for p in range(4)
                },
                "height 200 to 260": {
                    f"height {h}": PADDING.format(h=h, k=kernel, pad=0) for h in range(200, 261)
                },
            }
            for name, texts in sweeps.items():
                points, steps = along(texts, layout, on)
                times = [point.total_s * 1e6 for point in points]
                span, kernels = f"{min(times):.1f} to {max(times):.1f}", {p.name for p in points}
                over = [step for step in steps if step.ratio > LARGEST]
                odd = sum(bool(step.fault) for step in over)
                largest = largest_step([point.seconds for point in points])
                told = [span, f"{largest:.3f}", str(len(over)), str(odd)]
                tiles, what = str(len({p.tile for p in points})), ", ".join(sorted(kernels))
                rows.append([model, f"{kernel}×{kernel}", layout, name, *told, tiles, what])
                large += [[model, f"{kernel}×{kernel}", layout, *of_step(step)] for step in over]
    headings = ["GPU", "kernel", "layout", "along", "modelled, µs", "largest step", "above 1.15"]
    text = table([*headings, "unexplained", "tiles", "kernels"], rows)
    steps_text = table(["GPU", "kernel", "layout", *HEADINGS], large) if large else ""
    _tell("smooth", f"{text}\n\n{steps_text}".rstrip(), page=args.page)
    return int(any(row[7] != "0" for row in rows))


def layouts(args: argparse.Namespace) -> int:
    """The kernels of the convolution in either layout."""
    from tilewright.measure.cuda_inspector import CudaInspector

    rows: list[list[str]] = []
    for kernel, h, pad, layout in product((3, 7), (200, 225, 260), (0, 1), IMAGE_LAYOUTS):
        explainer = cuda_explainer(
            f"cuda -model={MODEL}", None, _heard, ModelOptions(), layout=layout
        )
        found = explainer.kernel(PADDING.format(h=h, k=kernel, pad=pad))
        with CudaInspector(explainer.placement) as inspector:
            told = explainer.facts(found, inspector.code(*found))
        facts_of_it = [_written(float(told[name])) for name in _TOLD]
        modelled_us = f"{float(told['modelled_s']) * 1e6:.1f}"
        size = f"{memory_bytes(found, explainer) / 2**20:.2f}"
        rows.append(
            [f"{kernel}×{kernel}", str(h), str(pad), layout, modelled_us, size, *facts_of_it]
        )
    headings = [
        "kernel",
        "height",
        "padding",
        "layout",
        "modelled, µs",
        "memory, MiB",
        *_TOLD.values(),
    ]
    _tell("layouts", table(headings, rows), page=args.page)
    return 0


_TOLD = {
    "grid_blocks": "blocks",
    "block_threads": "threads",
    "registers": "registers",
    "loads": "loads of a thread",
    "sectors_per_load": "sectors of a load",
    "comparisons": "comparisons of a thread",
}
"""What is told of a kernel, with its heading."""


def _written(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.1f}"


def _heard(event: Event) -> None:
    if isinstance(event, Note):
        print(event.message, file=sys.stderr)


def chosen(args: argparse.Namespace) -> int:
    """Networks with their images row by row, and in the layouts that a solver chooses."""
    on = placement(f"cuda -model={MODEL}")
    rows: list[list[str]] = []
    for name, batch in product(IMAGE_NETWORKS, BATCHES):
        network = prepare_outline(f"zoo:{name}", ModelOptions(batch=batch), on)
        times = LayoutCosts(placement=on)
        problem = NetworkProblem(
            network=network.fused, usual=network.forms, placement=on, times=times
        )
        found = plan_with(SOLVER, problem, name)
        seconds = [
            sum(estimate_s(it.workload, it.candidate, on.target, on.resources) for it in plan.calls)
            for plan in (network.plan, found.plan)
        ]
        images = [it for it in found.plan.tensors.values() if len(image_forms(it.type)) > 1]
        last = sum(it.form == CHANNELS_LAST for it in images)
        conversions = sum(call.kind == "conversion" for call in found.plan.calls)
        told = [f"{1e6 * each:,.0f}" for each in seconds]
        told += [f"{seconds[0] / seconds[1]:.2f}", f"{last} of {len(images)}", str(conversions)]
        rows.append([name, str(batch), *told])
    headings = ["network", "batch", "row by row, µs", "chosen, µs", "ratio"]
    text = table([*headings, "images with channels last", "conversions"], rows)
    _tell("chosen", text, page=args.page)
    return 0


def _nothing() -> int:
    print("nothing was looked at", file=sys.stderr)
    return 1


def _tell(name: str, text: str, *, page: bool) -> None:
    print(text)
    if page:
        replace_between(PAGE, marks(name), text)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "shapes": shapes,
        "compile": compile_defaults,
        "smooth": smooth,
        "layouts": layouts,
        "chosen": chosen,
    }
    kinds: dict[str, Collection[str]] = {"shapes": FAMILIES, "compile": ()}
    for name, work in commands.items():
        part = parts.add_parser(name)
        part.add_argument("--page", action="store_true", help="write the table to the page")
        part.add_argument("--jobs", type=int, default=2)
        part.add_argument("--count", type=int, default=60 if name == "compile" else 300)
        part.add_argument("--seed", type=int, default=0)
        if name in kinds:
            names = partial(_names, kinds=kinds[name])
            part.add_argument("--only", type=names, default=(), help="names, by commas")
        part.add_argument("--models", default="T4,A100,H100", help="of `smooth`")
        part.set_defaults(work=work)
    args = parser.parse_args(argv)
    if args.part == "compile" and args.only and args.page:
        parser.error("the page has a table of all kernels only: leave out --page or --only")
    return args.work(args)


if __name__ == "__main__":
    sys.exit(main())
