"""A sample of ONNX's own node tests: nothing wrong, nothing that is our fault."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from onnx_node_page import ENGINE
from onnx_node_tests import (
    INTERNAL,
    REFUSED,
    RIGHT,
    WRONG,
    Result,
    Results,
    child,
    chosen,
    judged,
    main,
    summary,
)
from onnx_node_worker import NodeTest, difference, make_constants

pytestmark = pytest.mark.regression

SAMPLE, SEED = 20, 7
MENDED = (
    "test_layer_normalization_4d_axis1",
    "test_resize_downsample_scales_cubic_antialias/constants",
    "test_convtranspose_output_shape/constants",
    "test_mod_float_edge_cases_fmod_0_float16",
    "test_bitshift_right_int8_negative_shift/constants",
)


FACTS = {
    "test_relu": ("Relu", ""),
    "test_relu_expanded_ver18": ("Relu", ""),
    "test_training_dropout_default": ("Dropout", "training"),
    "test_bernoulli": ("Bernoulli", "random numbers"),
    "test_ai_onnx_ml_binarizer": ("ml.Binarizer", ""),
    "test_identity_sequence": ("Identity", "sequences, maps and optionals"),
    "test_string_concat": ("StringConcat", "text"),
}
"""Operators of tests, also of those whose function body is written out, and what is left out."""


def test_sample_is_right_or_refused() -> None:
    with child() as worker:
        every = worker.request(("names",), 120.0)
        names = chosen(every, "^test", SAMPLE, SEED)
        results = [judged(worker, name) for name in (*names, *MENDED)]
        facts = worker.request(("about",), 120.0)
        engine = [judged(worker, ENGINE + name).verdict for name in [*FACTS][:3]]
    assert len(every) > 3000
    assert {result.verdict for result in results} <= {RIGHT, REFUSED}, summary(results)
    mended = {result.id: result.verdict for result in results if result.id in MENDED}
    assert mended == dict.fromkeys(MENDED, RIGHT)
    assert {name: tuple(facts[name]) for name in FACTS} == FACTS
    assert engine == [RIGHT, RIGHT, WRONG]


WORKED = """
| tests | count | share |
| --- | --- | --- |
| node tests in the package | 7 |  |
| left out: training | 1 |  |
| not passed by ONNX Runtime | 1 |  |
| **passed by ONNX Runtime** | **5** | 100 % |
| right here, all of it compiled | 1 | 20.0 % |
| right here, with islands that ONNX Runtime computes | 2 | 40.0 % |
| refused | 2 | 40.0 % |
| wrong | 1 | 20.0 % |

Of those that ONNX Runtime does not pass, 1 are right here.

## What is not compiled

