"""Kernels on operands that lie flush against memory that must not be touched.

`main`, in a process of its own, runs candidates of each workload; a read or write outside an
operand ends the process with a signal. What runs is told on stdout before it runs.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from helpers.kernels.software_tiles import in_software
from tilewright.core.forms import Form, parse_forms
from tilewright.core.records import Candidate, Placement
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload, parse_workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.base import HALF
from tilewright.kernels.spaces import spaces

_PAGE = mmap.PAGESIZE
_FEW = 4


def guarded(nbytes: int, *, at_end: bool) -> Array:
    """Bytes with a forbidden page right behind them, or right before."""
    pages = -(-nbytes // _PAGE)
    block = mmap.mmap(-1, (pages + 2) * _PAGE)
    whole = np.frombuffer(block, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, pages + 1):
        address = ctypes.c_void_p(whole.ctypes.data + page * _PAGE)
        assert libc.mprotect(address, ctypes.c_size_t(_PAGE), 0) == 0
    start = _PAGE * (1 + pages) - nbytes if at_end else _PAGE
    return whole[start : start + nbytes]


def candidates(
    task: Workload, forms: tuple[Form, ...], placement: Placement
) -> Iterator[Candidate]:
    """The best guess of each implementation, and others from all over its space."""
    for space in spaces(task, forms, placement):
        numbers = [int(n) for n in space.numbers]
        best = int(space.numbers[int(np.argmin(space.estimates_s))])
        spread = numbers[:: max(1, len(numbers) // _FEW)][:_FEW]
        for number in dict.fromkeys((best, *spread)):
            yield space.part.candidate(number)


def run(task: Workload, candidate: Candidate, placement: Placement) -> None:
    """The kernel twice: operands flush with the end of their memory, then with its beginning."""
    import tvm_ffi

    from tilewright.compiler.builders.llvm import build_kernel

    kernel = build_kernel(task, candidate, placement.target, placement.resources)
    for at_end in (True, False):
        operands = []
        for shape, dtype in kernel.argument_types:
            nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
            assert nbytes % 64 == 0, f"{shape} of {dtype} cannot lie flush and aligned"
            view = guarded(nbytes, at_end=at_end).view(dtype).reshape(shape)
            view[...] = 1
            operands.append(tvm_ffi.from_dlpack(view))
        kernel.call(*operands)


def main(cases: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Run workloads with layouts; what stores halves with tile registers in software."""
    here, tiles = local_placement(), in_software()
    for text, layouts in cases:
        placement = tiles if any(HALF in layout for layout in layouts) else here
        task = parse_workload(text)
        for candidate in candidates(task, parse_forms(*layouts), placement):
            told = f"{candidate.implementation} {dict(candidate.settings)} {layouts} {text}"
            sys.stdout.write(told + "\n")
            sys.stdout.flush()
            run(task, candidate, placement)
    sys.stdout.write("done\n")
