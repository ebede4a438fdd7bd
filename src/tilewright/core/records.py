"""The records everything is made of: placements, candidates, measurements, failures, checks.

Frozen values; numbers carry their unit in the name; SI inside, scaled only when shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from msgspec import Struct

from tilewright.core.codec import FILE_NAMES
from tilewright.core.forms import Form
from tilewright.core.targets import Binding, Resources, Target

KnobValue = int | str | bool
Settings = Mapping[str, KnobValue]
"""A value for every knob of an implementation, by knob name."""

Precision = Literal["float32", "bfloat16", "float16", "auto", "int8", "int8-weights"]
"""The coarsest element type in which singles are multiplied and stored; with `auto` that is chosen
for each tensor, and products are in the type that their operands lie in. With `int8` the network is
a calibrated one on codes of eight bits, what is left in singles stays so. With `int8-weights` it
stays in singles but for weights of dense layers, which are on codes where that is faster."""

FailureKind = Literal["build", "timeout", "crash", "wrong result", "out of memory", "device lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A processor of a certain kind: here, elsewhere, or only described.

    `class_key` names the hardware and the code generated for it; measurements are reused within a
    class and never across. `instance` is one device of the class, empty where it is only described;
    `access` names how it is reached: `here`, `rpc`, `described` where it is not, or what a package
    adds.
    """

    class_key: str
    instance: str
    target: Target
    access: str = "here"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementKey:
    """What times are looked up by: a class of devices, and how much of one was used.

    Written `intel-xeon-processor-avx512-137051efbe-2t`.
    """

    device_class: str
    resources: Resources

    def __str__(self) -> str:
        return f"{self.device_class}-{self.resources}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where something runs: a device, how much of it, which of its cores exactly, which libraries
    may compute tasks there, by the names of their implementations, and the coarsest element type in
    which singles may be multiplied and stored.

    Times are comparable where class and resources, its `key`, are the same.
    """

    device: Device
    resources: Resources
    binding: Binding = Binding()
    libraries: tuple[str, ...] = ()
    precision: Precision = "float32"

    @property
    def key(self) -> PlacementKey:
        """What its times are looked up by."""
        return PlacementKey(device_class=self.device.class_key, resources=self.resources)

    @property
    def target(self) -> Target:
        """The kind of processor."""
        return self.device.target

    @property
    def host_threads(self) -> int:
        """Threads of the CPU that a process needs which runs kernels there: one starts those of
        another kind of processor."""
        return self.resources.threads if self.target.kind == "cpu" else 1

    @property
    def tvm_target(self) -> str:
        """JSON text of the TVM target for these resources."""
        return self.target.tvm_target(self.resources)


class Candidate(Struct, frozen=True, kw_only=True, cache_hash=True, rename=FILE_NAMES):
    """One way to compute a workload: implementation, knob settings, and the form of each port.

    `forms` has one entry per argument of the workload and a last one for the result; files and
    tables call it `layouts`. `msgspec.structs.replace` makes a changed copy.
    """

    implementation: str
    settings: tuple[tuple[str, KnobValue], ...]
    forms: tuple[Form, ...]

    def setting(self, name: str) -> KnobValue:
        """The value of one knob."""
        return dict(self.settings)[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a kernel was timed.

    The kernel runs `warmup` times, then in `repeats` samples of as many calls as last `sample_s`;
    of a kernel whose samples differ by more than 10 %, more are taken and the last ones kept.
    Weights rotate through copies adding up to `rotation_bytes` so that they come from beyond the
    inner caches, as in a network. Activations are warm; `rewritten` means that all threads wrote
    them anew before each call, as the layer before does; `cold` that other memory was written, so
    that they left the inner caches. `neighbours` copies of the kernel ran on other cores meanwhile,
    and controls of the machine were `held` at values, such as `clock=2GHz,cache-ways=4`.
    """

    warmup: int = 2
    repeats: int = 5
    sample_s: float = 0.004
    rotation_bytes: int = 64 << 20
    activations: str = "rewritten"
    timeout_s: float = 10.0
    neighbours: int = 0
    held: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyUse:
    """Energy of one run of a network, or of one call of a kernel: measured values with their
    method, or None with the reason.

    `energy_j` is the median of `samples_j`, one value per window; in a window of at least
    `window_s` it ran again and again, `runs` times in all windows together. `power_w` is the mean
    power meanwhile. Both hold all that the sensor sees, idle power included.
    `idle_power_w` is what the same sensor said while nothing of ours ran. `method` names the
    sensor and how it was read, `none` where there is none; `reason` says what is missing and why,
    and is empty where nothing is.
    """

    method: str
    energy_j: float | None = None
    power_w: float | None = None
    idle_power_w: float | None = None
    reason: str = ""
    samples_j: tuple[float, ...] = ()
    runs: int = 0
    window_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A candidate of a workload that was tried on one device class, with some of its resources."""

    workload_key: str
    candidate: Candidate
    device_class: str
    resources: Resources

    @property
    def placement_key(self) -> PlacementKey:
        """What it is looked up by."""
        return PlacementKey(device_class=self.device_class, resources=self.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Tried):
    """Raw samples of one candidate on one device class, with some of its resources.

    `samples_s` are seconds per call in the order they were taken. `kernel_hash` identifies the
    scheduled kernel, so that a changed template never reuses old times. `instance` names the one
    device of the class that was used, empty where it is not known; `binding` its cores. `model` is
    the network that it was measured for, as it was named, empty for none. `energy` is None where
    nobody asked for it.
    """

    protocol: Protocol
    kernel_hash: str
    samples_s: tuple[float, ...]
    build_s: float
    versions: str = ""
    created_at: float = 0.0
    run_id: int | None = None
    instance: str = ""
    binding: Binding = Binding()
    model: str = ""
    energy: EnergyUse | None = None

    @property
    def latency_s(self) -> float:
        """Median seconds per call."""
        return median(self.samples_s)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median of the samples; a plain sign of noise."""
        return (max(self.samples_s) - min(self.samples_s)) / self.latency_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Tried):
    """A candidate that gave no time: a value, never an exception that ends a run."""

    kind: FailureKind
    message: str
    kernel_hash: str = ""
    versions: str = ""
    created_at: float = 0.0
    run_id: int | None = None
    instance: str = ""
    binding: Binding = Binding()
    model: str = ""

    @property
    def headline(self) -> str:
        """The kind, and the first line of the message: what fits into a sentence."""
        return f"{self.kind}: {next(iter(self.message.splitlines()), self.message)}"


