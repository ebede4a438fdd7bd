"""The settings of a card that NVML tells, in a file that all processes see."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tilewright.hardware.cards import Card

PACKAGE = Path(__file__).with_name("nvml_package")


class CardSettings:
    """A card of which `nvml_package` tells, here and in processes that are started."""

    def __init__(self, card: Card, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = file
        monkeypatch.setenv("FAKE_NVML", str(file))
        monkeypatch.setenv("PYTHONPATH", str(PACKAGE), prepend=":")
        spec = spec_from_file_location("pynvml", PACKAGE / "pynvml.py")
        assert spec is not None and spec.loader is not None
        self.library = module_from_spec(spec)
        spec.loader.exec_module(self.library)
        monkeypatch.setitem(sys.modules, "pynvml", self.library)
        self.set(
            uuid=f"GPU-{UUID(card.identity)}",
            limit=700_000,
            clock=1755,
            locked=None,
            stuck=False,
            refused={},
        )

    def set(self, **values: Any) -> None:
        self.library.change(**values)

    @property
    def now(self) -> dict[str, Any]:
        """All of them."""
        return json.loads(self.file.read_text())

    def __getitem__(self, name: str) -> Any:
        return self.now[name]
