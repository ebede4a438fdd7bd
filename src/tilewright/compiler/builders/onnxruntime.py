"""Islands: ONNX Runtime computes a small model within a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np

from tilewright.compiler.builders.base import SimulatedBuilder
from tilewright.compiler.islands import Session, array_of
from tilewright.compiler.kernel_runs import BuiltKernel
from tilewright.core.codec import digest
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.island import CALLED
from tilewright.kernels.registry import implementation


@dataclass(frozen=True, slots=True, kw_only=True)
class _IslandKernel(BuiltKernel):
    session: Session
    index: int

    def run(self, arrays: Sequence[Array]) -> Array:
        """The result, of whatever shape it comes out."""
        self.session.abandon()
        given = [np.asarray(array, order="C") for array in arrays]
        return self.session.call(self.index, _in_order(self.workload, given), None)


def _in_order(workload: Workload, arrays: Sequence[Array]) -> list[Array]:
    """The operands of an island, which may read one argument twice."""
    return [arrays[value] for value in workload.steps[0].inputs]


def _of(workload: Workload) -> tuple[str, int]:
    """The model of a workload, and which of its outputs is the result."""
    (step,) = workload.steps
    return str(step.attribute("model")), step.integer("output_index")


class _OnnxRuntime:
    name = "onnxruntime"
    render = SimulatedBuilder.render

    def identify(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> str:
        """A hash of the model and of ONNX Runtime's version."""
        implementation(candidate.implementation)
        return digest(f"{version('onnxruntime')} {workload.text}")

    def build(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> _IslandKernel:
        """Open a session. The first output's kernel computes all of them, those of the others copy
        what was kept: together they take what the island takes in a network."""
        began = perf_counter()
        model, index = _of(workload)
        session = Session(model)
        kinds = [*(argument.type for argument in workload.arguments), workload.result]
        shapes = [kind.shape if kind.is_static else (0,) for kind in kinds]
        return _IslandKernel(
            call=(_copying if index else _computing)(session, workload),
            argument_types=tuple(
                (shape, kind.dtype) for shape, kind in zip(shapes, kinds, strict=True)
            ),
            kernel_hash=self.identify(workload, candidate, target, resources),
            build_s=perf_counter() - began,
            workload=workload,
            candidate=candidate,
            session=session,
            index=index,
        )

    def network_call(self, workload: Workload) -> tuple[str, tuple[str, ...]]:
        """See `builders.base.CalledInNetworks`."""
        model, index = _of(workload)
        return CALLED, (model, f"{index}{'' if workload.result.is_static else '?'}")


def _computing(session: Session, workload: Workload) -> Callable[..., None]:
    """A call that computes all outputs; the first goes to the last tensor where its shape is
    known."""

    def call(*tensors: Any) -> None:
        *operands, result = map(array_of, tensors)
        session.abandon()
        given = _in_order(workload, operands)
        session.call(0, given, result if workload.result.is_static else None)

    return call


def _copying(session: Session, workload: Workload) -> Callable[..., None]:
    """A call that copies the workload's output, which is computed once."""
    kept: list[Array] = []

    def call(*tensors: Any) -> None:
        *operands, result = map(array_of, tensors)
        if not kept:
            index = workload.steps[0].integer("output_index")
            kept.append(session.call(index, _in_order(workload, operands), None))
        if result.shape == kept[0].shape:
            np.copyto(result, kept[0])

    return call


BUILDER = _OnnxRuntime()
