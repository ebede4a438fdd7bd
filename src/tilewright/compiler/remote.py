# pyright: basic
"""Kernels and whole networks on other machines over TVM RPC: export, upload, run and time them.

Nothing but TVM's runtime is needed there. Operands of kernels are made on the device: a block of
random numbers is uploaded and a small function in the kernel's own library repeats it, since TVM's
`random_fill` gives no N(0, 1) and writes floats into 32-bit integers. TVM's virtual machine keeps
the weights of networks; a network with its inputs is a closure that the device calls by itself, so
that no round trip is timed.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, rpc, te
from tvm.rpc.server import PopenRPCServerState
from tvm.support import cc

from tilewright.compiler.build import argument_types, compiled, kernel_hash_of, kernel_module
from tilewright.compiler.execute import check_constants, load_weights, undamaged
from tilewright.compiler.kernel_runs import evaluated
from tilewright.compiler.network import CALLED, LIBRARY, MAIN, OUTSIDE, TIMED, WEIGHTS
from tilewright.compiler.operands import random_array
from tilewright.compiler.peaks import measured_peaks
from tilewright.core.element_types import element_type
from tilewright.core.errors import DamagedArtifact, InputError, LinkError, last_line
from tilewright.core.records import Candidate, Protocol
from tilewright.core.targets import Resources, Target
from tilewright.graph.inputs import argument_limit
from tilewright.graph.marks import mark_rows
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.hardware.remote import ServerFacts
from tilewright.hardware.target import target_architecture

BLOCK = 1 << 16
"""Elements that are uploaded; larger operands repeat them."""
FLUSH = "cache_flush_cpu_non_first_arg"
_MOST_CALLS = 500
_PEAK_CALLS = 15


class DeviceLost(Exception):
    """The connection to the device broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedKernel:
    """A kernel's library on disk, with what is needed to call it; a plain value.

    `types` are the physical shapes and types of the arguments and the result.
    """

    path: str
    types: tuple[tuple[tuple[int, ...], str], ...]
    kernel_hash: str
    build_s: float


def export_kernel(
    workload: Workload,
    candidate: Candidate,
    target: Target,
    resources: Resources,
    folder: Path,
    name: str,
) -> ExportedKernel:
    """Compile a candidate for another machine into `folder`.

    A shared library where this machine can link for that one, else an archive of objects, which
    the server links when it loads it.
    """
    began = perf_counter()
    function = kernel_module(workload, candidate, target, resources)["main"]
    types = argument_types(function)
    library = _with_fillers(function, types[:-1])
    path = export(compiled(library, target, resources), target, folder, name)
    return ExportedKernel(
        path=str(path),
        types=types,
        kernel_hash=kernel_hash_of(function),
        build_s=perf_counter() - began,
    )


def export(executable: Any, target: Target, folder: Path, name: str) -> Path:
    """Write what was compiled for another machine: linked where this one can link for it, else as
    an archive of objects, which the device links when it loads it; its path."""
    linker = linker_of(target)
    path = folder / f"{name}.{'so' if linker else 'tar'}"
    given = json.loads(target.tvm)
    own = target_architecture(given) == platform.machine() and "mtriple" not in given
    links = None if linker is None or own else cc.cross_compiler(linker)
    executable.export_library(str(path), fcompile=links)
    return path


def linker_of(target: Target) -> str | None:
    """A compiler that links for the device, None when there is none on PATH."""
    given = json.loads(target.tvm)
    architecture = target_architecture(given)
    triple = str(given.get("mtriple", ""))
    if architecture == platform.machine() and (not triple or "linux" in triple):
        return next((name for name in ("g++", "clang++") if shutil.which(name)), None)
    names = (f"{triple}-g++", f"{architecture}-linux-gnu-g++")
    return next((name for name in names if shutil.which(name)), None)


def _tiled(shape: Sequence[int], dtype: str) -> bool:
    return dtype != "bool" and prod(shape) > BLOCK


def _with_fillers(
    kernel: Any, types: Sequence[tuple[tuple[int, ...], str]], *, always: bool = False
) -> tvm.IRModule:
    """A kernel, and for each operand that repeats a block a function `fill_N` (block, result) that
    does so."""
    filled = [(index, kind) for index, kind in enumerate(types) if always or _tiled(*kind)]
    functions = {"main": kernel, **{f"fill_{index}": _filler(*kind) for index, kind in filled}}
    return tvm.IRModule({n: f.with_attr("global_symbol", n) for n, f in functions.items()})


