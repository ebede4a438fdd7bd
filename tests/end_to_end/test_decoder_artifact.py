"""A decoder as an artifact: networks for prompts and tokens in one folder, weights once."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.commands.command_line import answer, call
from helpers.networks.decoders import GrowingLoop, decoder_model

PROMPT, COUNT = [3, 1, 4, 1, 5], 16


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("decoder")
    onnx.save(decoder_model("llama", layers=1), place / "llama.onnx")
    words = ("--cache", "8,24", "--tokens", 6, "--budget", "0", "--out", place / "out")
    told = answer(place, "optimize", place / "llama.onnx", *words)
    assert [row["sizes"] for row in told["shapes"]] == [{"tokens": 6}, {"cache": 8}, {"cache": 24}]
    assert all(row["max_rel_error"] < 1e-4 for row in told["shapes"])
    assert told["size_bytes"] < sum(row["alone_bytes"] for row in told["shapes"])
    return place


def test_tokens_are_those_of_a_growing_cache(made: Path) -> None:
    decoder = tilewright.load(made / "out", threads=1)
    assert isinstance(decoder, tilewright.Decoder)
    assert (decoder.tokens, decoder.capacity, decoder.threads) == (6, 24, 1)
    loop = GrowingLoop(decoder_model("llama", layers=1))
    logits, ours = loop(PROMPT), [decoder.prefill(PROMPT)]
    theirs = [logits]
    for _ in range(COUNT - 1):
        token = int(theirs[-1].argmax())
        theirs.append(loop([token]))
        ours.append(decoder.step(token))
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert decoder.generate(PROMPT, COUNT) == [int(logits.argmax()) for logits in theirs]
    with pytest.raises(tilewright.InputError, match="token 500 is none"):
        decoder.step(500)


def test_it_is_shown_and_not_run(made: Path, tmp_path: Path) -> None:
    assert "cache 24" in call(tmp_path, "show", made / "out").out
    np.save(tmp_path / "x.npy", np.zeros((1, 6), np.int64))
    words = [f"--input=input_ids={tmp_path / 'x.npy'}"]
    done = call(tmp_path, "run", made / "out", *words)
    assert done.code == 2 and "is a decoder, which is not run once" in done.err


@pytest.mark.parametrize(
    ("kind", "words", "code", "said"),
    [
        ("llama", ("--cache", "8", "--batch", "2"), 2, "--cache makes a decoder"),
        ("llama", ("--tokens", "4"), 2, "--tokens is for a decoder"),
        ("llama", ("--cache", "8,x"), 2, "--cache '8,x'"),
        ("none", ("--cache", "8"), 4, "no decoder with a cache"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, kind: str, words: tuple[str, ...], code: int, said: str
) -> None:
    if kind == "none":
        text = """<ir_version: 8, opset_import: ["" : 17]>
        none (float[1] x) => (float[1] y) { y = Relu(x) }"""
        onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    else:
        onnx.save(decoder_model(kind, layers=1), tmp_path / "m.onnx")
    done = call(tmp_path, "optimize", tmp_path / "m.onnx", *words, "--out", tmp_path / "out")
    assert done.code == code and said in done.err and not (tmp_path / "out").exists()


def test_a_decoder_that_counts_positions_by_its_cache_does_not_ship(tmp_path: Path) -> None:
    onnx.save(decoder_model("gpt2", layers=1, positions=""), tmp_path / "gpt2.onnx")
    words = ("--cache", "8", "--tokens", "4", "--budget", "0", "--out", tmp_path / "out")
    done = call(tmp_path, "optimize", tmp_path / "gpt2.onnx", *words)
    assert done.code == 4 and "export it with position_ids" in done.err
    with pytest.raises(tilewright.ModelError, match="is no compiled network"):
        tilewright.load(tmp_path / "out")


def test_a_damaged_folder(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    shutil.rmtree(tmp_path / "out/cache24")
    with pytest.raises(tilewright.ModelError, match="no compiled network"):
        tilewright.load(tmp_path / "out")
