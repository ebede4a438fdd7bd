"""The child process that runs operators on some cores, or beside others, compiled for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curves.wishes import wish_of
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.compiler.execute import set_threads
from tilewright.compiler.kernel_runs import BuiltKernel
from tilewright.core.child import serve, wait_until_asleep
from tilewright.core.records import Protocol
from tilewright.core.targets import threads_alone
from tilewright.hardware.device import local_placement

_SEED, _REST_S, _GIVE_UP_S = 0, 0.5, 0.5
_kernels: dict[str, BuiltKernel] = {}


def begin(texts: Sequence[str], cpus: Sequence[int]) -> dict[str, Any]:
    """Compile operators for as many cores as there are CPUs, and have a thread on each of these;
    operations and bytes of each."""
    placement, cores = local_placement(), len(cpus)
    for text in texts:
        wish = wish_of(text, placement, (cores,))
        chosen = wish.candidates[cores]
        made = build_kernel(wish.workload, chosen, placement.target, threads_alone(cores))
        _kernels[text] = made
    set_threads(cores, cpus)
    return {t: {"flop": k.workload.flop, "bytes": k.workload.bytes} for t, k in _kernels.items()}


def time(text: str, protocol: Protocol) -> list[float]:
    """Seconds of a call, of each sample."""
    return _kernels[text].time(protocol, _SEED, _GIVE_UP_S)


def rest() -> bool:
    """Wait until the pool sleeps; whether it does."""
    return wait_until_asleep(_REST_S)


def keep_running(text: str, protocol: Protocol, flag: str, started: str) -> float:
    """Call it again and again while the file `flag` exists; `started` is written when it has begun.
    Calls per second."""
    watch = Path(flag).exists, Path(started).touch
    bursts = _kernels[text].keep_running(protocol, _SEED, watch)
    lasted_s = sum(burst.end_s - burst.begin_s for burst in bursts)
    return sum(burst.calls for burst in bursts) / lasted_s if lasted_s else 0.0


if __name__ == "__main__":
    handlers = (begin, time, rest, keep_running)
    serve({handler.__name__: handler for handler in handlers})