def _filler(shape: Sequence[int], dtype: str) -> Any:
    block: Any = te.placeholder((BLOCK,), dtype=dtype, name="block")

    def element(*indices: Any) -> Any:
        flat: Any = 0
        for index, extent in zip(indices, shape, strict=True):
            flat = flat * extent + index
        return block[flat % BLOCK]

    result: Any = te.compute(tuple(shape), element, name="result")
    return te.create_prim_func([block, result])


class RemoteSession:
    """One open session on one server; `cpu` is the device of tensors there."""

    def __init__(self, host: str, port: int, match: str, session_s: float) -> None:
        timeout: Any = session_s
        self._session = rpc.connect(host, port, match, session_timeout=timeout)
        self.cpu: Any = self._session.cpu(0)

    def function(self, name: str) -> Any:
        """A function of the server. Raises AttributeError where it has none of that name."""
        return self._session.get_function(name)

    def send(self, path: Path, name: str) -> None:
        """Put a file into the session's folder there."""
        self._session.upload(str(path), name)

    def file(self, name: str) -> bytes:
        """A file of the session's folder there."""
        return bytes(self._session.download(name))

    def library(self, path: Path, name: str) -> Any:
        """A library, loaded there under a name that no other had: the loader there takes one of a
        known path for the one it has."""
        self.send(path, name)
        library = self._session.load_module(name)
        self._session.remove(name)
        if name.endswith(".tar"):
            self._session.remove(f"{name}.so")
        return library

    def linked(self, archive: Path) -> bytes:
        """An archive of objects as a shared library, linked by the compiler there."""
        self.send(archive, archive.name)
        try:
            return bytes(self._session.download_linked_module(archive.name))
        finally:
            self._session.remove(archive.name)

    def facts(self) -> ServerFacts:
        """What the server says about itself."""
        triple = self._optional("target.llvm_get_system_triple")
        cpu = self._optional("target.llvm_get_system_cpu")
        threads = self._optional("runtime.NumThreads")
        return ServerFacts(
            triple=triple() if triple else "",
            cpu=cpu() if cpu else "",
            features=self._features(),
            threads=int(threads()) if threads else 1,
            flushes=self._optional(FLUSH) is not None,
        )

    def use_threads(self, threads: int) -> None:
        """Kernels of this session use at most `threads` threads."""
        configure = self._optional("runtime.config_threadpool")
        if configure is not None:
            configure(1, threads)

    def alive(self) -> bool:
        """Whether the server still answers."""
        try:
            self._session.get_function("tvm.rpc.server.upload")
        except Exception:  # noqa: BLE001 - whatever it is, there was no answer
            return False
        return True

    def timing(
        self, kernel: ExportedKernel, workload: Workload, protocol: Protocol, seed: int
    ) -> RemoteTiming:
        """The kernel loaded there with its operands, ready to be timed."""
        library = self._load(kernel.path)
        limit = argument_limit(workload)
        rng = np.random.default_rng(seed)
        types = kernel.types[:-1]
        shapes = [(BLOCK,) if _tiled(shape, dtype) else shape for shape, dtype in types]
        tensors = [
            self._filled(library, index, kind, random_array(rng, shape, kind[1], limit))
            for index, (kind, shape) in enumerate(zip(types, shapes, strict=True))
        ]
        tensors.append(tvm.runtime.empty(*kernel.types[-1], self.cpu))
        flush = FLUSH if protocol.activations == "flushed" else ""
        return RemoteTiming(library, self.cpu, tensors, flush)

    def evaluate(
        self,
        kernel: ExportedKernel,
        workload: Workload,
        candidate: Candidate,
        arrays: Sequence[np.ndarray],
    ) -> np.ndarray:
        """The kernel's result on logical arrays, which are uploaded, as a logical array."""
        call, there = self._load(kernel.path)["main"], (self.cpu, kernel.types[-1])
        return evaluated(call, there, workload, candidate, arrays)

    def peaks(self, target: Target, resources: Resources, folder: Path) -> dict[str, float]:
        """What the device reaches; see `compiler.peaks`.

        Libraries get a name each: the loader there knows them by their paths.
        """
        numbers = count()

        def fastest(module: tvm.IRModule, operands: Sequence[TensorType]) -> float:
            types = [(kind.shape, kind.dtype) for kind in operands]
            filled = _with_fillers(module["main"], types, always=True)
            executable = compiled(filled, target, resources)
            library = self._load(export(executable, target, folder, f"peak-{next(numbers)}"))
            tensors = [
                self._filled(library, i, kind, np.full(BLOCK, 1e-3, element_type(kind[1]).numpy))
                for i, kind in enumerate(types)
            ]
            return min(RemoteTiming(library, self.cpu, tensors, "").seconds(_PEAK_CALLS))

        return measured_peaks(target, resources, fastest)

    def _load(self, path: Path | str) -> Any:
        return self.library(Path(path), Path(path).name)

    def _filled(
        self, library: Any, index: int, kind: tuple[tuple[int, ...], str], values: np.ndarray
    ) -> Any:
        """The operand `index` there: the values, or where they are but a block of it, the block
        repeated all over it."""
        there = tvm.runtime.tensor(values, self.cpu)
        if values.shape == kind[0]:
            return there
        tensor = tvm.runtime.empty(*kind, self.cpu)
        library[f"fill_{index}"](there, tensor)
        return tensor

    def _optional(self, name: str) -> Any:
        try:
            return self._session.get_function(name)
        except AttributeError:
            return None

    def _features(self) -> tuple[str, ...]:
        """The instruction sets LLVM finds on the server, sorted."""
        find = self._optional("tvm.codegen.llvm.GetHostCPUFeatures")
        write = self._optional("ffi.ToJSONGraphString")
        if find is None or write is None:
            return ()
        read = tvm_ffi.get_global_func("ffi.FromJSONGraphString")
        found: Any = read(write(find(), None))
        return tuple(sorted(str(name) for name, there in found.items() if bool(there)))


