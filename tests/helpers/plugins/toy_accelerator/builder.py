"""Kernels of the toy: operands go into its memory in their forms, and the result comes back."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.builders.base import SimulatedBuilder, SimulatedKernel
from tilewright.core.element_types import element_type
from tilewright.graph.arrays import to_logical, to_physical
from tilewright.graph.evaluate import run_workload

from .device import BYTES_PER_CYCLE, CLOCK_HZ
from .spec import SPEC, cycles_of


class DeviceMemory:
    """Bytes that only the toy can address; they grow as operands arrive."""

    def __init__(self):
        self._bytes = bytearray()

    def put(self, array, form, kind):
        """Move a logical array there in its form; where it lies."""
        address = len(self._bytes)
        self._bytes += to_physical(array, form).tobytes()
        assert len(self._bytes) - address == form.size_bytes(kind.shape, kind.dtype)
        return address

    def get(self, address, form, kind):
        """What lies there, logical, in the type of the tensor."""
        size = form.size_bytes(kind.shape, kind.dtype)
        stored = element_type(form.element(kind.dtype)).numpy
        raw = np.frombuffer(bytes(self._bytes[address : address + size]), dtype=stored)
        return to_logical(raw, form, kind.shape).astype(element_type(kind.dtype).numpy)


class ToyBuilder(SimulatedBuilder):
    name = "toy"

    def build(self, workload, candidate, target, resources):
        if candidate.implementation != SPEC.name:
            raise ValueError(f"the toy computes nothing by {candidate.implementation!r}")
        settings, forms = dict(candidate.settings), candidate.forms
        kinds = [argument.type for argument in workload.arguments]

        def run(arrays):
            memory = DeviceMemory()
            places = [
                memory.put(np.asarray(array), form, kind)
                for array, form, kind in zip(arrays, forms[:-1], kinds, strict=True)
            ]
            there = [memory.get(*at) for at in zip(places, forms[:-1], kinds, strict=True)]
            result = np.asarray(run_workload(workload, there))
            place = memory.put(result, forms[-1], workload.result)
            return memory.get(place, forms[-1], workload.result)

        told = float(cycles_of(workload, target, forms, np.array([settings["tile"]]))[0])
        # what the estimate does not know: rows of large tiles lie in one bank of the scratchpad
        conflicts = workload.result.elements / BYTES_PER_CYCLE * (settings["tile"] > 16)
        identity = self.identify(workload, candidate, target, resources)
        return SimulatedKernel(identity, run, (told + conflicts) / CLOCK_HZ)


BUILDER = ToyBuilder()
