"""Kernels with ARM's products of vectors and matrices under user-mode emulation: are they right?

    python benchmarks/emulated_kernels.py [--count 40] [--seed 0]

Of each kernel and each set of instructions odd workloads are drawn, in any layouts and in settings
that try what none before had. Kernels are compiled here, linked with a small program
(`emulated_kernel.c`), run under QEMU as a processor that has these instructions, and compared with
numpy: sums of codes exactly, those of bfloat16 within the kernel's bound. It needs Debian or Ubuntu
with `qemu-user`, `gcc-aarch64-linux-gnu` and `libc6-dev-arm64-cross`, prints a table, and ends with
1 where a result is wrong. Times are those of the emulation and say nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import tvm

from covered_knobs import Covered
from cuda_shapes import FAMILIES, Draw, step
from pages import table
from tilewright.compiler.build import argument_types, compiled, kernel_module
from tilewright.compiler.kernel_runs import evaluated
from tilewright.core.forms import PLAIN, Form, blocked, stored_in
from tilewright.core.records import Candidate, Placement
from tilewright.graph.network import Array, TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import parse_target
from tilewright.kernels.base import HALF, anchored
from tilewright.kernels.codes import WIDEN
from tilewright.kernels.conv2d_winograd import WinogradConvolution
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.measure.checking import (
    numpy_reference,
    relative_error,
    rounding_of,
    sample_arguments,
    stored_as,
)

EMULATORS, LINKER = ("qemu-aarch64-static", "qemu-aarch64"), "aarch64-linux-gnu-gcc"
SOURCE = Path(__file__).with_name("emulated_kernel.c")
CODES = ("uint8", "int8")
_CHANNELS, _SIDES = (3, 4, 8, 10, 12, 16, 20, 24, 32), (1, 5, 6, 7, 9, 11, 13, 14)
_LENGTHS = (1, 3, 6, 13, 16, 24, 33, 40, 64, 70)
Shape = tuple[int, ...]
_KINDS = {"float": 2, "int": 0, "uint": 1, "bool": 6}
"""DLPack's codes of types."""


@dataclass(frozen=True)
class Case:
    """A kernel on a processor that has these `features` beside NEON, which is emulated as
    `processor`; codes are of type `data`."""

    kernel: str
    features: tuple[str, ...]
    processor: str
    data: str = "float32"

    @property
    def placement(self) -> Placement:
        """The processor as a target."""
        attributes = ",".join(f"+{name}" for name in ("neon", *self.features))
        text = f"llvm -mtriple=aarch64-linux-gnu -mattr={attributes}"
        return replace(parse_target(text, 2), precision="float32" if self.codes else HALF)

    @property
    def codes(self) -> bool:
        """Whether it multiplies codes."""
        return self.data in CODES


_WITH_CODES = [
    (features, processor, data)
    for features, processor in (
        ((), "cortex-a72"),
        (("dotprod",), "neoverse-n1"),
        (("dotprod", "i8mm"), "max"),
    )
    for data in CODES
]
_HALVES = (
    "conv2d_bfloat16",
    "dense_bfloat16",
    "batch_matmul_bfloat16",
    "attention_bfloat16",
    "conv2d_winograd_bfloat16",
    "conv2d_winograd2_bfloat16",
    "conv2d_winograd1d_bfloat16",
    "conv2d_transposed_bfloat16",
)
_CODED = (
    "conv2d_int8",
    "dense_int8",
    "batch_matmul_int8",
    "conv2d_transposed_int8",
    "attention_int8",
)
_MATRICES = ("conv2d", "dense", "batch_matmul")
CASES = [
    *(Case(name, *one) for name in _CODED for one in _WITH_CODES),
    *(Case(name, ("bf16",), "max") for name in _HALVES),
    *(Case(f"{name}_mmla_int8", ("i8mm",), "max", c) for name in _MATRICES for c in CODES),
    *(Case(f"{name}_mmla", ("bf16",), "max") for name in _MATRICES),
]


