"""What NVIDIA says of its GPUs: limits by compute capability, datasheets by model.

Limits are those of the CUDA C++ Programming Guide ("Technical Specifications per Compute
Capability"), models those of NVIDIA's datasheets.
"""

from __future__ import annotations

LIMITS = {
    "sm_60": (2048, 32, 64, 48, 64),
    "sm_61": (2048, 32, 96, 48, 128),
    "sm_70": (2048, 32, 96, 96, 64),
    "sm_75": (1024, 16, 64, 64, 64),
    "sm_80": (2048, 32, 164, 163, 64),
    "sm_86": (1536, 16, 100, 99, 128),
    "sm_87": (1536, 16, 164, 163, 128),
    "sm_89": (1536, 24, 100, 99, 128),
    "sm_90": (2048, 32, 228, 227, 128),
    "sm_100": (2048, 32, 228, 227, 128),
    "sm_120": (1536, 24, 100, 99, 128),
}
"""Of one multiprocessor, by nvcc's name of its compute capability: threads, blocks, KiB of shared
memory, how many of those a block may have, and multiplications with an addition in single precision
per cycle."""

BYTE_DOTS = {
    "sm_61": 128,
    "sm_70": 64,
    "sm_75": 64,
    "sm_80": 64,
    "sm_86": 64,
    "sm_87": 64,
    "sm_89": 64,
    "sm_90": 64,
    "sm_100": 64,
    "sm_120": 64,
}
"""Dot products of four bytes of one multiprocessor and cycle. The P40's 47 TOP/s of its datasheet
are four times its TFLOP/s. From sm_70 on they are executed where whole numbers are multiplied, by
16 lanes of each of four parts (NVIDIA's forum for developers, "Separate CUDA core pipeline for FP16
and FP32", 2024, of sm_80, sm_86 and sm_90; assumed of the others)."""

MODELS = {
    "P100": ("sm_60", 56, 9.5, 732, 4.0),
    "P40": ("sm_61", 30, 11.8, 346, 3.0),
    "P4": ("sm_61", 20, 5.5, 192, 2.0),
    "1080 Ti": ("sm_61", 28, 11.3, 484, 2.75),
    "1080": ("sm_61", 20, 8.9, 320, 2.0),
    "V100": ("sm_70", 80, 15.7, 900, 6.0),
    "TITAN V": ("sm_70", 80, 14.9, 653, 4.5),
    "T4": ("sm_75", 40, 8.1, 320, 4.0),
    "2080 Ti": ("sm_75", 68, 13.4, 616, 5.5),
    "2080": ("sm_75", 46, 10.1, 448, 4.0),
    "A100": ("sm_80", 108, 19.5, 1555, 40.0),
    "A30": ("sm_80", 56, 10.3, 933, 24.0),
    "A10": ("sm_86", 72, 31.2, 600, 6.0),
    "A40": ("sm_86", 84, 37.4, 696, 6.0),
    "A4000": ("sm_86", 48, 19.2, 448, 4.0),
    "A6000": ("sm_86", 84, 38.7, 768, 6.0),
    "3090": ("sm_86", 82, 35.6, 936, 6.0),
    "Orin": ("sm_87", 16, 5.3, 205, 4.0),
    "L4": ("sm_89", 58, 30.3, 300, 48.0),
    "L40": ("sm_89", 142, 90.5, 864, 96.0),
    "4090": ("sm_89", 128, 82.6, 1008, 72.0),
    "H100": ("sm_90", 132, 66.9, 3350, 50.0),
    "H200": ("sm_90", 132, 66.9, 4800, 50.0),
    "B200": ("sm_100", 148, 75.0, 8000, 126.0),
    "5090": ("sm_120", 170, 104.8, 1792, 96.0),
}
"""By model: nvcc's name of its compute capability, multiprocessors, fp32 TFLOP/s, GB/s, MiB of
second-level cache."""

TF32 = {
    "A100": 156.0,
    "A30": 82.0,
    "A10": 62.5,
    "A40": 74.8,
    "A4000": 38.3,
    "A6000": 77.4,
    "3090": 35.6,
    "Orin": 21.2,
    "L4": 60.0,
    "L40": 90.5,
    "4090": 82.6,
    "H100": 494.7,
    "H200": 494.7,
    "B200": 1125.0,
    "5090": 104.8,
}
"""By model: TFLOP/s of its matrix units in tf32, without sparsity (datasheets, for GeForce NVIDIA's
papers on the architectures; of the Orin half of what is said of halves)."""

WARP_SHARES = {"sm_90": 0.63, "sm_100": 0.31}
"""Which part of that instructions of single warps (`mma.sync`) reach, where newer ones reach more:
measured for sm_90 (Luo et al., "Dissecting the NVIDIA Hopper Architecture", 2025); for sm_100 as
many operations per cycle are assumed."""

OLD_MODELS = {
    **dict.fromkeys(("K20", "K40", "TITAN"), "sm_35"),
    **dict.fromkeys(("K80",), "sm_37"),
    **dict.fromkeys(("M4", "M40", "M60", "980", "980 Ti", "TITAN X"), "sm_52"),
}
"""Models before those, of which no limits are kept: no compiler of today makes code for them."""


def known_model(device: str) -> tuple[str, int, float, int, float] | None:
    """The model that a name contains as a word of its own."""
    return MODELS.get(model_name(device) or "")


def known_capability(device: str) -> float:
    """The compute capability of a device by its name; 0 for one that is not known.

    `Tesla P4` → 6.1, `NVIDIA A100-PCIE-40GB` → 8.0
    """
    known = known_model(device)
    return int(known[0].removeprefix("sm_")) / 10 if known else 0.0


def model_name(device: str) -> str | None:
    """The model that a device's name contains, None where none is known.

    `NVIDIA A100-PCIE-40GB` → A100
    """
    words = device.replace("-", " ").split()
    named = (name for name in MODELS if name in words or (" " in name and name in device))
    return next(named, None)
