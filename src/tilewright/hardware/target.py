"""Texts of TVM targets: the one for this CPU, and reading those a person gives."""

from __future__ import annotations

import json
import platform
import shlex
from typing import Any, cast

from tilewright.core.codec import canonical_json
from tilewright.core.errors import TargetError, near_names
from tilewright.core.targets import Target
from tilewright.hardware.features import AVX512, X86_V2, X86_V3, X86_V4, cpu_target, is_arm, is_x86
from tilewright.hardware.gpus import Gpu, gpu_of, is_cuda
from tilewright.hardware.probe import (
    FALLBACK_L1_BYTES,
    FALLBACK_L2_BYTES,
    FALLBACK_L3_BYTES,
)

_LEVELS = (
    ("x86-64-v4", X86_V4),
    ("x86-64-v3", X86_V3),
    ("x86-64-v2", X86_V2),
    ("x86-64", ()),
)
_UNUSED = ("amx-", "sve")
_ZEN4 = (*X86_V4, "avx512bf16", "avx512vnni")
_AMX = (*_ZEN4, "amx-bf16", "amx-int8", "amx-tile", "avx512fp16", "avxvnni")
_DOTPROD = ("dotprod", "fullfp16", "neon")
_CPUS: dict[str, tuple[str, ...]] = {
    **dict(_LEVELS),
    "haswell": X86_V3,
    "broadwell": X86_V3,
    "skylake": X86_V3,
    "alderlake": (*X86_V3, "avxvnni"),
    "skylake-avx512": X86_V4,
    "cascadelake": (*X86_V4, "avx512vnni"),
    "cooperlake": _ZEN4,
    "icelake-client": (*X86_V4, "avx512vnni"),
    "icelake-server": (*X86_V4, "avx512vnni"),
    "tigerlake": (*X86_V4, "avx512vnni"),
    "rocketlake": (*X86_V4, "avx512vnni"),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), _AMX),
    **dict.fromkeys(("znver1", "znver2", "znver3"), X86_V3),
    "znver4": _ZEN4,
    "znver5": (*_ZEN4, "avxvnni"),
    **dict.fromkeys(("cortex-a76", "cortex-a78", "neoverse-n1", "apple-m1"), _DOTPROD),
    **dict.fromkeys(("neoverse-v1", "neoverse-n2", "neoverse-v2"), (*_DOTPROD, "bf16", "i8mm")),
}


def tvm_text(cpu: Target) -> str:
    """JSON text of the TVM target for a CPU: its features decide, never the model's name.

    Virtual machines report models that do not match their instruction sets, so `mcpu` is the
    highest x86-64 level whose features are all there (`generic` on ARM) and `mattr` adds the rest.
    `-prefer-256-bit` keeps LLVM from splitting 512-bit vectors. Scalable vectors are
    left out: no kernel uses them; tile registers, too: they do not change other kernels.
    """
    mcpu, included = "generic", ()
    if is_x86(cpu.architecture):
        levels = ((name, needs) for name, needs in _LEVELS if set(needs) <= set(cpu.features))
        mcpu, included = next(levels)
    extra = sorted(set(cpu.features) - set(included))
    attributes = [f"+{name}" for name in extra if not name.startswith(_UNUSED)]
    if set(AVX512) <= set(cpu.features):
        attributes.insert(0, "-prefer-256-bit")
    return canonical_json({"kind": "llvm", "mcpu": mcpu, "mattr": attributes})


def read_target(text: str) -> dict[str, Any]:
    """A target a person wrote, as a dict with at least `kind`.

    Understands JSON, a bare kind such as `llvm`, and the older `llvm -mcpu=NAME -mattr=+a,-b`.
    Raises `TargetError` for anything else, and for kinds other than `llvm`; whether TVM accepts
    the values is for the compiler to find out.
    """
    target = _read(text)
    kind = target["kind"]
    if kind != "llvm":
        raise TargetError(
            f"target kind {kind!r} is not supported here, where a CPU is described",
            hint=_way_out(kind),
        )
    _check_values(target, text)
    return target


