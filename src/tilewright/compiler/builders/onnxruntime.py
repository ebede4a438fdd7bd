"""ONNX Runtime computes a small model within a network: an island, or a task as ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np
import tvm_ffi

from tilewright.compiler.builders.base import SimulatedBuilder
from tilewright.compiler.islands import (
    Session,
    close,
    computing,
    copying,
    enter,
    in_order,
    make_ready,
)
from tilewright.compiler.kernel_runs import BuiltKernel
from tilewright.compiler.onnx_models import task_model
from tilewright.core.codec import digest
from tilewright.core.records import Candidate, Protocol
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.island import CALLED, reason_of
from tilewright.kernels.registry import implementation


@dataclass(frozen=True, slots=True, kw_only=True)
class _IslandKernel(BuiltKernel):
    session: Session
    index: int

    def run(self, arrays: Sequence[Array]) -> Array:
        """The result, of whatever shape it comes out."""
        self.session.abandon()
        given = [np.asarray(array, order="C") for array in arrays]
        return self.session.call(self.index, in_order(self.workload, given), None)


class _TaskKernel(BuiltKernel):
    """A task as a network has it computed: by a call of the same function, and by sessions that are
    opened before anything is timed, one for each copy of the weights."""

    def run(self, arrays: Sequence[Array]) -> Array:
        """See `BuiltKernel.run`. Sessions are found by where weights lie, and these end here."""
        close(self)
        enter(self)
        try:
            return super().run(arrays)
        finally:
            close(self)

    def _operands(self, protocol: Protocol, seed: int) -> tuple[list[list[Any]], list[Any]]:
        close(self)
        found = super()._operands(protocol, seed)
        enter(self)
        _, given, _ = BUILDER.network_call(self.workload, self.candidate)
        for operands in found[0]:
            make_ready(*given, *operands)
        return found


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
        model = workload.text if reason_of(workload) else task_model(workload, candidate.forms)
        return digest(f"{version('onnxruntime')} {model}")

    def build(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> BuiltKernel:
        """Open a session of an island. The first output's kernel computes all of them, those of the
        others copy what was kept: together they take what the island takes in a network. Sessions
        of tasks are opened with their weights."""
        began = perf_counter()
        kinds = [*(argument.type for argument in workload.arguments), workload.result]
        shapes = [
            form.physical_shape(kind.shape) if kind.is_static else (0,)
            for kind, form in zip(kinds, candidate.forms, strict=True)
        ]
        known: dict[str, Any] = {
            "argument_types": tuple(
                (shape, kind.dtype) for shape, kind in zip(shapes, kinds, strict=True)
            ),
            "kernel_hash": self.identify(workload, candidate, target, resources),
            "workload": workload,
            "candidate": candidate,
        }
        if not reason_of(workload):
            name, given, _ = self.network_call(workload, candidate)
            call = partial(tvm_ffi.get_global_func(name), *given)
            return _TaskKernel(call=call, build_s=perf_counter() - began, **known)
        model, index = _of(workload)
        session = Session(model)
        return _IslandKernel(
            call=(copying if index else computing)(session, workload),
            build_s=perf_counter() - began,
            session=session,
            index=index,
            **known,
        )

    def network_call(
        self, workload: Workload, candidate: Candidate
    ) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """See `builders.base.CalledInNetworks`."""
        if reason_of(workload):
            model, index = _of(workload)
            output = f"{index}{'' if workload.result.is_static else '?'}"
            return CALLED, (model, output), workload.steps[0].inputs
        everything = range(len(workload.arguments))
        bound = ",".join(str(place) for place in everything if workload.is_constant(place))
        return CALLED, (task_model(workload, candidate.forms), f"0:{bound}"), tuple(everything)


BUILDER = _OnnxRuntime()
