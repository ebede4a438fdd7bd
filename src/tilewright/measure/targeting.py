"""Targets that can be used here, and what measures kernels and runs networks on their devices. TVM
has the last word on a target, asked in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import log10, sqrt

from tilewright.core import errors, results
from tilewright.core.arguments import Error, decibels_of, error_of, texts_of
from tilewright.core.element_types import element_type
from tilewright.core.events import EventSink, Note, discard
from tilewright.core.records import Placement
from tilewright.core.targets import threads_alone
from tilewright.cost.floors import Peaks
from tilewright.hardware.controls import controls
from tilewright.hardware.device import local_placement
from tilewright.hardware.meters import KernelEnergy, Meter
from tilewright.kernels import registry
from tilewright.kernels.base import CODED_WEIGHTS, CPU, FLOAT16, HALF, MIXED, SINGLE
from tilewright.kernels.halves import converts_float16, half_lanes
from tilewright.measure import base, kernels, networks
from tilewright.measure.accesses import cuda
from tilewright.measure.accesses.here import DESCRIBED, HERE, cannot_run
from tilewright.measure.accesses.registry import access_to, accesses
from tilewright.measure.circumstances import Circumstances
from tilewright.models.loaded import ModelOptions
from tilewright.store.base import Store

_ROOT_MEAN_SQUARE = 1.0 / sqrt(7.0)
"""The error of rounding numbers that are spread evenly between two powers of two, relative to
theirs, by the largest: 1/3 for errors between -1 and 1, over 7/3 for numbers between 1 and 2."""


def usable_placement(placement: Placement, events: EventSink = discard) -> Placement:
    """The placement itself; raises TargetError when TVM refuses its target, or no device of it is
    at hand. What people should know of answers from there is told."""
    describable_placement(placement)
    if placement.device.access == DESCRIBED.name:
        raise cannot_run(placement)
    access = access_to(placement.device)
    busy = cuda.busy(placement) if access is cuda.CUDA else ""
    for note in filter(None, (access.note, busy)):
        events(Note(message=note))
    return placement


def placement_of(target: str, tracker: str | None, threads: int | None) -> Placement:
    """The placement a person means: this CPU, one that is described, or those behind a tracker.

    Raises `UsageError` when `tracker` is missing or not needed, `TargetError` when a tracker or its
    devices cannot be had.
    """
    asked = (access.placement(target, tracker, threads) for access in accesses().values())
    return next(placement for placement in asked if placement is not None)


def control_rows() -> tuple[results.ControlRow, ...]:
    """What can be set on this machine and on its GPUs, and whether this process may."""
    return (*controls(), *cuda.control_rows())


def require_one_name(placements: Mapping[str, Placement]) -> None:
    """Raise UsageError where a GPU that is here has two names."""
    names: dict[str, str] = {}
    for name, placement in placements.items():
        if placement.target.launch is not None and placement.device.instance:
            other = names.setdefault(placement.device.instance, name)
            if other != name:
                raise errors.UsageError(
                    f"{other!r} and {name!r} are the same GPU",
                    hint="'cuda -card=1' is the second one of this machine.",
                )


def foreseen_placements(
    target: str, tracker: str | None, threads: int | None, opened: Callable[[], Placement]
) -> tuple[Placement, Placement]:
    """Where kernels would run that are only predicted: with the threads that a device has by
    itself, and with those that are asked for, of which a CPU that is here need not have so many.
    `opened` gives the placement with those that are asked for.

    Raises what `opened` raises where that is not about too many threads.
    """
    try:
        asked = opened()
    except errors.TargetError:
        usual = placement_of(target, tracker, None)
        if threads is None or threads <= len(usual.binding.cpus) or not _is_here(usual):
            raise
        resources = replace(threads_alone(threads), kind=usual.resources.kind)
        return usable_placement(usual), replace(usual, resources=resources)
    return usual_placement(target, asked), asked


def usual_placement(target: str, placement: Placement) -> Placement:
    """The placement of a target with the threads that the device has by itself, where that is this
    machine's CPU; else the one that is given."""
    return placement_of(target, None, None) if _is_here(placement) else placement


def _is_here(placement: Placement) -> bool:
    return placement.device.access == HERE.name and placement.target.kind in CPU


def describable_placement(placement: Placement) -> Placement:
    """The placement itself, wherever it is; raises TargetError when TVM refuses its target."""
    if placement.target.tvm == local_placement(None).target.tvm:
        return placement
    refusal = access_to(placement.device).refusal(placement)
    if refusal is not None:
        raise errors.TargetError(
            f"TVM refuses the target {placement.tvm_target}: {refusal}",
            hint="`tilewright targets` lists what can be used here.",
        )
    return placement


def in_this_process(placement: Placement) -> bool:
    """Whether kernels for a placement run where this process does: on this machine's CPU."""
    return access_to(placement.device).here and placement.target.kind in CPU


