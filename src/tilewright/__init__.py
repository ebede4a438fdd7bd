"""tilewright measures, tunes and compiles deep-learning inference on Apache TVM.

    import tilewright as tw

    session = tw.open()
    result = session.optimize("zoo:resnet50", budget="10m")
    result.save("out")

Importing this package loads nothing heavy: the names below come with their modules on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.core.comparisons import CompareResult, CompareRow
    from tilewright.core.errors import (
        InputError,
        InternalError,
        ModelError,
        NegativeVerdict,
        OutputError,
        StoreError,
        TargetError,
        TilewrightError,
        UsageError,
    )
    from tilewright.core.refusals import DeadlineMissed, QueueFull, RequestFailed, ServerClosed
    from tilewright.core.results import (
        DoctorResult,
        OptimizeResult,
        ProfileResult,
        TargetRow,
        TaskReport,
    )
    from tilewright.deploy.artifact import load
    from tilewright.deploy.compiling import CompiledNetwork, compile
    from tilewright.deploy.decoding import Decoder, decoder
    from tilewright.models.loaded import ModelOptions
    from tilewright.models.shape_grid import ShapeGrid
    from tilewright.serving.serve import serve
    from tilewright.serving.server import Server
    from tilewright.session import Session, open

    __version__: str

__all__ = [
    "CompareResult",
    "CompareRow",
    "CompiledNetwork",
    "DeadlineMissed",
    "Decoder",
    "DoctorResult",
    "InputError",
    "InternalError",
    "ModelError",
    "ModelOptions",
    "NegativeVerdict",
    "OptimizeResult",
    "OutputError",
    "ProfileResult",
    "QueueFull",
    "RequestFailed",
    "Server",
    "ServerClosed",
    "Session",
    "ShapeGrid",
    "StoreError",
    "TargetError",
    "TargetRow",
    "TaskReport",
    "TilewrightError",
    "UsageError",
    "__version__",
    "compile",
    "decoder",
    "load",
    "open",
    "serve",
]

_ERRORS = (
    "InputError",
    "InternalError",
    "ModelError",
    "NegativeVerdict",
    "OutputError",
    "StoreError",
    "TargetError",
    "TilewrightError",
    "UsageError",
)
_RESULTS = (
    "DoctorResult",
    "OptimizeResult",
    "ProfileResult",
    "TargetRow",
    "TaskReport",
)
_HOMES = {
    **dict.fromkeys(_ERRORS, "tilewright.core.errors"),
    **dict.fromkeys(_RESULTS, "tilewright.core.results"),
    **dict.fromkeys(
        ("DeadlineMissed", "QueueFull", "RequestFailed", "ServerClosed"), "tilewright.core.refusals"
    ),
    **dict.fromkeys(("CompareResult", "CompareRow"), "tilewright.core.comparisons"),
    "ModelOptions": "tilewright.models.loaded",
    "Session": "tilewright.session",
    "ShapeGrid": "tilewright.models.shape_grid",
    "open": "tilewright.session",
    "CompiledNetwork": "tilewright.deploy.compiling",
    "compile": "tilewright.deploy.compiling",
    "Decoder": "tilewright.deploy.decoding",
    "decoder": "tilewright.deploy.decoding",
    "load": "tilewright.deploy.artifact",
    "Server": "tilewright.serving.server",
    "serve": "tilewright.serving.serve",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = import_module("tilewright.hardware.environment").own_version()
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