def emulator() -> str | None:
    """The emulator, where it and a linker for ARM are installed."""
    found = next((path for name in EMULATORS if (path := shutil.which(name))), None)
    return found if shutil.which(LINKER) else None


@cache
def _folder() -> TemporaryDirectory[str]:
    """Where the program lies that calls kernels, compiled."""
    made = TemporaryDirectory(prefix="emulated")
    words = [LINKER, "-O1", "-c", str(SOURCE), "-o", f"{made.name}/main.o"]
    subprocess.run(words, check=True)
    return made


def emulated(case: Case, workload: Workload, candidate: Candidate, arrays: list[Array]) -> Array:
    """What a kernel makes of logical arrays under emulation."""
    on, folder = case.placement, Path(_folder().name)
    module = kernel_module(workload, candidate, on.target, on.resources)
    made = compiled(module, on.target, on.resources).mod
    made.write_to_file(str(folder / "kernel.o"), "o")
    parts = [str(folder / name) for name in ("main.o", "kernel.o")]
    program = str(folder / "kernel")
    subprocess.run([LINKER, "-static", *parts, "-lm", "-o", program], check=True)

    def call(*tensors: tvm.runtime.Tensor) -> None:
        operands = [tensor.numpy() for tensor in tensors]
        words = [str(emulator()), "-cpu", case.processor, program, str(len(operands))]
        given = b"".join(map(_operand, operands))
        done = subprocess.run(words, input=given, stdout=subprocess.PIPE, check=True)
        last = operands[-1]
        tensors[-1].copyfrom(np.frombuffer(done.stdout, last.dtype).reshape(last.shape))

    there = (tvm.cpu(), argument_types(module["main"])[-1])
    return evaluated(call, there, workload, candidate, arrays)


def _operand(array: Array) -> bytes:
    name, bits = array.dtype.name, 8 * array.dtype.itemsize
    code = _KINDS[name.rstrip("0123456789")]
    head = np.array([code, bits, array.ndim, array.nbytes, *array.shape], np.int64)
    return head.tobytes() + array.tobytes()


def error(case: Case, workload: Workload, candidate: Candidate, seed: int) -> tuple[float, float]:
    """A kernel's error relative to Σ|w||x|, and its bound."""
    arrays = [
        stored_as(array, form)
        for array, form in zip(sample_arguments(workload, seed), candidate.forms, strict=False)
    ]
    result = emulated(case, workload, candidate, arrays)
    bound = implementation(candidate.implementation).error_bound(workload)
    found = relative_error(result, *numpy_reference(workload, arrays))
    return found, bound + rounding_of(candidate.forms[-1])


def _one(rng: Draw, values: Sequence[int]) -> int:
    return int(rng.choice(values))


def _finished(
    rng: Draw, case: Case, data: Shape, weight: Shape, anchor: Step, columns: Shape
) -> Workload:
    """The product alone, or with a bias and relu; of codes with what makes codes of its sums, each
    channel by its own scale. A batched product has no constant operand."""
    kinds = [TensorType(data, case.data), TensorType(weight, "int8" if case.codes else "float32")]
    steps = [anchor]
    if not rng.integers(4):
        pass
    elif case.codes:
        kinds += [TensorType(columns, "int32"), TensorType(columns)]
        written = CODES[int(rng.integers(2))]
        limits = np.iinfo(written)
        steps += [
            step("add", 4, 2),
            step("cast", 5, dtype="float32"),
            step("multiply", 6, 3),
            step("round", 7),
            step("clip", 8, minimum=float(limits.min), maximum=float(limits.max)),
            step("cast", 9, dtype=written),
        ]
    else:
        kinds += [TensorType(columns)]
        steps += [step("add", 3, 2), step("relu", 4)]
    first = 2 if anchor.operator == "batch_matmul" else 1
    roles = ("data" if place < first else "constant" for place in range(len(kinds)))
    arguments = (Argument(type=k, role=role) for k, role in zip(kinds, roles, strict=True))
    return Workload(arguments=tuple(arguments), steps=tuple(steps))