| operator | why | right in an island | refused | tests |
| --- | --- | --- | --- | --- |
| `Det` | no translation, and TVM's importer has none | 0 | 2 | `det_2d` `det_nd` |
| `NonZero` | islands: … | 1 | 0 | `nonzero` |
| `Relu` | wrong: output 0 is off | 0 | 1 | `relu_2` |
"""


def test_page_is_what_the_results_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx_node_page
    import onnx_node_tests as command

    refused = (
        "node 'Det_0': operator Det cannot be compiled: 'not supported for frontend ONNX: Det'"
    )
    verdicts = {
        "test_det_2d": (REFUSED, refused, "Det", ""),
        "test_det_nd": (REFUSED, refused, "Det", ""),
        "test_nonzero": (RIGHT, "islands: 'NonZero_0'", "NonZero", ""),
        "test_relu": (RIGHT, "", "Relu", ""),
        "test_relu_2": (WRONG, "output 0 is off", "Relu", ""),
        "test_odd": (RIGHT, "", "Odd", ""),
        "test_trains": (REFUSED, "training mode", "Dropout", "training"),
    }
    results = Results(tmp_path / "results.jsonl")
    for name, (verdict, detail, *_) in verdicts.items():
        results.add(Result(id=name, verdict=verdict, detail=detail, seconds=0.1))
        engine = REFUSED if name == "test_odd" else RIGHT
        results.add(Result(id=ENGINE + name, verdict=engine, detail="", seconds=0.1))
    page = tmp_path / "page.md"
    page.write_text("before\n{}\n\nold\n\n{}\nafter\n".format(*onnx_node_page.MARKS))
    monkeypatch.setattr(onnx_node_page, "PAGE", page)
    monkeypatch.setattr(command, "every_name", lambda: [*verdicts])
    monkeypatch.setattr(command, "every_fact", lambda: {n: v[2:] for n, v in verdicts.items()})
    monkeypatch.setattr("sys.argv", ["x", "--out", str(tmp_path / "results.jsonl"), "--page"])
    assert main() == 1
    text = page.read_text()
    assert WORKED.strip() in text and "old" not in text and text.startswith("before")
    assert "3 right, 3 refused, 1 wrong" in capsys.readouterr().out


@pytest.mark.parametrize("why", ["all of it compiled", "with islands", "refused"])
def test_page_of_the_documentation_has_figures(why: str) -> None:
    from onnx_node_page import PAGE

    assert re.search(rf"\| [^|]*{why}[^|]* \| \d+ \| [\d.]+ % \|", PAGE.read_text())


def model_of_sum() -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, 1, [2]) for name in ("a", "b", "c")]
    node = helper.make_node("Sum", ["a", "b", "c"], ["y"])
    result = helper.make_tensor_value_info("y", 1, [2])
    return helper.make_model(helper.make_graph([node], "sum", values, [result]))


def expecting(*outputs: np.ndarray) -> NodeTest:
    return NodeTest(model=model_of_sum(), inputs=[], outputs=outputs, relative=1e-3, absolute=1e-7)


def test_constants_are_no_inputs() -> None:
    model, arrays = model_of_sum(), [np.full(2, value, np.float32) for value in (1, 2)]
    left = make_constants(model, [*arrays, None])
    assert left[0] is arrays[0] and left[1:] == [None]
    assert [tensor.name for tensor in model.graph.initializer] == ["b"]


def test_every_output_is_compared() -> None:
    wanted = [np.arange(1, 3 + index, dtype=np.float32) for index in range(3)]
    test = expecting(*wanted)
    assert difference(wanted, test) == ""
    assert difference(wanted[:2], test) == "2 outputs instead of 3"
    off = [*wanted[:2], wanted[2] + np.float32(1)]
    assert difference(off, test).startswith("output 2: 4 of 4 elements are off")
    other = [wanted[0].astype(np.float64), *wanted[1:]]
    assert difference(other, test) == "output 0 is float64[2] instead of float32[2]"


def test_bfloat16_may_be_off_by_two_of_its_steps() -> None:
    single = np.linspace(1, 2, 9, dtype=np.float32)
    wanted, slightly, too_far = (
        (single * factor).astype(ml_dtypes.bfloat16) for factor in (1, 1.01, 1.05)
    )
    assert difference([slightly], expecting(wanted)) == ""
    assert difference([too_far], expecting(wanted))


class _Dying:
    """A worker that answers some, raises at others, and never comes back."""

    pid = 1

    def request(self, message: tuple[str, str], _timeout_s: float) -> tuple[str, str]:
        from tilewright.core.processes import ChildTimeout, RemoteError

        if message[1] == "slow":
            raise ChildTimeout("no answer within 120 s")
        raise RemoteError("KeyError", "x", 'Traceback\n  File "a.py", line 3, in b\n')


def test_what_is_raised_and_what_never_answers_are_internal_errors() -> None:
    slow, raised = (judged(_Dying(), name) for name in ("slow", "odd"))  # type: ignore[arg-type]
    assert slow.verdict == INTERNAL and "120 s" in slow.detail
    assert (
        raised.verdict == INTERNAL and "KeyError: x" in raised.detail and "line 3" in raised.detail
    )


def test_results_are_kept_line_by_line_and_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = Result(id="a", verdict=WRONG, detail="off", seconds=0.1)
    Results(path).add(first)
    Results(path).add(Result(id="a", verdict=RIGHT, detail="", seconds=0.1))
    with path.open("a") as file:
        file.write('{"id": "b", "verd')
    assert {name: result.verdict for name, result in Results(path).known.items()} == {"a": RIGHT}
    assert [json.loads(line)["verdict"] for line in path.read_text().splitlines()[:2]] == [
        WRONG,
        RIGHT,
    ]


def test_command_goes_on_where_it_stopped_and_tells_of_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx_node_tests as command

    asked: list[str] = []

    def run(names: list[str], _jobs: int) -> list[Result]:
        asked.extend(names)
        return [Result(id=name, verdict=RIGHT, detail="", seconds=0.0) for name in names]

    monkeypatch.setattr(command, "every_name", lambda: ["test_a", "test_b", "other"])
    monkeypatch.setattr(command, "run", run)
    out = tmp_path / "results.jsonl"
    Results(out).add(Result(id="test_a", verdict=WRONG, detail="off by one", seconds=0.0))
    arguments = ["onnx_node_tests.py", "--only", "^test", "--out", str(out)]
    monkeypatch.setattr("sys.argv", arguments)
    assert main() == 1
    assert asked == ["test_b"]
    assert "wrong: test_a: off by one" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", [*arguments, "--again"])
    assert main() == 0
    assert asked == ["test_b", "test_a"]
    assert capsys.readouterr().out == "2 right, 0 refused, 0 wrong, 0 internal error\n"
