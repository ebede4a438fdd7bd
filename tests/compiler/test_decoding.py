"""Compiled decoders against ONNX Runtime's own loop with a growing cache."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from helpers.networks.decoders import VOCABULARY, WIDTH, GrowingLoop, decoder_model
from tilewright import Decoder, InputError, ModelError, UsageError

PROMPT = [3, 1, 4, 1, 5]
SLOTS = (16, 48)
COUNT = 44


def model(kind: str) -> onnx.ModelProto:
    return decoder_model(kind, layers=2 if kind == "llama" else 1)


@cache
def made(kind: str) -> Decoder:
    return tilewright.decoder(model(kind), tokens=8, cache=SLOTS, threads=2)


def tensors(decoder: Decoder) -> dict[str, Any]:
    return decoder._memory.tensors


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_tokens_and_logits_are_those_of_a_growing_cache(kind: str) -> None:
    decoder, loop = made(kind), GrowingLoop(model(kind))
    theirs, token = [loop(PROMPT)], 0
    ours = [decoder.prefill(PROMPT)]
    for _ in range(COUNT - 1):
        token = int(theirs[-1].argmax())
        theirs.append(loop([token]))
        ours.append(decoder.step(token))
    assert (decoder.length, decoder.capacity) == (len(PROMPT) + COUNT - 1, SLOTS[-1])
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    greedy = [int(logits.argmax()) for logits in theirs]
    assert decoder.generate(PROMPT, COUNT) == greedy
    assert decoder.generate(np.array(PROMPT), 3, lambda logits: int(logits.argmin())) != greedy[:3]


def test_a_step_leaves_its_caches_where_they_are() -> None:
    decoder = made("llama")
    decoder.prefill(PROMPT)
    places = {name: tensor.data_ptr() for name, tensor in tensors(decoder).items()}
    before = decoder.cache()
    whole = {n: np.from_dlpack(t).copy() for n, t in tensors(decoder).items() if "past" in n}
    decoder.step(7)
    assert {name: tensor.data_ptr() for name, tensor in tensors(decoder).items()} == places
    for name, rows in decoder.cache().items():
        np.testing.assert_array_equal(rows[:, :, :-1], before[name])
        assert rows[:, :, -1].any()
        now = np.from_dlpack(tensors(decoder)[name])
        changed = (now != whole[name]).any(axis=(0, 1, 3))
        assert changed.nonzero()[0].tolist() == [len(PROMPT)]


def test_weights_are_in_memory_once() -> None:
    decoder = made("llama")
    networks = [stage.network for stage in (decoder._prompts, *decoder._steps)]
    places = [{id(weight) for weight in network._weights} for network in networks]
    assert len(places[1] & places[2]) > 0.9 * len(places[1])
    everything = {id(w): w for w in chain.from_iterable(n._weights for n in networks)}
    contents = {(w.numpy().tobytes(), w.shape, str(w.dtype)) for w in everything.values()}
    assert len(contents) == len(everything)


def test_a_text_goes_on_from_caches_that_were_kept() -> None:
    decoder = made("llama")
    decoder.prefill(PROMPT)
    kept = decoder.cache()
    wanted = decoder.step(9)
    decoder.reset()
    assert decoder.length == 0 and not any(rows.size for rows in decoder.cache().values())
    decoder.restore(kept)
    np.testing.assert_array_equal(decoder.step(9), wanted)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda d: d.prefill([1] * 9), UsageError, "9 tokens, the decoder was made for up to 8"),
        (lambda d: d.prefill([]), UsageError, "tokens are whole numbers"),
        (lambda d: d.prefill([[1, 2]]), UsageError, "not int64"),
        (lambda d: d.prefill([0.5]), UsageError, "not float64"),
        (lambda d: d.prefill([VOCABULARY]), InputError, "token 500 .* 0 to 499"),
        (lambda d: d.prefill([-1]), InputError, "token -1"),
        (lambda d: d.step(VOCABULARY), InputError, "token 500"),
        (lambda d: d.generate([1], SLOTS[-1] + 1), UsageError, "do not fit the cache"),
        (lambda d: d.generate([1], 0), UsageError, "count"),
        (lambda d: d.restore({}), UsageError, "given are none"),
        (lambda d: d.restore(altered(d, lambda a: a[:, :, :2])), UsageError, "the same for all"),
        (lambda d: d.restore(altered(d, lambda a: a.astype("f8"))), UsageError, "is float64"),
        (lambda d: d.restore(altered(d, lambda a: a[0])), UsageError, "it must be float32"),
        (
            lambda d: d.restore({n: np.zeros((1, 2, 49, 8), "f4") for n in d.cache()}),
            UsageError,
            "up to 48",
        ),
    ],
)
def test_bad_input_is_refused_in_words(
    call: Callable[[Decoder], object], error: type[Exception], said: str
) -> None:
    decoder = made("llama")
    decoder.prefill(PROMPT)
    with pytest.raises(error, match=said):
        call(decoder)
    assert decoder.length == len(PROMPT)


def altered(decoder: Decoder, change: Callable[[Any], Any]) -> dict[str, Any]:
    caches = decoder.cache()
    last = [*caches][-1]
    return {**caches, last: change(caches[last])}


def test_a_full_cache_takes_no_more() -> None:
    decoder = made("gpt2")
    decoder.generate([1], SLOTS[-1])
    with pytest.raises(UsageError, match="the cache is full: it has room for 48 tokens"):
        decoder.step(1)


def test_positions_that_the_length_of_the_cache_tells_are_refused() -> None:
    counting = decoder_model("gpt2", layers=1, positions="")
    with pytest.raises(ModelError, match=r"16 slots that is not full[\s\S]*position_ids"):
        tilewright.decoder(counting, tokens=4, cache=16, threads=1)


def test_embeddings_may_take_the_place_of_tokens() -> None:
    embedded = decoder_model("gpt2", layers=1, tokens="inputs_embeds")
    decoder = tilewright.decoder(embedded, tokens=4, cache=8, threads=1)
    rows = np.random.default_rng(0).standard_normal((4, WIDTH), np.float32)
    read = decoder.prefill(rows)
    decoder.prefill(rows[:3])
    np.testing.assert_allclose(decoder.step(rows[3]), read, atol=1e-5)
    for wrong in (3, rows[0, :5]):
        with pytest.raises(UsageError, match="rows of 32 floating-point numbers"):
            decoder.step(wrong)
    with pytest.raises(UsageError, match="takes embeddings"):
        decoder.generate(rows, 2)


def test_the_examples_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "concepts" / "decoder.md"
    onnx.save(decoder_model(layers=1), tmp_path / "gpt.onnx")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(code, names)
    greedy, *others = map(json.loads, capsys.readouterr().out.splitlines())
    assert (len(greedy), [len(each) for each in others]) == (100, [10, 10])
    assert names["decoder"].length == 13


def test_what_is_no_decoder_is_refused() -> None:
    with pytest.raises(UsageError, match="no ONNX file"):
        tilewright.decoder("zoo:mlp")
    with pytest.raises(UsageError, match="cache"):
        tilewright.decoder(decoder_model(layers=1), cache=1)
    with pytest.raises(UsageError, match="cache has no sizes"):
        tilewright.decoder(decoder_model(layers=1), cache=())