Outcome = Measurement | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class OfNetwork:
    """A record about a whole network on a device class, with some of its resources; `network_key`
    identifies the fused network."""

    network_key: str
    device_class: str
    resources: Resources
    model: str
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(OfNetwork):
    """One command that spends budget on a network; rows outlive the process.

    `state` is `running`, `done`, `converged` (nothing left to gain), `converged graph` (in any
    layouts) or `interrupted`.
    """

    id: int | None = None
    command: str
    seed: int
    state: str
    spent_s: float = 0.0
    measurements: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedPlan(OfNetwork):
    """The plan that shipped for a network on a device class.

    `latency_s` is the network's; `plan` is the plan as `graph.plan_fields` writes it, or as
    databases had it before; `numbers` holds further figures by name (baseline, reference, errors).
    """

    latency_s: float
    plan: Mapping[str, Any]
    numbers: Mapping[str, float | None] = field(default_factory=dict[str, float | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkMeasurement(OfNetwork):
    """A whole network as `profile` found it on a device class.

    `latency_s` is the median, `planned_bytes` the memory it was to take at its peak, and
    `measured_bytes` what it took by `memory_method`. Energy and measured memory are None where
    they were not asked for, or could not be had.
    """

    latency_s: float
    planned_bytes: int
    measured_bytes: int | None = None
    memory_method: str = ""
    energy: EnergyUse | None = None
    versions: str = ""
    instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCheck:
    """`error` is relative to sum |w||x|; None when there is no reference in numpy, or when the
    memory did not suffice for a check."""

    error: float | None
    bound: float
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCheck:
    """The network's outputs against the reference's: largest absolute error, the largest error
    relative to the largest value of its output, and the name of that output; empty where all are
    the same.

    `sqnr_db` is the least ratio of signal to noise of an output, 10 log10(Σref² / Σ(ours - ref)²),
    at most 300; `centred_sqnr_db` takes for the signal what differs between inputs, the reference
    less its mean over them: None where it is not known, of a single input. What an output shares
    for all inputs tells nothing, and hides noise.

    `top1_agreement` is the part of the rows in which the largest element is at the reference's
    place, of the output where that is least, which has `top1_rows`: a row is the last axis of an
    output, of images the channels of a pixel. None where no output has such rows. `untold` says in
    sentences what errors do not tell, such as that an output hardly depends on the inputs.
    """

    max_abs_error: float
    max_rel_error: float
    output: str = ""
    sqnr_db: float | None = None
    centred_sqnr_db: float | None = None
    top1_agreement: float | None = None
    top1_rows: int = 0
    untold: tuple[str, ...] = ()
