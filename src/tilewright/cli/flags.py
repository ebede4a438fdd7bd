"""The flags that verbs share; each means the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Group, Parameter

from tilewright.cli.precision_flags import MODEL, PrecisionFlag, names_in
from tilewright.core.arguments import error_of
from tilewright.core.errors import UsageError

if TYPE_CHECKING:
    from tilewright.models.loaded import ModelOptions
    from tilewright.models.shape_grid import ShapeGrid

Format = Literal["table", "json", "csv", "md"]
Settings = Literal["default", "best", "shipped"]
Islands = Literal["run", "refuse"]

_EXTENT = re.compile(r"0*[1-9][0-9]{0,11}")
_SHARED = Group("Shared flags", sort_key=20)


def _an_error(_type: type, value: str | None) -> None:
    """A validator: what is allowed as an error, or nothing at all."""
    try:
        _ = value is None or error_of(value, "")
    except UsageError as error:
        raise ValueError(error.message.strip()) from None


MaxError = Annotated[
    str | None,
    Parameter(
        validator=_an_error,
        help="Largest error allowed in an output, relative to its largest value, or the least "
        "ratio of its signal to noise, 30dB. Implementations with a larger error bound (for 30dB "
        "3.2e-2) are not used [default: 1e-4, with --precision bfloat16 2e-2, int8 5e-2, "
        "int8-weights and networks on codes of 8 bits 3e-2].",
    ),
]
Budget = Annotated[
    str,
    Parameter(
        help="Total for this network, target, threads and database, including earlier runs: "
        "a time (90s, 10m, 1h30m) or a number of measurements. 0 searches nothing: it "
        "compiles from what is known, checks the outputs, and times the networks."
    ),
]
_LEAST = {"threads": 1, "seed": 0, "batch": 1, "tokens": 1}


class _Checked:
    """Flags whose numbers are checked: each has a least value wherever it occurs."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            given: object = getattr(self, name, None)
            several = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
            for value in several:
                if isinstance(value, int) and value < least:
                    raise UsageError(f"--{name} must be at least {least}, not {value}.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AnswerFlags(_Checked):
    """What every verb takes: where its answer goes. The classes below add what some verbs heed."""

    out: Annotated[
        Path | None,
        Parameter(group=_SHARED, help="Folder for the files that the command writes."),
    ] = None
    format: Annotated[Format, Parameter(group=_SHARED, help="How data is printed on stdout.")] = (
        "table"
    )

    @property
    def opening(self) -> dict[str, Any]:
        """Those of the flags that `session.open` takes, by name."""
        names = {field.name for field in fields(self)} - {"out", "format"}
        return {name: getattr(self, name) for name in names}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ThreadedFlags(AnswerFlags):
    """What verbs take that need cores, but neither a database nor anything random."""

    threads: Annotated[
        int | None,
        Parameter(group=_SHARED, help="Number of threads [default: all physical cores]."),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoredFlags(AnswerFlags):
    """What verbs take that look into the database."""

    db: Annotated[
        str | None,
        Parameter(
            group=_SHARED,
            help="Database of measurements: a file; `memory:`, which is deleted after the command; "
            "or a store of another package, SCHEME:REST [default: user's data folder].",
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlacedFlags(ThreadedFlags, StoredFlags):
    """What verbs take that look into the database for a device with so many threads."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CommonFlags(StoredFlags):
    """What verbs take that work on a model; `--threads` is apart, since `collect` takes several
    numbers and `explain` also none."""

    seed: Annotated[
        int, Parameter(group=_SHARED, help="Seed of everything random: weights, inputs, search.")
    ] = 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SharedFlags(ThreadedFlags, CommonFlags):
    """All flags that verbs share; most verbs on models take them all."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SharedFlagsOfExplain(CommonFlags):
    """The same with `--threads` for a question, too, and the implementation to be explained."""

    implementation: Annotated[
        str,
        Parameter(
            help="On a GPU: the implementation that is explained, such as cuda_default, TVM's own "
            "schedules [default: the one with the least estimate].",
            show_default=False,
        ),
    ] = ""

    threads: Annotated[
        tuple[int, ...] | None,
        Parameter(
            group=_SHARED,
            negative="",
            consume_multiple=True,
            help="With a number, the number of threads [default: all physical cores]. Without a "
            "number, at most five are measured to find the best one for the network.",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads is not None and len(self.threads) > 1:
            given = " ".join(str(count) for count in self.threads)
            raise UsageError(f"--threads takes one number or none, not {given}.")

    @property
    def asks_for_threads(self) -> bool:
        """Whether the number of threads is what is asked for."""
        return self.threads == ()

    @property
    def opening(self) -> dict[str, Any]:
        """The same, with the one number of threads where one is given."""
        opening = {**super().opening, "threads": self.threads[0] if self.threads else None}
        del opening["implementation"]
        return opening


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TargetFlag(_Checked):
    """What code is compiled for."""

    target: Annotated[
        str,
        Parameter(
            group=MODEL,
            help="llvm (this CPU), cuda (an NVIDIA GPU), a TVM target string, or rpc:KEY (remote "
            "boards).",
        ),
    ] = "llvm"
    tracker: Annotated[
        str | None,
        Parameter(group=MODEL, help="HOST:PORT of the TVM RPC tracker that knows rpc:KEY."),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ArtifactFlags:
    """How an artifact is opened."""

    verify: Annotated[
        bool,
        Parameter(group=MODEL, help="Check the files of an artifact by their hashes."),
    ] = True


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TargetOrArtifactFlags(ArtifactFlags, TargetFlag):
    """What code is compiled for, where an artifact may be meant."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AnyShapesFlags(TargetFlag):
    """What can be said about a MODEL beside its name and its batch."""

    shape: Annotated[
        tuple[str, ...],
        Parameter(
            group=MODEL,
            help="Shape of an input, NAME=1,3,224,224, or size of a named axis, NAME=128; repeat "
            "for several.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = ()

    islands: Annotated[
        Islands,
        Parameter(
            group=MODEL,
            help="What becomes of nodes that cannot be compiled: ONNX Runtime runs them, or the "
            "model is refused.",
        ),
    ] = "run"

    def __post_init__(self) -> None:
        super().__post_init__()
        read_shapes(self.shape)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelFlags(AnyShapesFlags):
    """What can be said about a MODEL beside its name."""

    batch: Annotated[
        int | None, Parameter(group=MODEL, help="Replaces the first axis of the inputs.")
    ] = None

    def options(self, seed: int) -> ModelOptions:
        """The same as the models layer wants it."""
        from tilewright.models import ModelOptions

        return ModelOptions(
            batch=self.batch, shapes=read_shapes(self.shape), seed=seed, islands=self.islands
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PredictedModelFlags(PrecisionFlag, ModelFlags):
    """What can be said about a MODEL whose time is predicted."""

    def options(self, seed: int) -> ModelOptions:
        """See `ModelFlags.options`."""
        return replace(super().options(seed), **self.said)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ComputingFlags(PrecisionFlag):
    """Which libraries may compute tasks beside our kernels, and in which precision."""

    libraries: Annotated[
        str,
        Parameter(
            group=MODEL,
            help="Libraries that may compute a task where they were measured to be faster, "
            "separated by commas: onnxruntime.",
            show_default=False,
        ),
    ] = ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompiledModelFlags(ComputingFlags, ModelFlags):
    """What can be said about a MODEL that is compiled."""

    def options(self, seed: int) -> ModelOptions:
        """See `ModelFlags.options`."""
        libraries = names_in(self.libraries)
        return replace(super().options(seed), libraries=libraries, **self.said)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ShapesFlags(ComputingFlags, AnyShapesFlags):
    """The same where a MODEL may have several shapes."""

    batch: Annotated[
        str | None,
        Parameter(
            group=MODEL,
            help="Replaces the first axis of the inputs; with several numbers, 1,4,16, the "
            "artifact takes each, and those between them padded. Likewise several sizes of an "
            "axis, --shape NAME=32,64.",
        ),
    ] = None
    pad: Annotated[
        tuple[str, ...],
        Parameter(
            group=MODEL,
            help="Named axis with several sizes along which inputs may be padded with zeros.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = ()

    cache: Annotated[
        str | None,
        Parameter(
            help="For a language model with its cache: numbers of slots, 128,512, one per token. "
            "The artifact is a decoder."
        ),
    ] = None
    tokens: Annotated[
        int | None, Parameter(help="With --cache, the longest prompt [default: 64].")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens is not None and self.cache is None:
            raise UsageError("--tokens is for a decoder.", hint="Add --cache 128,512.")
        if self.cache is not None and (self.batch or self.shape or self.pad):
            raise UsageError(
                "--cache makes a decoder, whose shapes follow from --tokens and --cache.",
                hint="Leave --batch, --shape and --pad out.",
            )
        self.slots()

    def slots(self) -> tuple[int, ...]:
        """The sizes of a decoder's caches."""
        return read_sizes("cache", self.cache)

    def options_and_grid(self, model: str, seed: int) -> tuple[ModelOptions, ShapeGrid | None]:
        """The same as the models layer wants it; with the several shapes, where there are."""
        from tilewright.models import ModelOptions
        from tilewright.models.shape_grid import ShapeGrid, axes_among

        batches, shapes = read_sizes("batch", self.batch), read_shapes(self.shape)
        axes = axes_among(model, shapes)
        options = ModelOptions(
            batch=batches[0] if len(batches) == 1 else None,
            shapes={name: shape for name, shape in shapes.items() if name not in axes},
            seed=seed,
            islands=self.islands,
            libraries=names_in(self.libraries),
            **self.said,
        )
        if len(batches) < 2 and not axes:
            if self.pad:
                raise UsageError(
                    f"--pad {self.pad[0]}: there is one shape.",
                    hint="Give an axis several sizes: --shape NAME=32,64 --pad NAME.",
                )
            return options, None
        several = batches if len(batches) > 1 else ()
        return options, ShapeGrid(batch=several, axes=axes, pad=self.pad)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOrArtifactFlags(ArtifactFlags, CompiledModelFlags):
    """What can be said about a MODEL that may be an artifact."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MeteredFlags(ModelFlags):
    """The same, and whether energy is measured, and by what."""

    power: Annotated[
        bool,
        Parameter(help="Also measure energy and power.", negative="", show_default=False),
    ] = False
    meter: Annotated[
        str | None,
        Parameter(
            help="With --power, the meter: auto, powercap, hwmon, nvml, none, command:CMD (a "
            "program that prints watts or joules), or one of another package (see doctor) "
            "[default: auto]."
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.meter is not None and not self.power:
            raise UsageError("--meter says how --power measures.", hint="Add --power.")

    @property
    def meter_name(self) -> str | None:
        """The meter that was asked for, None for none at all."""
        return (self.meter or "auto") if self.power else None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CollectedFlags(MeteredFlags, PredictedModelFlags):
    """What can be said about a MODEL whose kernels are measured for predictors."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProfiledFlags(MeteredFlags, CompiledModelFlags):
    """Both."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ChoiceFlags:
    """Which candidates a network is made of."""

    settings: Annotated[
        Settings,
        Parameter(
            help="Settings of the kernels: our defaults, the best known per task, or those shipped."
        ),
    ] = "best"
    max_error: MaxError = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ForecastChoiceFlags(ChoiceFlags):
    """The same with our defaults unless something else is asked for."""

    settings: Annotated[
        Settings,
        Parameter(
            help="Settings of the kernels: our defaults, the best known per task, or those shipped."
        ),
    ] = "default"


def read_sizes(flag: str, text: str | None) -> tuple[int, ...]:
    """`"1,4,16"` → `(1, 4, 16)`; empty for None."""
    if text is None:
        return ()
    sizes = [size.strip() for size in text.split(",")]
    if not all(_EXTENT.fullmatch(size) for size in sizes):
        raise UsageError(
            f"--{flag} {text!r} is not a whole number from 1, or several: --{flag} 4,16."
        )
    return tuple(map(int, sizes))


def read_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`["x=1,3,224,224"]` → `{"x": (1, 3, 224, 224)}`; the name may hold `=` itself."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, extents = text.rpartition("=")
        sizes = [size.strip() for size in extents.split(",")]
        # What follows the `=` may be empty: the shape of a scalar.
        scalar = sizes == [""]
        fine = all(_EXTENT.fullmatch(size) for size in sizes)
        if not (equals and name and (fine or scalar)):
            raise UsageError(
                f"--shape {text!r} is not of the form NAME=1,3,224,224.",
                hint="Extents are whole numbers from 1.",
            )
        if name in shapes:
            raise UsageError(f"--shape gives {name!r} twice.")
        shapes[name] = () if scalar else tuple(int(size) for size in sizes)
    return shapes
