"""Which software made a measurement."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("tilewright", "apache-tvm", "apache-tvm-ffi")


@cache
def software_versions() -> str:
    """`name=version` of everything a kernel's time depends on, separated by spaces."""
    found: list[str] = []
    for package in PACKAGES:
        try:
            found.append(f"{package}={version(package)}")
        except PackageNotFoundError:
            found.append(f"{package}=none")
    return " ".join(found)
