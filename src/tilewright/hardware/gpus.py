"""NVIDIA's GPUs: limits by compute capability, datasheets by model, and targets that name them.

Limits are those of the CUDA C++ Programming Guide ("Technical Specifications per Compute
Capability"), models those of NVIDIA's datasheets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tilewright.core.errors import TargetError, close_matches
from tilewright.core.fingerprints import canonical_json
from tilewright.core.gpus import Gpu

_KIB = 1024
_GIGA, _TERA = 1e9, 1e12
_THREADS_PER_BLOCK, _WARP = 1024, 32
_STATIC_SHARED_BYTES = 48 * _KIB
_EXAMPLE = "Describe one: --target 'cuda -model=H100', or 'cuda -arch=sm_90'."


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of one multiprocessor: threads, blocks, KiB of shared memory, and those a block may have."""

    threads: int
    blocks: int
    shared_kib: int
    block_shared_kib: int


@dataclass(frozen=True, slots=True)
class _Model:
    """Compute capability, multiprocessors, fp32 TFLOP/s, GB/s."""

    capability: float
    multiprocessors: int
    tflop_per_s: float
    gb_per_s: float


_LIMITS = {
    6.0: _Limits(2048, 32, 64, 48),
    6.1: _Limits(2048, 32, 96, 48),
    7.0: _Limits(2048, 32, 96, 96),
    7.5: _Limits(1024, 16, 64, 64),
    8.0: _Limits(2048, 32, 164, 163),
    8.6: _Limits(1536, 16, 100, 99),
    8.7: _Limits(1536, 16, 164, 163),
    8.9: _Limits(1536, 24, 100, 99),
    9.0: _Limits(2048, 32, 228, 227),
    10.0: _Limits(2048, 32, 228, 227),
    12.0: _Limits(1536, 24, 100, 99),
}

_MODELS = {
    "P100": _Model(6.0, 56, 9.5, 732),
    "P40": _Model(6.1, 30, 11.8, 346),
    "P4": _Model(6.1, 20, 5.5, 192),
    "1080 Ti": _Model(6.1, 28, 11.3, 484),
    "1080": _Model(6.1, 20, 8.9, 320),
    "V100": _Model(7.0, 80, 15.7, 900),
    "TITAN V": _Model(7.0, 80, 14.9, 653),
    "T4": _Model(7.5, 40, 8.1, 320),
    "2080 Ti": _Model(7.5, 68, 13.4, 616),
    "2080": _Model(7.5, 46, 10.1, 448),
    "A100": _Model(8.0, 108, 19.5, 1555),
    "A30": _Model(8.0, 56, 10.3, 933),
    "A10": _Model(8.6, 72, 31.2, 600),
    "A40": _Model(8.6, 84, 37.4, 696),
    "A4000": _Model(8.6, 48, 19.2, 448),
    "A6000": _Model(8.6, 84, 38.7, 768),
    "3090": _Model(8.6, 82, 35.6, 936),
    "Orin": _Model(8.7, 16, 5.3, 205),
    "L4": _Model(8.9, 58, 30.3, 300),
    "L40": _Model(8.9, 142, 90.5, 864),
    "4090": _Model(8.9, 128, 82.6, 1008),
    "H100": _Model(9.0, 132, 66.9, 3350),
    "H200": _Model(9.0, 132, 66.9, 4800),
    "5090": _Model(12.0, 170, 104.8, 1792),
}


def is_cuda(target: str) -> bool:
    """Whether a person means a GPU of NVIDIA's: `cuda`, `cuda -model=H100`, or TVM's JSON."""
    text = target.strip()
    if not text.startswith("{"):
        return text.split(" ", 1)[0] == "cuda"
    try:
        return json.loads(text).get("kind") == "cuda"
    except (ValueError, AttributeError):
        return False


def gpu_of(target: Mapping[str, Any], library: Any = None) -> Gpu:
    """The GPU that a target of kind `cuda` describes by `arch` or `model`; without both, this
    machine's.

    `library` is nvidia-ml-py's module, imported when it is not given. Raises TargetError for a
    model or an architecture that is not known, and where no GPU is here.
    """
    unknown = sorted(set(target) - {"kind", "arch", "model"})
    if unknown:
        raise TargetError(
            f"{unknown[0]!r} is nothing a cuda target is asked for here",
            hint="Known: arch, as in sm_90, and model, as in H100.",
        )
    given = {key: str(target[key]) for key in ("arch", "model") if key in target}
    if not given:
        return _here(library)
    model = given.get("model", "")
    known = _known(model)
    if model and known is None:
        raise TargetError(
            f"no datasheet of the GPU {model!r} is known",
            hint=close_matches(model, sorted(_MODELS)) or "Give its arch alone, as in sm_90.",
        )
    arch = given.get("arch") or _arch(known.capability if known else 0.0)
    if known is not None and arch.rstrip("a") != _arch(known.capability):
        raise TargetError(
            f"the {model} is of {_arch(known.capability)}, not of {arch}",
            hint="Leave one of the two out.",
        )
    return _described(model, arch, known)


def known_capability(device: str) -> float:
    """The compute capability of a device by its name; 0 for one that is not known.

    `Tesla P4` → 6.1, `NVIDIA A100-PCIE-40GB` → 8.0
    """
    known = _known(device)
    return known.capability if known is not None else 0.0


def _known(device: str) -> _Model | None:
    """The model that a name contains as a word of its own."""
    words = device.replace("-", " ").split()
    for name, model in _MODELS.items():
        if name in words or (" " in name and name in device):
            return model
    return None


def _arch(capability: float) -> str:
    return f"sm_{round(10 * capability)}"


def _described(model: str, arch: str, known: _Model | None) -> Gpu:
    limits = next((it for number, it in _LIMITS.items() if _arch(number) == arch.rstrip("a")), None)
    if limits is None:
        raise TargetError(
            f"the limits of {arch!r} are not known",
            hint="Known: " + ", ".join(_arch(number) for number in _LIMITS),
        )
    target = {
        "kind": "cuda",
        "arch": arch,
        "max_num_threads": _THREADS_PER_BLOCK,
        "max_threads_per_block": _THREADS_PER_BLOCK,
        "max_shared_memory_per_block": _STATIC_SHARED_BYTES,
        "thread_warp_size": _WARP,
    }
    return Gpu(
        model=model,
        arch=arch,
        target=canonical_json(target),
        most_threads=limits.threads,
        most_blocks=limits.blocks,
        shared_bytes=limits.shared_kib * _KIB,
        block_shared_bytes=limits.block_shared_kib * _KIB,
        multiprocessors=known.multiprocessors if known else None,
        flop_per_s=known.tflop_per_s * _TERA if known else None,
        bytes_per_s=known.gb_per_s * _GIGA if known else None,
    )


def nvml_library() -> Any:
    """nvidia-ml-py's module, None where that is not installed."""
    return import_module("pynvml") if find_spec("pynvml") is not None else None


def _here(library: Any) -> Gpu:
    """This machine's first GPU, by NVML."""
    library = library or nvml_library()
    if library is None:
        raise TargetError(
            "no GPU can be looked for: the Python package nvidia-ml-py is not installed",
            hint=f"pip install 'tilewright[nvml]' adds it. {_EXAMPLE}",
        )
    try:
        library.nvmlInit()
        handle = library.nvmlDeviceGetHandleByIndex(0)
        name = str(library.nvmlDeviceGetName(handle))
        major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
    except library.NVMLError as error:
        raise TargetError(f"NVML gives no GPU: {error}", hint=_EXAMPLE) from None
    return _described(name, f"sm_{major}{minor}", _known(name))
