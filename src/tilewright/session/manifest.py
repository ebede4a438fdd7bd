"""The manifest beside a compiled network: what it is, made by what, for which machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import msgspec

from tilewright.core.errors import ModelError
from tilewright.core.records import Candidate, Device, LayoutPlan
from tilewright.core.results import OptimizeResult
from tilewright.kernels.blueprint import NetworkBlueprint
from tilewright.models import ModelOptions
from tilewright.session.choices import shipping_key
from tilewright.session.preparation import PreparedNetwork
from tilewright.store.output import replacing

LIBRARY = "model.so"
WEIGHTS = "weights.params"
MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
PARTS = (
    "assignment", "constants", "fingerprint", "inputs", "machine", "outputs", "sizes_bytes",
    "source", "versions",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an artifact comes from: the MODEL argument with its options, its fingerprint, and the
    layouts it was built in."""

    model: str
    options: ModelOptions
    fingerprint: str
    layouts: LayoutPlan = LayoutPlan()


def write_manifest(
    folder: Path,
    result: OptimizeResult,
    network: PreparedNetwork,
    plan: NetworkBlueprint,
    device: Device,
    origin: Origin,
) -> None:
    """Write `manifest.json`: interface, constants in parameter order, tasks, machine, times."""
    types = network.model.graph.types
    names = zip(network.model.outputs, network.graph.outputs, strict=True)
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": network.model.name,
        "fingerprint": origin.fingerprint,
        "source": {
            "model": origin.model,
            "batch": origin.options.batch,
            "shapes": {name: list(shape) for name, shape in origin.options.shapes.items()},
            "seed": origin.options.seed,
        },
        "assignment": {
            shipping_key(key): {
                "implementation": candidate.implementation,
                "settings": dict(candidate.settings),
                "layouts": list(candidate.layouts),
            }
            for key, candidate in plan.assignment.items()
        },
        "plan": asdict(origin.layouts),
        "sizes_bytes": {name: (folder / name).stat().st_size for name in (LIBRARY, WEIGHTS)},
        "inputs": [
            {"name": n, "shape": list(types[n].shape), "dtype": types[n].dtype}
            for n in network.graph.inputs
        ],
        "outputs": [
            {
                "name": name,
                "shape": list(network.graph.types[ours].shape),
                "dtype": network.graph.types[ours].dtype,
            }
            for name, ours in names
        ],
        "constants": [c.parameter.name for c in plan.constants],
        "machine": {
            "class": device.class_key,
            "architecture": device.cpu.architecture,
            "model": device.cpu.model,
            "vector_bytes": device.cpu.vector_bytes,
            "features": list(device.cpu.features),
            "target": json.loads(device.target),
            "threads": device.threads,
        },
        "versions": {
            name: version(name) for name in ("tilewright", "apache-tvm", "apache-tvm-ffi")
        },
        "result": asdict(result),
    }
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an artifact folder; raises ModelError for anything else."""
    path = folder / MANIFEST
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{str(folder)!r} is no compiled network: it has no {MANIFEST}",
            hint="Give the folder that `tilewright optimize` wrote.",
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {str(path)!r}: {error}") from error
    known = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    if known.get("schema_version") != SCHEMA_VERSION:
        raise ModelError(
            f"{str(path)!r} has schema version {known.get('schema_version')}, "
            f"this tilewright reads {SCHEMA_VERSION}",
            hint="Run `tilewright optimize` again with this version.",
        )
    missing = [part for part in PARTS if part not in known]
    if missing:
        raise ModelError(
            f"{str(path)!r} is damaged: it lacks {missing[0]!r}",
            hint="Run `tilewright optimize` again.",
        )
    return known


def require_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Raise ModelError when the library or the weights are missing or not as long as written."""
    for name in (LIBRARY, WEIGHTS):
        path, size_bytes = folder / name, manifest["sizes_bytes"].get(name)
        fault = "lacks" if not path.is_file() else ""
        if not fault and path.stat().st_size != size_bytes:
            fault = "is damaged or was cut short in"
        if fault:
            raise ModelError(
                f"{str(folder)!r} {fault} {name}", hint="Run `tilewright optimize` again."
            )


def is_artifact(argument: str) -> bool:
    """Whether a MODEL argument is a folder that `optimize` wrote."""
    return ":" not in argument and (Path(argument) / MANIFEST).is_file()


def origin_of(manifest: dict[str, Any]) -> Origin:
    """The MODEL argument and options an artifact was made from."""
    source = manifest["source"]
    options = ModelOptions(
        batch=source["batch"],
        shapes={name: tuple(shape) for name, shape in source["shapes"].items()},
        seed=source["seed"],
    )
    # artifacts of before there were plans have the default layouts
    plan = msgspec.convert(manifest.get("plan", {}), LayoutPlan)
    return Origin(
        model=source["model"], options=options, fingerprint=manifest["fingerprint"], layouts=plan
    )


def shipped_candidates(manifest: dict[str, Any]) -> dict[str, Candidate]:
    """The candidate of each task in an artifact, by `shipping_key`."""
    return {
        key: Candidate(
            implementation=entry["implementation"],
            settings=tuple(sorted(entry["settings"].items())),
            layouts=tuple(entry["layouts"]),
        )
        for key, entry in manifest["assignment"].items()
    }
