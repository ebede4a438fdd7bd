"""The flags that say in which precision a model may be computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

MODEL = Group("Model and target", sort_key=10)


def names_in(text: str) -> tuple[str, ...]:
    """The names between commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PrecisionFlag:
    """In which precision a MODEL may be computed."""

    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "auto", "int8", "int8-weights"],
        Parameter(
            group=MODEL,
            help="The coarsest type in which float32 may be multiplied and stored; sums stay in "
            "float32. With auto each tensor gets a type, codes of eight bits included, within "
            "--max-error. With int8 the network is quantized, with int8-weights only weights of "
            "dense layers are, where that is faster.",
        ),
    ] = "float32"
    keep: Annotated[
        str,
        Parameter(
            group=MODEL,
            help="With --precision auto or int8, nodes and tensors that stay in float32, separated "
            "by commas: float32:NAME,…",
            show_default=False,
        ),
    ] = ""
    calibration: Annotated[
        Path | None,
        Parameter(
            group=MODEL,
            help="With --precision auto or int8, an .npz file of inputs by the network's names on "
            "which noise is measured or codes are calibrated, and results are judged.",
        ),
    ] = None

    calibrator: Annotated[
        Literal["onnxruntime", "nncf"],
        Parameter(
            group=MODEL,
            help="With --precision auto or int8, whose quantizer calibrates codes: ONNX Runtime's, "
            "or NNCF's (pip install 'tilewright[nncf]').",
        ),
    ] = "onnxruntime"

    @property
    def said(self) -> dict[str, Any]:
        """The same as the models layer wants it; a kept type holds for the names that follow."""
        kept: list[str] = []
        kind = ""
        for each in names_in(self.keep):
            named, colon, _ = each.partition(":")
            kind = named if colon else kind
            kept.append(each if colon or not kind else f"{kind}:{each}")
        return {
            "precision": self.precision,
            "keep": kept,
            "calibration": self.calibration,
            "calibrator": self.calibrator,
        }