@dataclass(frozen=True, slots=True)
class RemoteTiming:
    """A kernel with its operands on a device, the result last; `flush` names the function that is
    called before each call, empty for none."""

    library: Any
    device: Any
    tensors: list[Any]
    flush: str

    def seconds(self, calls: int) -> list[float]:
        """Seconds of each of `calls` calls, one by one, timed on the device."""
        timer = self.library.time_evaluator(
            "main", self.device, number=1, repeat=calls, f_preproc=self.flush
        )
        return list(map(float, timer(*self.tensors).results))

    def samples(self, protocol: Protocol, give_up_s: float) -> list[float]:
        """Samples under a protocol: each the mean of as many calls as last `sample_s`."""
        once_s = min(self.seconds(max(1, protocol.warmup)))
        if once_s > give_up_s:
            return self.seconds(1)
        calls = max(1, min(_MOST_CALLS, round(protocol.sample_s / max(once_s, 1e-7))))
        found = np.array(self.seconds(calls * protocol.repeats))
        return found.reshape(protocol.repeats, calls).mean(axis=1).tolist()


ARCHIVE = "model.tar"
"""What lies in place of the library until a device has linked it."""
_WEIGHTED, _READY, _TIMED = "weighted", "ready", "timed_ready"
"""Closures: the network with its weights; with its inputs, too; the same with a clock."""
_LEAST_REPEATS = 3
"""A loop over seconds asks the device for so many runs at a time at least."""


def export_network(executable: Any, target: Any, folder: Path) -> Path:
    """Write the library for another machine, or an archive of objects; its path."""
    for name in (LIBRARY, ARCHIVE):
        (folder / name).unlink(missing_ok=True)
    return export(executable, target, folder, Path(LIBRARY).stem)


@dataclass(slots=True, kw_only=True)
class _Loaded:
    """A network on a device, and the inputs that it has there."""

    machine: Any
    weights: list[Any]
    inputs: list[np.ndarray] | None = None


