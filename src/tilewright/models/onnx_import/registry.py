"""Which function translates which ONNX operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.node import OnnxNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A node to be carried along, and what is emitted from its only result."""

    node: OnnxNode
    then: Callable[[str], str]


Translated = str | Sequence[str] | OnnxNode | Carried | None
Translate = Callable[[OnnxNode, GraphBuilder], Translated]
"""Emits nodes and gives the name of each output's tensor; or gives a node to be carried along in
place of this one, or None for "as it is"."""

TRANSLATIONS: dict[str, Translate] = {}


def translates(*operators: str) -> Callable[[Translate], Translate]:
    """Register a function for ONNX operators, those of other domains as `DOMAIN.NAME`."""

    def register(function: Translate) -> Translate:
        for operator in operators:
            TRANSLATIONS[operator] = function
        return function

    return register
