"""Loading what `optimize` shipped."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError, TargetError, UsageError, close_matches
from tilewright.graph.network import Array
from tilewright.hardware.device import local_device
from tilewright.session.manifest import read_manifest, require_files


class Artifact:
    """A compiled network, ready to run in this process.

    Call it with arrays in the order of `inputs`, or by the ONNX file's names. With one output it
    returns the array, with several a dictionary by name. `manifest` is what `optimize` wrote.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], threads: int | None) -> None:
        from tilewright.compiler.calling import Caller
        from tilewright.compiler.execute import LoadedNetwork

        self.manifest = manifest
        self.inputs = tuple(entry["name"] for entry in manifest["inputs"])
        self.outputs = tuple(entry["name"] for entry in manifest["outputs"])
        device = local_device(threads)
        self.threads = device.threads
        self._call = Caller(device.threads, device.cpus)
        self._network = self._call(lambda: LoadedNetwork.open(folder, manifest["constants"]))

    def __call__(self, *arrays: Array, **named: Array) -> Array | dict[str, Array]:
        """Run once. Raises UsageError for a wrong name, number, shape or type of input."""
        results = self.run(self._by_name(arrays, named))
        return results[self.outputs[0]] if len(self.outputs) == 1 else results

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on inputs by name; returns outputs by name."""
        ordered = [self._checked(entry, inputs) for entry in self.manifest["inputs"]]
        unknown = [name for name in inputs if name not in self.inputs]
        if unknown:
            raise UsageError(
                f"no input is called {unknown[0]!r}", hint=close_matches(unknown[0], self.inputs)
            )
        results = self._call(lambda: self._network(ordered))
        return dict(zip(self.outputs, results, strict=True))

    def _by_name(self, arrays: tuple[Array, ...], named: Mapping[str, Array]) -> dict[str, Array]:
        if len(arrays) > len(self.inputs):
            raise UsageError(f"{len(arrays)} arrays given for {len(self.inputs)} inputs")
        return {**dict(zip(self.inputs, arrays, strict=False)), **named}

    @staticmethod
    def _checked(entry: Mapping[str, Any], inputs: Mapping[str, Array]) -> Array:
        name, shape, dtype = entry["name"], tuple(entry["shape"]), entry["dtype"]
        if name not in inputs:
            raise UsageError(f"input {name!r} is missing", hint=f"It is {dtype}{list(shape)}.")
        array = np.asarray(inputs[name])
        if array.shape != shape or array.dtype != np.dtype(dtype):
            raise UsageError(
                f"input {name!r} is {array.dtype}{list(array.shape)}, "
                f"the network was compiled for {dtype}{list(shape)}"
            )
        return array


def load(path: str | Path, *, threads: int | None = None) -> Artifact:
    """Load a compiled network from its folder.

    `threads` defaults to the physical cores allotted to this process. Raises ModelError when the
    folder is no artifact or a file is damaged, TargetError when this CPU lacks an instruction set
    it was compiled for, or another TVM is installed.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    _refuse_other_machine(manifest)
    _refuse_other_versions(manifest)
    require_files(folder, manifest)
    try:
        return Artifact(folder, manifest, threads)
    except (RuntimeError, OSError, KeyError, ValueError) as error:
        first = str(error).strip().splitlines() or ["unreadable"]
        raise ModelError(
            f"{str(folder)!r} is damaged: {first[-1]}", hint="Run `tilewright optimize` again."
        ) from error


def _refuse_other_machine(manifest: Mapping[str, Any]) -> None:
    machine, here = manifest["machine"], local_device(None).cpu
    if machine["architecture"] != here.architecture:
        raise TargetError(
            f"compiled for {machine['architecture']}, this machine is {here.architecture}",
            hint="Run `tilewright optimize` on this machine.",
        )
    missing = sorted(set(machine["features"]) - set(here.features))
    if missing:
        raise TargetError(
            f"compiled for {machine['model']}; this CPU lacks {', '.join(missing)}",
            hint="Run `tilewright optimize` on this machine.",
        )


def _refuse_other_versions(manifest: Mapping[str, Any]) -> None:
    for name in ("apache-tvm", "apache-tvm-ffi"):
        made, here = manifest["versions"][name], version(name)
        if made != here:
            raise TargetError(
                f"compiled with {name} {made}, installed is {here}",
                hint=f"pip install {name}=={made}, or run `tilewright optimize` again.",
            )