def _way_out(kind: str) -> str:
    """What helps who asked for another kind; the names of all targets are not known here."""
    if kind.lower().startswith("cuda"):
        return "GPUs are targets of their own: --target cuda, --target 'cuda -model=H100'."
    listing = "`tilewright targets` lists what can be used here."
    return "Did you mean llvm?" if near_names(kind, ["llvm"]) else listing


def parse_gpu(text: str) -> Gpu:
    """The GPU a person means by `cuda`, `cuda -model=H100`, `cuda -arch=sm_90`, or TVM's JSON.

    Raises `TargetError` for what cannot be read or is not known.
    """
    return gpu_of(_read(text))


def _read(text: str) -> dict[str, Any]:
    stripped = text.strip()
    target = _from_json(stripped) if stripped.startswith("{") else _from_words(stripped)
    kind = target.get("kind")
    if not isinstance(kind, str) or not kind:
        raise TargetError(f"target {text!r} names no kind", hint='Try llvm or {"kind": "llvm"}.')
    return target


def _from_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise TargetError(
            f"target is no valid JSON: {error.msg} at column {error.colno}",
            hint='Example: {"kind": "llvm", "mcpu": "x86-64-v3"}',
        ) from error
    return cast("dict[str, Any]", value)


def _from_words(text: str) -> dict[str, Any]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} cannot be read: {error}") from error
    if not words:
        raise TargetError("target is empty", hint="llvm is this machine's CPU.")
    target: dict[str, Any] = {"kind": words[0]}
    for word in words[1:]:
        key, separator, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not separator or not key or not value:
            raise TargetError(
                f"target option {word!r} cannot be read",
                hint=f"Options look like {'-model=H100' if is_cuda(text) else '-mcpu=NAME'}.",
            )
        if key in target:
            raise TargetError(f"target {text!r} has the option {key!r} twice")
        target[key] = value.split(",") if key == "mattr" else value
    cores = str(target.get("num-cores", ""))
    return {**target, "num-cores": int(cores)} if cores.isdecimal() else target


def _check_values(target: dict[str, Any], text: str) -> None:
    attributes = target.get("mattr", [])
    named = isinstance(attributes, list) and all(
        isinstance(item, str) and item[:1] in ("+", "-") and len(item) > 1
        for item in cast("list[object]", attributes)
    )
    if not named:
        raise TargetError(f"mattr in target {text!r} must list features as +NAME or -NAME")
    for key in ("mcpu", "mtriple"):
        if not isinstance(target.get(key, ""), str):
            raise TargetError(f"{key} in target {text!r} must be a text")
    cores = target.get("num-cores", 1)
    if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
        raise TargetError(f"num-cores in target {text!r} must be a whole number from 1")


def target_architecture(target: dict[str, Any]) -> str:
    """The architecture a target compiles for: its triple's, else this machine's."""
    first = str(target.get("mtriple", "")).partition("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(first, first) or platform.machine()


def target_features(target: dict[str, Any]) -> tuple[str, ...]:
    """The instruction sets a target's `mcpu` and `mattr` promise, sorted.

    A processor name we do not know counts as the plainest of its architecture, so that kernels
    are laid out too narrow rather than for registers that are not there.
    """
    architecture = target_architecture(target)
    features = set(_CPUS.get(str(target.get("mcpu", "")), ()))
    if architecture.startswith("aarch64"):
        features.add("neon")
    for item in cast("list[str]", target.get("mattr", [])):
        (features.add if item[0] == "+" else features.discard)(item[1:])
    return tuple(sorted(features))


def text_of(target: dict[str, Any]) -> str:
    """A TVM target as JSON text, without a number of threads: that is no part of a target."""
    return canonical_json({name: value for name, value in target.items() if name != "num-cores"})


def described_target(target: dict[str, Any], *, cores: int) -> Target:
    """What can be said about a CPU that is not here: instruction sets and modest cache sizes."""
    architecture = target_architecture(target)
    l2_bytes = FALLBACK_L2_BYTES * (2 if is_arm(architecture) else 1)
    return cpu_target(
        model=str(target.get("mcpu", f"generic {architecture}")),
        architecture=architecture,
        features=target_features(target),
        cache_bytes=(FALLBACK_L1_BYTES, l2_bytes, FALLBACK_L3_BYTES),
        cores=cores,
        tvm=text_of(target),
    )
