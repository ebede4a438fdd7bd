"""What loading a model gives and what can be asked of it; and a model cut into kernel calls, with
the plan that it has by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from tilewright.core.arguments import (
    Text,
    count_of,
    counts_of,
    kept_names,
    named_of,
    one_of,
    path_or_none,
    texts_of,
)
from tilewright.core.errors import InternalError, UsageError, quoted
from tilewright.core.forms import Form
from tilewright.core.records import Precision
from tilewright.core.scratch import FolderInUse, PrivateFolder
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array, Graph, TensorType
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.tasks import Task, TaskKey

Islands = Literal["run", "refuse"]
"""What becomes of nodes that cannot be compiled."""
Calibrator = Literal["onnxruntime", "nncf"]
"""Whose quantizer puts a network in single precision on codes."""
ON_CODES: Precision = "int8"
"""The precision of networks in single precision that are put on codes of eight bits."""
WEIGHTS_ON_CODES: Precision = "int8-weights"
"""The precision of networks in single precision whose dense layers have weights on codes."""
BY_NOISE: tuple[Precision, ...] = ("auto", ON_CODES)
"""Precisions that are a choice for each tensor, made by the noise of inputs."""
CALIBRATED: tuple[Precision, ...] = ("float16", *BY_NOISE)
"""Precisions that inputs decide about: also what fits a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options of a model: its batch, its shapes, the seed of its weights, which libraries compute
    parts of it, and in which precision.

    `batch` replaces the first axis of the inputs; `shapes` gives whole input shapes by name and
    wins over `batch`; `seed` makes the weights of zoo models and single operators. Nodes that
    cannot be compiled are left to ONNX Runtime, or with `islands="refuse"` the model is refused.
    `libraries` names those that may compute other tasks, too, where they were measured to be
    faster: "onnxruntime". With `precision="bfloat16"` or "float16" singles may be multiplied and
    stored in that type, while sums stay in single precision; inputs show what does not fit float16.
    With `precision="int8"` a network in float32 is quantized: its codes are calibrated on the
    inputs by name in the .npz file `calibration`, drawn ones without it, and nodes and tensors that
    `keep` names, "float32:NAME", stay what they are; with "auto" both mean the same for the noise
    of tensors' types and for what fits float16, with "float16" for the latter alone. The
    quantizer is ONNX Runtime's, or with `calibrator="nncf"` NNCF's. With
    `precision="int8-weights"` weights of dense layers are on codes of eight bits where that is
    faster, but for what is kept. `optimize`, `tune`, `compare`, `profile`, `predict` and `plan`
    heed all of these. Lists and numpy's numbers are accepted too. Raises `UsageError` for other
    kinds.
    """

    batch: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    seed: int = 0
    islands: Islands = "run"
    libraries: str | Sequence[str] = ()
    precision: Precision = "float32"
    keep: str | Sequence[str] = ()
    calibration: Text | None = None
    calibrator: Calibrator = "onnxruntime"

    def __post_init__(self) -> None:
        if self.islands not in get_args(Islands):
            raise UsageError(f"islands is {self.islands!r}", hint='It is "run" or "refuse".')
        if self.precision not in get_args(Precision):
            known = " or ".join(map(repr, get_args(Precision)))
            raise UsageError(f"precision is {self.precision!r}", hint=f"It is {known}.")
        if self.calibrator not in get_args(Calibrator):
            known = " or ".join(map(repr, get_args(Calibrator)))
            raise UsageError(f"calibrator is {self.calibrator!r}", hint=f"It is {known}.")
        if self.calibrator != get_args(Calibrator)[0] and self.precision not in BY_NOISE:
            raise UsageError(
                f"{self.calibrator} puts networks on codes, which precision {self.precision} has "
                "none of",
                hint=f"Add --precision {' or '.join(BY_NOISE)}.",
            )
        object.__setattr__(self, "keep", texts_of(self.keep, "keep"))
        object.__setattr__(self, "calibration", path_or_none(self.calibration, "calibration"))
        said = kept_names(self.keep) and self.precision != WEIGHTS_ON_CODES
        if (said or self.calibration is not None) and self.precision not in CALIBRATED:
            raise UsageError(
                "what is kept in single precision, and calibration inputs, belong to a choice of "
                "types",
                hint=f"Add --precision {' or '.join(CALIBRATED)}.",
            )
        object.__setattr__(self, "libraries", texts_of(self.libraries, "libraries"))
        object.__setattr__(self, "seed", count_of(self.seed, "seed"))
        if self.batch is not None:
            object.__setattr__(self, "batch", count_of(self.batch, "batch", 1))
        shapes = {
            name: counts_of(shape, f"the shape of {quoted(name)}", 1)
            for name, shape in named_of(self.shapes, "shapes").items()
        }
        object.__setattr__(self, "shapes", shapes)


def options_of(value: object, seed: int) -> ModelOptions:
    """What is said about a model; by default its seed alone."""
    if value is None:
        return ModelOptions(seed=seed)
    return one_of(value, "options", ModelOptions, "a tilewright.ModelOptions(batch=…, shapes=…)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxReference:
    """An ONNX file, that of a model with the final input shapes before any optimisation.

    `keeper` keeps the file as long as this object lives: a temporary folder, removed with it, or a
    hold on a model of the cache; None when `path` is the user's own file.
    """

    path: Path
    keeper: PrivateFolder | FolderInUse | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready for work: our graph, and the ONNX file it came from as the reference.

    An outline has no reference: its weights are of the right shapes and hold no numbers of its own.
    `remark` is what there is to say about its weights and ranges, if anything. Where the graph is
    on codes that were calibrated here, `quantized` is an ONNX file of it; the reference is what it
    was.
    """

    name: str
    graph: Graph
    reference: OnnxReference | None
    remark: str = ""
    quantized: OnnxReference | None = None

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """The types of the inputs under the file's names, in its order."""
        return {name: self.graph.types[name] for name in self.graph.inputs}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self.graph.outputs

    @property
    def onnx_path(self) -> Path:
        """An ONNX file with the same inputs, shapes and outputs, for ONNX Runtime and peers.

        It lives as long as this object.
        """
        if self.reference is None:
            raise InternalError(f"{self.name} is an outline and has no ONNX file")
        return self.reference.path


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNetwork:
    """A model, its fused calls, the default form of every tensor, and the plan that follows, with
    our default settings."""

    model: LoadedModel
    fused: FusedNetwork
    forms: Mapping[str, Form]
    plan: NetworkPlan
    precision: Precision = "float32"

    @property
    def key(self) -> str:
        """Identity of the fused network in its precision, whatever its layouts."""
        own = self.precision == get_args(Precision)[0]
        return self.fused.key if own else f"{self.fused.key}-{self.precision}"

    @property
    def graph(self) -> Graph:
        """The graph whose tensors the calls name."""
        return self.fused.graph

    @property
    def tasks(self) -> Mapping[TaskKey, Task]:
        """The distinct tasks in default forms, in order of first use."""
        return self.plan.tasks

    @property
    def weight_bytes(self) -> int:
        """All constants together."""
        return sum(array.nbytes for array in self.graph.constants.values())

    def sample_inputs(self, seed: int) -> list[Array]:
        """Random inputs that the model accepts, in the order of the graph's."""
        inputs = random_inputs(self.model.graph, seed)
        return [inputs[name] for name in self.graph.inputs]