class RemoteNetworks:
    """Networks by name on the device of one session."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._networks: dict[str, _Loaded] = {}
        self._numbers = count()

    def load(self, name: str, folder: Path, order: Sequence[str]) -> None:
        """Upload library and weights; `order` are the constants' names in parameter order.

        Raises DamagedArtifact when the library takes others, or a file is damaged.
        """
        self.unload(name)
        with undamaged(folder):
            known = load_weights(folder / WEIGHTS)
            weights = [known[key] for key in order]
        library = self._session.library(self._linked(folder), f"network-{next(self._numbers)}.so")
        machine = relax.VirtualMachine(library, self._session.cpu)
        check_constants(machine, folder, order)
        machine.save_function(MAIN, _WEIGHTED, *map(self._uploaded, weights))
        self._networks[name] = _Loaded(machine=machine, weights=weights)

    def unload(self, name: str) -> None:
        """Forget a network."""
        self._networks.pop(name, None)

    def run(self, name: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of one run. Raises InputError where an index is out of range."""
        network = self._with_inputs(name, inputs)
        return [tensor.numpy() for tensor in self._tensors(_called(network.machine[_READY]))]

    def time(
        self, name: str, inputs: Sequence[np.ndarray], repeats: int, warmup: int
    ) -> list[float]:
        """Seconds of each run, in order, after so many that are not counted (one at least)."""
        return self._seconds(self._with_inputs(name, inputs), repeats, warmup)

    def repeat(self, name: str, inputs: Sequence[np.ndarray], seconds: float) -> int:
        """Run again and again for at least so many seconds; returns how often."""
        network = self._with_inputs(name, inputs)
        done, spent_s = 0, 0.0
        while spent_s < seconds:
            mean_s = spent_s / done if done else 0.0
            left = (seconds - spent_s) / mean_s if mean_s else 0.0
            samples = self._seconds(network, max(_LEAST_REPEATS, int(left)), 0)
            done, spent_s = done + len(samples) + 1, spent_s + sum(samples) + min(samples)
        return done

    def time_calls(
        self, name: str, inputs: Sequence[np.ndarray], repeats: int
    ) -> list[tuple[str, float]]:
        """Symbol and median seconds of each of the network's calls in its place, in order; none
        where the library has no function for that."""
        network = self._with_inputs(name, inputs)
        machine = network.machine
        try:
            symbols = str(machine[CALLED]()).split()
        except (AttributeError, tvm.error.RPCError):
            return []
        marks = np.zeros((mark_rows(len(symbols)), 2), np.int64)
        given = [tvm.runtime.tensor(a, self._session.cpu) for a in (*(network.inputs or ()), marks)]
        machine.save_function(TIMED, _TIMED, *given, *map(self._uploaded, network.weights))
        rows: list[np.ndarray] = []
        for _ in range(repeats + 1):
            (noted,) = self._tensors(machine[_TIMED]())
            times_s = noted.numpy()[1:].astype(np.float64) @ np.array((1.0, 1e-9))
            rows.append(times_s[1::2] - times_s[0::2])
        machine.save_function(CALLED, _TIMED)  # lets the second copy of the weights go
        medians_s = np.median(rows[1:], axis=0)
        return [(symbol, float(s)) for symbol, s in zip(symbols, medians_s, strict=True)]

    def _with_inputs(self, name: str, inputs: Sequence[np.ndarray]) -> _Loaded:
        """The network with these inputs on the device; they go there when they are others than
        before."""
        network = self._networks[name]
        arrays = [np.asarray(array, order="C") for array in inputs]
        if network.inputs is None or _contents(arrays) != _contents(network.inputs):
            given = [tvm.runtime.tensor(array, self._session.cpu) for array in arrays]
            network.machine.save_function(_WEIGHTED, _READY, *given)
            network.inputs = [array.copy() for array in arrays]
        return network

    def _seconds(self, network: _Loaded, repeats: int, warmup: int) -> list[float]:
        """The device's evaluator makes one call that it does not count."""
        more = max(0, warmup - 1)
        timer = network.machine.time_evaluator(
            _READY, self._session.cpu, number=1, repeat=repeats + more
        )
        return [float(value) for value in _called(timer).results][more:]

    def _uploaded(self, tensor: Any) -> Any:
        there = tvm.runtime.empty(tensor.shape, tensor.dtype, self._session.cpu)
        tensor.copyto(there)
        return there

    def _tensors(self, result: Any) -> list[Any]:
        """The tensors of a result: one, or a reference to an array of them."""
        if hasattr(result, "numpy"):
            return [result]
        item, size = (self._session.function(f"ffi.Array{name}") for name in ("GetItem", "Size"))
        return [item(result, index) for index in range(int(size(result)))]

    def _linked(self, folder: Path) -> Path:
        """The library; linked by the device first where that was left to it."""
        path = folder / LIBRARY
        if not path.is_file() and (folder / ARCHIVE).is_file():
            try:
                path.write_bytes(self._session.linked(folder / ARCHIVE))
            except tvm.error.RPCError as error:
                raise LinkError(f"on the device, {' '.join(str(error).split())}") from error
            (folder / ARCHIVE).unlink()
        if not path.is_file():
            raise DamagedArtifact(folder, f"{LIBRARY} is not there")
        return path


def _contents(arrays: Sequence[np.ndarray]) -> list[Any]:
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def _called(function: Any) -> Any:
    try:
        return function()
    except tvm.error.RPCError as error:
        if OUTSIDE in str(error):
            raise InputError(last_line(error)) from error
        raise


def serve_board(options: Mapping[str, Any], functions: Mapping[str, Callable[[str], str]]) -> None:
    """Serve until killed; `options` are those of TVM's own server by name.

    Each session is served by a fork of this process, which has the functions, too.
    """
    for name, function in functions.items():
        tvm_ffi.register_global_func(name, function, override=True)
    host, _, port = str(options["tracker"]).rpartition(":")
    state = PopenRPCServerState(
        options["host"],
        options["port"],
        options["port_end"],
        tracker_addr=(host, int(port)),
        key=options["key"],
        load_library=options["load_library"],
        custom_addr=options["custom_addr"],
        silent=options["silent"],
    )
    state.thread.join()