def _convolution(rng: Draw, case: Case) -> Workload:
    spec, sizes = implementation(case.kernel), (1, 1, 2, 3, 3, 5)
    winograd = isinstance(spec, WinogradConvolution)
    kernels = [*spec.outputs] if winograd else [(_one(rng, sizes), _one(rng, sizes))]
    kernel = kernels[int(rng.integers(len(kernels)))]
    plain = winograd or bool(rng.integers(2))
    dilation = (1, 1) if plain else (_one(rng, (1, 2)), _one(rng, (1, 2)))
    groups = 1 if plain else _one(rng, (1, 2))
    inside = _one(rng, (32, 36, 48) if winograd else _CHANNELS)
    outside = _one(rng, (16, 21, 24, 48) if winograd else (4, 8, 10, 12, 16, 20, 24, 32, 40))
    if inside % (4 * groups) or outside % groups:
        groups = 1
    sides = [max((k - 1) * d + 1, _one(rng, _SIDES)) for k, d in zip(kernel, dilation, strict=True)]
    anchor = step(
        "conv2d",
        0,
        1,
        strides=(1, 1) if plain else (_one(rng, (1, 2)), _one(rng, (1, 2))),
        padding=tuple(min(_one(rng, (0, 1, 2)), k - 1) for k in kernel * 2),
        dilation=dilation,
        groups=groups,
    )
    data = (_one(rng, (1, 1, 2)), inside, *sides)
    weight = (outside, inside // groups, *kernel)
    return _finished(rng, case, data, weight, anchor, (outside, 1, 1))


def _transposed(rng: Draw, case: Case) -> Workload:
    kernel = (_one(rng, (1, 2, 3, 4)), _one(rng, (1, 2, 3, 4)))
    groups = _one(rng, (1, 1, 2))
    inside, outside = _one(rng, _CHANNELS[1:]), _one(rng, (4, 8, 10, 12, 16, 24, 32))
    anchor = step(
        "conv2d_transpose",
        0,
        1,
        strides=(_one(rng, (1, 2, 3)), _one(rng, (1, 2))),
        padding=tuple(min(_one(rng, (0, 1)), k - 1) for k in kernel * 2),
        output_padding=(0, 0),
        dilation=(_one(rng, (1, 2)), 1),
        groups=groups,
    )
    data = (_one(rng, (1, 1, 2)), inside, _one(rng, _SIDES[1:]), _one(rng, _SIDES[1:]))
    weight = (inside, outside // groups, *kernel)
    return _finished(rng, case, data, weight, anchor, (outside, 1, 1))


def _dense(rng: Draw, case: Case) -> Workload:
    rows = [(_one(rng, _LENGTHS),), (2, _one(rng, _SIDES)), (1,), ()][int(rng.integers(4))]
    depth, columns = _one(rng, _LENGTHS), _one(rng, _LENGTHS)
    return _finished(rng, case, (*rows, depth), (depth, columns), step("dense", 0, 1), (columns,))


def _product(rng: Draw, case: Case) -> Workload:
    task = FAMILIES["product"](rng)
    if not case.codes:
        return task
    data, weight = (kind.shape for kind in task.types[:2])
    return _finished(rng, case, data, weight, task.steps[0], task.result.shape[-1:])


def _attention_on_codes(rng: Draw, case: Case) -> Workload:
    """A drawn attention with its tensors as codes, keys and values of either sign, and a rounding
    between its products."""
    step_, kinds, _ = anchored(FAMILIES["attention"](rng))
    dtypes = (case.data, *(CODES[int(rng.integers(2))] for _ in range(2)))
    codes = [replace(kind, dtype=d) for kind, d in zip(kinds[:3], dtypes, strict=True)]
    parameters = TensorType((2, 4)), TensorType((3,), "int32")
    roles = ("data",) * 3 + ("constant",) * 2
    named = {name: step_.attribute(name) for name in ("heads", "key_heads")}
    return Workload(
        arguments=tuple(
            Argument(type=kind, role=role)
            for kind, role in zip((*codes, *parameters), roles, strict=True)
        ),
        steps=(step("quantized_attention", *range(5), masked=-1, **named),),
    )


def drawn(case: Case, rng: Draw) -> Workload:
    """A workload of odd extents for a kernel."""
    if case.kernel == "attention_int8":
        return _attention_on_codes(rng, case)
    if case.kernel.startswith("attention"):
        return FAMILIES["attention"](rng)
    kinds = {"batch_matmul": _product, "dense": _dense, "conv2d_transposed": _transposed}
    draws = (draw for name, draw in kinds.items() if case.kernel.startswith(name))
    return next(draws, _convolution)(rng, case)


def _forms(rng: Draw, case: Case, workload: Workload) -> tuple[Form, ...]:
    """Data and result in blocks or not, and singles as halves or not."""
    spec, places = implementation(case.kernel), [PLAIN] * (len(workload.arguments) + 1)
    if workload.anchor_name in ("conv2d", "conv2d_transpose"):
        step_, (data, _), result = anchored(workload)
        for place, count in ((0, data.shape[1]), (-1, result.shape[1] // step_.integer("groups"))):
            block = _one(rng, (0, 4, 8, 16))
            places[place] = blocked(block) if block and count % block == 0 else PLAIN
    if case.codes:
        return tuple(places)
    for place in spec.half_ports(workload):
        places[place] = stored_in(places[place], HALF) if rng.integers(2) else places[place]
    return tuple(places)


@dataclass
class Found:
    """Of a case: kernels that were run, those of them that widen no codes, the largest error and
    its share of the bound, faults."""

    kernels: int = 0
    dots: int = 0
    largest: float = 0.0
    share: float = 0.0
    wrong: list[str] = field(default_factory=list[str])


def run(case: Case, count: int, seed: int) -> Found:
    """Run so many kernels of a case."""
    found, covered, rng = Found(), Covered(), np.random.default_rng(seed)
    spec, on = implementation(case.kernel), case.placement
    while found.kernels < count:
        workload = drawn(case, rng)
        if not spec.applies(workload, on.target, on.resources):
            continue
        forms = _forms(rng, case, workload)
        if not knob_space(spec, workload, on.target, on.resources, forms).range_length:
            continue
        for settings in islice(covered.pick(spec, workload, on, rng, forms), 1):
            known = tuple(sorted(settings.items()))
            candidate = Candidate(implementation=spec.name, settings=known, forms=forms)
            off, bound = error(case, workload, candidate, seed)
            found.kernels += 1
            found.dots += settings.get("dot") != WIDEN
            found.largest = max(found.largest, off)
            found.share = max(found.share, off / bound)
            if not off <= bound:
                found.wrong.append(f"{workload.text} {candidate}: {off:.3g} above {bound:.3g}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, and what was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=40, help="kernels of each row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if emulator() is None:
        sys.exit(f"Here are not both a QEMU for user programs and {LINKER}.")
    rows: list[list[str]] = []
    wrong: list[str] = []
    for case in CASES:
        found = run(case, options.count, options.seed)
        wrong += found.wrong
        features = ", ".join(f"`{name}`" for name in case.features) or "nothing"
        counts = map(str, (found.kernels, found.dots, len(found.wrong)))
        errors = (f"{found.largest:.1e}", f"{found.share:.2f}")
        rows.append([f"`{case.kernel}`", case.data, features, case.processor, *counts, *errors])
        print(rows[-1], file=sys.stderr, flush=True)
    heads = ["kernel", "data", "beside NEON", "emulated as", "kernels", "not widened", "wrong"]
    print(table([*heads, "largest error", "of its bound"], rows))
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
