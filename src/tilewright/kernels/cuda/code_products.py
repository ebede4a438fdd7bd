"""Products of codes of eight bits on GPUs, by the dot product of four bytes.

An instruction (PTX ISA, `dp4a`, from sm_61 on) multiplies four codes of a word by four of another
and adds up in 32 bits, each of the words signed or not. The tiles are those of `cuda_product`,
their elements words: four codes that follow each other along the depth, of a convolution four
channels of one tap. A depth that is no multiple of four ends with zeros.

Where words come from:

    x of a dense layer, images with channels last    as they lie in memory, up to 16 codes at once
    constants                                        packed ahead as rows of words
    columns of values, pixels of an image            four words of four codes of a row each, which
                                                     the thread turns into four words of a column
    all else                                         four codes one by one

Sums are exact, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import gcd

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, anchored
from tilewright.kernels.codes import CODES, ONE_QUANTUM, QUAD, code_error
from tilewright.kernels.convolution import convolution
from tilewright.kernels.cuda.images import channels_last
from tilewright.kernels.cuda.product_costs import ORDINARY
from tilewright.kernels.cuda.product_tiles import VECTOR, Operand, Product, product
from tilewright.kernels.cuda.products import MOST_ELEMENTS, CudaProducts, is_pointwise

UNIT = "int8"
"""What the instruction multiplies, whatever the signs."""
SUMS = "int32"
ARITHMETIC = replace(ORDINARY, element=UNIT, terms=QUAD, registers=(23.4, 1.11, 0.37, 0.6))
"""By dot products of four bytes; all else is as in singles, since a word is as long as one.
Registers are fitted to what ptxas reports of 45 settings for dense layers, batched products and
convolutions (sm_90): wrong by 15 % on average, by 30 % at the ninth decile."""


class CudaCodeProducts(CudaProducts):
    """Spec of the kernel."""

    name = "cuda_product_int8"
    anchors = frozenset({"dense", "batch_matmul", "conv2d"})
    arithmetic = ARITHMETIC

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Codes times codes where there is the instruction, with elementwise steps of the product's
        shape behind it. Of a convolution, groups have several channels."""
        step, (x, w, *_), result = anchored(workload)
        sizes = [kind.elements for kind in (x, w, result, *workload.types)]
        return (
            target.unit(UNIT, tiles=False) is not None
            and {x.dtype, w.dtype} <= CODES
            and result.dtype == SUMS
            and min(sizes) > 0
            and max(sizes) < MOST_ELEMENTS
            and not (step.operator == "conv2d" and convolution(workload).group_in == 1 < w.shape[0])
            and is_pointwise(workload)
        )

    def product(self, workload: Workload, forms: tuple[Form, ...] = ()) -> Product:
        """The extents of a workload in memory of these forms, elements along the depth words."""
        return code_product(workload, forms)

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact, and steps behind them rounded as in any kernel of codes; what the fast
        unit computes may round to a neighbouring code."""
        fast = any(
            step.operator == "divide" or OPERATORS[step.operator].transcendental > 0
            for step in workload.steps
        )
        if workload.result.dtype in SINGLE:
            return max(code_error(workload), self._functions_error(workload))
        return max(code_error(workload), ONE_QUANTUM if fast else 0.0)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Taps, words, columns, and four codes of a word."""
        weight = packed(workload)
        if weight is None:
            return {}
        shape = self.product(workload, candidate.forms)
        taps = convolution(workload).kernel if workload.anchor_name == "conv2d" else ()
        columns = anchored(workload)[1][1].shape[-1 if not taps else 0]
        return {weight: (*taps, shape.channels, columns, QUAD)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[K, N] → [K/4, N, 4], [O, C, 3, 3] → [3, 3, C/4, O, 4]; zeros fill the last word."""
        found = dict(constants)
        for index, (*taps, words, columns, width) in self.packed_shapes(
            workload, candidate
        ).items():
            array = constants[index]
            deep = array.transpose(2, 3, 1, 0) if taps else array
            filled = [(0, 0)] * len(taps) + [(0, words * width - deep.shape[-2]), (0, 0)]
            lines = np.pad(deep, filled).reshape(*taps, words, width, columns)
            found[index] = np.ascontiguousarray(lines.swapaxes(-1, -2))
        return found


@lru_cache(maxsize=4096)
def code_product(workload: Workload, forms: tuple[Form, ...]) -> Product:
    """The product of a workload, in words."""
    whole = product(workload, forms)
    is_image = workload.anchor_name == "conv2d"
    words = -(-whole.channels // QUAD)
    return replace(
        whole,
        depth=words * whole.taps,
        terms=whole.depth,
        left=_left(workload, whole, forms),
        right=_right(workload, whole),
        taps_outside=is_image,
    )


def packed(workload: Workload) -> int | None:
    """The argument of the right operand where it is a constant that nothing else reads."""
    step, _, _ = anchored(workload)
    weight = step.inputs[1]
    once = sum(each.inputs.count(weight) for each in workload.steps) == 1
    ahead = step.operator in ("dense", "conv2d") and once and workload.is_constant(weight)
    return weight if ahead else None


def is_turned(operand: Operand) -> bool:
    """Whether words are turned: loaded along the other axis, four at a time."""
    return operand.loads > 1 and operand.vector > 1


def in_words(operand: Operand) -> bool:
    """Whether words lie in memory."""
    return operand.loads == 1


def _left(workload: Workload, whole: Product, forms: tuple[Form, ...]) -> Operand:
    operand = whole.left
    if workload.anchor_name != "conv2d":
        return _along_depth(workload, operand, whole.depth)
    conv = convolution(workload)
    if not channels_last(workload, forms)[0]:
        direct = conv.taps == 1 and conv.strides == (1, 1) and not conv.padded
        return _across(workload, operand, conv.pixels if direct else 1)
    found = _along_depth(workload, operand, conv.group_in)
    beside = operand.line // conv.group_in
    return replace(found, line=found.line * beside) if in_words(found) else found


def _right(workload: Workload, whole: Product) -> Operand:
    operand = whole.right
    if packed(workload) is not None:
        columns = whole.columns
        return Operand(
            value=operand.value, along_depth=False, vector=gcd(columns, VECTOR), line=columns
        )
    if operand.along_depth:
        taken = whole.depth if workload.anchor_name != "conv2d" else 1
        return _along_depth(workload, operand, taken)
    return _across(workload, operand, whole.columns)


def _along_depth(workload: Workload, operand: Operand, extent: int) -> Operand:
    """Codes that lie side by side along the depth, in lines of `extent`."""
    words = -(-extent // QUAD)
    if _as_it_lies(workload, operand) and extent % QUAD == 0:
        return replace(operand, vector=gcd(words, VECTOR), line=words)
    return replace(operand, vector=1, line=words, loads=QUAD)


def _across(workload: Workload, operand: Operand, extent: int) -> Operand:
    """Codes that lie side by side along the other axis, in lines of `extent`."""
    whole = _as_it_lies(workload, operand) and extent % QUAD == 0
    return replace(operand, vector=QUAD if whole else 1, loads=QUAD, load_bytes=1)


def _as_it_lies(workload: Workload, operand: Operand) -> bool:
    """Whether an operand is an argument."""
    return operand.value < len(workload.arguments)


SPEC = CudaCodeProducts()
