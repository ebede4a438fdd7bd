"""CUDA code of a scheduled module, and what its host function does with it.

The way is TVM's own (`tirx.build`), taken step by step: device functions become text, and the host
function is read instead of compiled.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.expr import Call
from tvm.tirx.build import codegen_build, split_host_device_mods
from tvm_ffi import structural_visit

from tilewright.compiler.features.loops import evaluated, operator_name
from tilewright.core.settings import environment_with
from tilewright.hardware.gpus import CudaLaunch, CudaProgram

_TEXT_ONLY = "TVM_COMPILE_FORCE_FALLBACK"
_LAUNCH = "tirx.call_ffi_kernel"
_DYNAMIC = "tirx.use_dyn_shared_memory"


def split(module: tvm.IRModule, target: tvm.target.Target) -> tuple[Any, tvm.IRModule, Any]:
    """Host functions, device functions, and the passes that finish those of the device."""
    with_host = target.with_host(tvm.target.Target("llvm"))
    passes: Any = tirx.get_default_tir_pipeline(with_host)
    before, _, finish_device = passes
    hosts, devices = split_host_device_mods(before(tirx.transform.BindTarget(with_host)(module)))
    (device_module,) = devices.values()
    return hosts, device_module, finish_device()


def cuda_program(module: tvm.IRModule, target: tvm.target.Target) -> CudaProgram:
    """The text of a scheduled module with one function, and its launches.

    Arrays have the names of the tensors that the module was made of.
    """
    hosts, device_module, finish = split(module, target)
    (host,) = hosts.functions.values()
    reader = _Host(device_module)
    reader.read(host.body)
    return CudaProgram(
        source=_text(finish(device_module), target),
        launches=tuple(reader.launches),
        workspaces=reader.workspaces,
    )


def _text(device_module: tvm.IRModule, target: tvm.target.Target) -> str:
    """Device functions as CUDA C++. Where NVIDIA's driver is, TVM would also compile them, for
    seconds and into something that nobody takes: that is switched off meanwhile."""
    with environment_with(_TEXT_ONLY, "1"):
        return str(codegen_build(device_module, target).inspect_source())


class _Host:
    """What a host function does: its loops are run, its checks of arguments left out."""

    def __init__(self, device_module: tvm.IRModule) -> None:
        self._functions = {it.name_hint: f for it, f in device_module.functions.items()}
        self._known: dict[Any, Any] = {}
        self.launches: list[CudaLaunch] = []
        self.workspaces: dict[str, tuple[int, str]] = {}

    def read(self, node: Any) -> None:
        """Read a statement."""
        callbacks = [(tirx.For, self._loop), (tirx.AllocBuffer, self._allocate), (Call, self._call)]
        structural_visit(node, callbacks)

    def _loop(self, node: Any, visitor: Any) -> None:
        for step in range(int(node.extent)):
            self._known[node.loop_var] = int(node.min) + step
            visitor.visit(node.body)

    def _allocate(self, node: Any, _visitor: Any) -> None:
        buffer = node.buffer
        kind, _, lanes = str(buffer.dtype).partition("x")  # of vectors where all accesses are
        self.workspaces[str(buffer.name)] = prod(map(int, buffer.shape)) * int(lanes or 1), kind

    def _call(self, node: Any, _visitor: Any) -> None:
        if operator_name(node) != _LAUNCH:
            return
        name, parameters = str(node.args[0].value), [str(it) for it in node.attrs["launch_params"]]
        given = node.args[1 : len(node.args) - len(parameters)]
        numbers = map(int, node.args[len(node.args) - len(parameters) :])
        sizes = dict(zip(parameters, numbers, strict=True))
        places = zip(self._functions[name].params, given, strict=True)
        grid, block = (
            (sizes.get(f"{of}.x", 1), sizes.get(f"{of}.y", 1), sizes.get(f"{of}.z", 1))
            for of in ("blockIdx", "threadIdx")
        )
        self.launches.append(
            CudaLaunch(
                kernel=name,
                grid=grid,
                block=block,
                arguments=tuple(self._argument(*place) for place in places),
                dynamic_shared_bytes=sizes.get(_DYNAMIC, 0),
            )
        )

    def _argument(self, parameter: Any, given: Any) -> str | int:
        """The name of an array, or a number."""
        if isinstance(given.ty, tvm.ir.PointerType):
            return str(parameter.name).removesuffix("_ptr")
        return int(evaluated(given, self._known))
