"""Engines that break down, hang or take too much on a model, in the process that they have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx import helper

from helpers.networks.onnx_models import model_of
from tilewright.core.errors import ModelError
from tilewright.models import contained
from tilewright.models.loading import load

pytestmark = pytest.mark.regression

BODIES = {
    "crash": "import os\ndef work(*_): os.abort()",
    "hang": "import time\ndef work(*_): time.sleep(600)",
    "memory": "def work(*_): raise MemoryError",
}
WORDS = {"crash": "breaks down: signal SIGABRT", "hang": "takes more than", "memory": "memory"}


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a module that stands in for the process, `standin.py`."""
    monkeypatch.setattr(contained, "_WORKER", "standin")
    monkeypatch.setattr(contained, "_PATIENCE_S", 0.2)
    monkeypatch.syspath_prepend(str(tmp_path))
    contained._process.cache_clear()
    yield tmp_path
    contained._process(os.getpid()).stop()
    contained._process.cache_clear()


@pytest.mark.parametrize("how", BODIES)
@pytest.mark.parametrize("task", ["fold", "infer"])
def test_the_model_is_at_fault(standin: Path, how: str, task: str) -> None:
    (standin / "standin.py").write_text(
        "from tilewright.core.child import serve\n"
        f"{BODIES[how]}\n"
        f"serve({{'ready': lambda: None, '{task}': work, 'fold': "
        f"{'work' if task == 'fold' else 'lambda *_: False'}}})\n"
    )
    path = standin / "model.onnx"
    made = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 4]})
    path.write_bytes(made.SerializeToString())
    if (how, task) == ("memory", "fold"):
        assert contained.fold(path, standin / "folded.onnx", 0) is None
        return
    with pytest.raises(ModelError, match=WORDS[how]) as caught:
        load(str(path))
    assert caught.value.message.isprintable()


def test_one_process_serves_all_models_of_this_one(tmp_path: Path) -> None:
    for shape in ([2, 4], [3, 5]):
        made = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": shape})
        (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
        load(str(tmp_path / "model.onnx"))
        child = contained._process(os.getpid()).pid
    load(str(tmp_path / "model.onnx"))
    assert contained._process(os.getpid()).pid == child is not None