def allowing(placement: Placement, options: ModelOptions) -> Placement:
    """The placement with what a model's options allow there: libraries that may compute tasks, and
    a precision. Raises UsageError for an unknown library, TargetError for one that is not
    installed, or not where kernels run, and for a precision in which the processor does not
    multiply."""
    allowed = _with_libraries(placement, texts_of(options.libraries, "libraries"))
    if options.precision in SINGLE:
        return allowed
    if placement.target.kind not in CPU:
        raise errors.TargetError(
            f"networks are computed in {options.precision} on CPUs, not on "
            f"{placement.target.model}, which stores and adds float32",
            hint="Leave out --precision: --max-error 2e-2 allows products in tf32. `plan` takes "
            "such a device beside a CPU that computes in it.",
        )
    target, float16 = placement.target, converts_float16(placement.target)
    if options.precision == FLOAT16 and not float16:
        raise errors.TargetError(
            f"{target.model} has no instructions that convert float16",
            hint="It takes a CPU with F16C, or ARM of 64 bits. Leave out --precision.",
        )
    if options.precision in (HALF, MIXED) and not half_lanes(target):
        other = "Use --precision float16, or leave" if float16 else "Leave"
        raise errors.TargetError(
            f"{target.model} has no products of bfloat16 that kernels use",
            hint=f"It takes a CPU with AVX512-BF16. {other} out --precision.",
        )
    return replace(allowed, precision=options.precision)


def allowing_beside(placement: Placement, options: ModelOptions) -> Placement:
    """The same where other devices of a plan compute in the options' precision: a kind of device
    that has no kernels in any other computes in single precision, which is no coarser."""
    if placement.target.kind in CPU:
        return allowing(placement, options)
    return _with_libraries(placement, texts_of(options.libraries, "libraries"))


def fine_enough(
    options: ModelOptions, max_error: Error | None, events: EventSink = discard
) -> ModelOptions:
    """What is said of a model, in single precision, with a note, where not even one rounding to the
    other type is within the error that is allowed. Raises UsageError for an error that is none."""
    single = ModelOptions().precision
    if max_error is None or options.precision in (single, MIXED, CODED_WEIGHTS):
        return options
    rounding = element_type(options.precision).unit_roundoff or 0.0
    ratio = decibels_of(max_error) is not None
    if error_of(max_error) >= rounding * (_ROOT_MEAN_SQUARE if ratio else 1.0):
        return options
    ratio_db = -20.0 * log10(rounding * _ROOT_MEAN_SQUARE)
    told = f"leaves {ratio_db:.0f} dB of signal to noise" if ratio else f"is off by {rounding:.2g}"
    said = f"One rounding to {options.precision} {told}, and {max_error} is asked for"
    events(Note(message=f"{said}: the network stays in {single}."))
    return replace(options, precision=single)


def _with_libraries(placement: Placement, libraries: Iterable[str]) -> Placement:
    names = registry.checked_libraries(libraries)
    if not names:
        return placement
    if not in_this_process(placement):
        raise errors.TargetError(
            f"{', '.join(names)} cannot compute tasks on devices that are reached by "
            f"{placement.device.access!r}: libraries are on this machine's CPU only",
            hint="Leave out --libraries.",
        )
    return replace(placement, libraries=names)


def target_rows(threads: int | None) -> tuple[results.TargetRow, ...]:
    """What `--target` takes: this CPU first, then the forms for others."""
    ways = sorted(accesses().values(), key=lambda each: (each is not HERE, not each.here))
    return tuple(row for access in ways for row in access.rows(threads))


def open_measurer(placement: Placement, seed: int) -> base.Measurer:
    """The measurer of kernels for a placement."""
    return access_to(placement.device).measurer(placement, seed=seed)


def open_networks(placement: Placement) -> networks.NetworkRunner:
    """What compiles, runs and times whole networks for a placement."""
    return access_to(placement.device).networks(placement)


def require_here(placement: Placement) -> None:
    """Raise UsageError for a device elsewhere: meters are read on this machine."""
    access = access_to(placement.device)
    if not access.here:
        raise errors.UsageError(
            f"--power reads a meter of this machine, and {access.name} targets do not run on it.",
            hint="Measure the energy of a board where it is: run tilewright there.",
        )


def open_measurer_under(
    circumstances: Circumstances, seed: int, meter: Meter | None = None
) -> base.Measurer:
    """The measurer of a placement under circumstances; with a `meter` it also tells the energy of a
    call, and UsageError is raised for a device elsewhere."""
    placement = circumstances.placement
    if circumstances.neighbours and placement.target.kind != "cpu":
        raise errors.UsageError("Neighbours are copies of a kernel on other cores of a CPU.")
    if circumstances.neighbours:
        return kernels.CrowdedMeasurer(placement, circumstances.neighbours, seed=seed)
    if meter is None:
        return open_measurer(placement, seed)
    require_here(placement)
    return access_to(placement.device).measurer(
        placement, seed=seed, energy=KernelEnergy(meter=meter)
    )


def measured_peaks(store: Store, placement: Placement, measurer: base.Measurer) -> Peaks:
    """The best this device has ever reached: what the store knows, and one more look.

    A disturbed look finds too little, never too much, so the largest value is kept.
    """
    best: dict[str, float] = {}
    for name, value in measurer.peaks().items():
        known = store.peak(placement.key, name) or 0.0
        if value > known:
            store.add_peak(placement.key, name, value)
        best[name] = max(value, known)
    return Peaks(**best)
