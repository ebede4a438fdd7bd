"""Statements of kernels for GPUs that are written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Simplifier, physical_index, stored
from tilewright.core.forms import Form, own_layout
from tilewright.graph.network import TensorType
from tilewright.kernels.cuda.images import packed_forms

Expr = Any
SINGLE = "float32"
_BY_COMPILER = {"pragma_unroll_explicit": 0}
"""Loops are unrolled by NVIDIA's compiler, not in the text."""


def function_of(program: Program, write: Callable[[Any], None]) -> tirx.PrimFunc:
    """The function of a program: `write` gets its result, and says what its kernels do. Arguments
    are values of the program, packed filters too, and lie in its `arrays`."""
    workload, ports = program.workload, program.candidate.forms
    forms = dict(enumerate(ports)) | packed_forms(workload, ports)
    with IRBuilder() as builder:
        with build.prim_func(s_tir=True):
            build.func_name("main")
            build.func_attr({"tirx.noalias": True})
            for index, argument in enumerate(workload.arguments):
                kind, form = argument.type, forms[index]
                extents = [int(extent) for extent in program.tensors[index].shape]
                given = build.arg(f"argument{index}", build.buffer(extents, kind.dtype))
                program.arrays.append(given)
                read = partial(_element, given)
                program.values[index] = stored(read, kind, form, program.simplify)
            kind, form = workload.result, program.result_form
            there = build.buffer(form.physical_shape(kind.shape), kind.dtype)
            result = build.arg("result", there)
            with build.sblock("root"):
                write(Result(build.buffer_proxy(result), kind, form, program.simplify))
        return builder.get()


def _element(array: Any, *at: Expr) -> Expr:
    return array[at]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a function, written at logical indices: `result[n, c, y, x] = value`."""

    array: Any
    kind: TensorType
    form: Form
    simplify: Simplifier

    def __setitem__(self, at: Sequence[Expr], value: Expr) -> None:
        layout = own_layout(self.form)
        self.array[tuple(physical_index(layout, at, self.kind.shape, self.simplify))] = value


@contextmanager
def launched(program: Program, blocks: int, threads: int) -> Iterator[tuple[Expr, Expr]]:
    """A kernel: what each thread of each block does; gives the numbers of both."""
    with (
        named(build.thread_binding(0, blocks, "blockIdx.x"), "block") as block,
        named(build.thread_binding(0, threads, "threadIdx.x"), "thread") as thread,
        build.sblock("kernel"),
    ):
        program.simplify.announce([block, thread], [blocks, threads])
        build.reads([])
        build.writes([])
        yield block, thread


@contextmanager
def where(*conditions: Expr) -> Iterator[None]:
    """What is done only where all conditions hold; those that are None always do."""
    asked = [each for each in conditions if each is not None]
    if not asked:
        yield
        return
    with build.If(tirx.all(*asked)), build.Then():
        yield


def unrolled(extent: int, name: str) -> AbstractContextManager[Expr]:
    """A loop that the compiler unrolls."""
    return named(build.unroll(0, extent, annotations=_BY_COMPILER), name)


@contextmanager
def named(frame: Any, name: str) -> Iterator[Expr]:
    """A loop whose variable has a name."""
    with frame as variable:
        IRBuilder.name(name, variable)
        yield variable


def buffer(shape: Sequence[int], name: str, scope: str, kind: str = SINGLE) -> Any:
    """An array: `local` is each thread's own, `shared` and `shared.dyn` a block's, `global` all
    kernels'."""
    found = build.sblock_alloc_buffer(shape, kind, scope=scope)
    IRBuilder.name(name, found)
    return build.buffer_proxy(found)


def elements(count: int, *, spelled: bool = False) -> AbstractContextManager[Expr]:
    """The elements of a vector, `spelled` out where they do not lie side by side."""
    if count == 1:
        return nullcontext(0)
    return unrolled(count, "lane") if spelled else named(build.vectorized(0, count), "lane")
