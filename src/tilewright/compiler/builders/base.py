"""What a builder of kernels must offer, and what builders of simulated kernels share.

    builder = builder_for(candidate)
    kernel = builder.build(workload, candidate, target, resources)
    kernel.run([image, weights])              the result, as numpy would give it
    kernel.time(protocol, seed, give_up_s)    seconds of each sample

An implementation names its builder. A builder works in this process and knows nothing of devices
elsewhere, of timeouts or of crashes: `measure` puts processes around it where they are wanted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from tilewright.core.codec import canonical_json, digest
from tilewright.core.errors import TargetError, TilewrightError
from tilewright.core.records import Candidate
from tilewright.core.records import Protocol as Timing
from tilewright.core.targets import Resources, Target
from tilewright.core.timings import Burst
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation

_SPREAD = (0.99, 1.0, 1.01)
_SLICE_S = 1e-3

FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError),
    *(RuntimeError, TypeError, ValueError, TilewrightError),
)
"""What a builder raises for a kernel that it cannot build."""

Watch = tuple[Callable[[], bool], Callable[[], None]]
"""Whether to go on, asked again and again; and what is told when the first calls are done."""


class Kernel(Protocol):
    """A kernel that can be called."""

    @property
    def kernel_hash(self) -> str:
        """What the builder's `identify` says of it."""

    @property
    def build_s(self) -> float:
        """Seconds that building took."""

    def run(self, arrays: Sequence[Array]) -> Array:
        """The result on logical arrays, one per argument, as a logical array."""

    def time(self, protocol: Timing, seed: int, give_up_s: float) -> list[float]:
        """Seconds per call of each of the protocol's samples on random operands; a kernel that is
        slower than `give_up_s` may be sampled once."""

    def repeat(self, protocol: Timing, seed: int, seconds: float) -> int:
        """Call it for at least so many seconds and once; how often. A meter is read meanwhile."""

    def keep_running(self, protocol: Timing, seed: int, watch: Watch) -> list[Burst]:
        """Call it again and again while `watch` wants that, beside another kernel; what it did
        after the first calls."""


class Builder(Protocol):
    """One way to build kernels."""

    @property
    def name(self) -> str:
        """What implementations name it by."""

    def identify(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> str:
        """The hash of a kernel, without building it. Equal hashes mean the same kernel; if the hash
        changes, old measurements are no longer used for it."""

    def build(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Kernel:
        """Build a kernel. Raises one of `FAULTS`, which costs this candidate a failure and nothing
        else."""

    def render(
        self,
        workload: Workload,
        candidate: Candidate,
        target: Target,
        resources: Resources,
        view: str,
    ) -> str:
        """A kernel as text, one of the views of `show`. Raises TargetError for one that it has
        not."""


@runtime_checkable
class CalledInNetworks(Protocol):
    """A builder whose kernels a compiled network does not contain but calls."""

    def network_call(
        self, workload: Workload, candidate: Candidate
    ) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """The name of the function that is registered with TVM, what it is given first, and which
        arguments then, in their order. The result's memory comes last where its shape is known;
        else it is returned."""
        ...


class SimulatedKernel:
    """A kernel whose result is computed otherwise, and which tells how long it would take."""

    def __init__(
        self, kernel_hash: str, run: Callable[[Sequence[Array]], Array], seconds: float
    ) -> None:
        self.kernel_hash = kernel_hash
        self.build_s = 0.0
        self._run = run
        self._seconds = seconds

    def run(self, arrays: Sequence[Array]) -> Array:
        """What the function makes of the arrays."""
        return self._run(arrays)

    def time(self, protocol: Timing, seed: int, give_up_s: float) -> list[float]:
        """What it tells, a little apart from sample to sample, always alike."""
        return [
            self._seconds * _SPREAD[sample % len(_SPREAD)]
            for sample in range(max(1, protocol.repeats))
        ]

    def repeat(self, protocol: Timing, seed: int, seconds: float) -> int:
        """Time passes; as many calls as fit into it."""
        time.sleep(seconds)
        return max(1, int(seconds / self._seconds))

    def keep_running(self, protocol: Timing, seed: int, watch: Watch) -> list[Burst]:
        """Time passes while it is wanted."""
        goes_on, begun = watch
        begun()
        began_s = time.perf_counter()
        while goes_on():
            time.sleep(_SLICE_S)
        end_s = time.perf_counter()
        calls = max(1, int((end_s - began_s) / self._seconds))
        return [Burst(began_s, end_s, calls, calls * self._seconds)]


class SimulatedBuilder:
    """What builders of simulated kernels have in common; `generation` tells kernels of one version
    of a simulator from those of the next."""

    name: str
    generation = 1

    def identify(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> str:
        """A hash of all that it is built from; of an unknown implementation there is none."""
        implementation(candidate.implementation)
        parts = [self.name, self.generation, workload.text, candidate, target, str(resources)]
        return digest(canonical_json(parts))

    def render(
        self,
        workload: Workload,
        candidate: Candidate,
        target: Target,
        resources: Resources,
        view: str,
    ) -> str:
        """Nothing: there is no code."""
        raise TargetError(
            f"kernels that {self.name!r} builds cannot be shown as {view}",
            hint="What they compute: --graph.",
        )
