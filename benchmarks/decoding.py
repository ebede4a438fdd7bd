"""Tokens per second of decoders with their cache, beside ONNX Runtime.

    python benchmarks/decoding.py export [--folder F]
    python benchmarks/decoding.py time   [--folder F] [--threads N] [--seconds S]
    python benchmarks/decoding.py tables [--folder F]

`export` needs torch and transformers and writes decoders of seeded random weights. `time` measures
a prompt of 64 tokens, and steps behind caches that are nearly full, of 128 and of 1,024 slots: ours
with default settings, and ONNX Runtime's loop on the exported model, in turn, in this process, a
round of each for every sample. ONNX Runtime gets its inputs and outputs bound, the caches of one
step being the inputs of the next without a copy in between. Both are compared before. One thread
is timed by the processor time of the process, which other work on the machine hardly changes,
several by the clock on the wall. `tables` writes what was measured into the page of the docs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

import tilewright
from kept import Item, once
from pages import replace_between, table

FOLDER = Path(__file__).parent / "results" / "decoding"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks-decoding.md"
MARKS = ("<!-- decoding: begin -->", "<!-- decoding: end -->")
TOKENS, SLOTS, STEPS = 64, (128, 1024), 16
NAMES = ("llama", "gpt2")
_SLEEP_S = 0.02
"""Threads of the other one stop spinning meanwhile."""


def modules() -> dict[str, Callable[[], Any]]:
    """The decoders by name: 4 layers of 512 columns, 8 heads, 8,000 tokens; in one of them 4 heads
    share keys. Their caches are tensors."""
    import transformers
    from torch import nn

    class Cached(nn.Module):
        """A model of transformers whose caches are tensors."""

        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any, positions: Any, *past: Any) -> tuple[Any, ...]:
            """Logits and caches."""
            cache = transformers.DynamicCache()
            for layer in range(len(past) // 2):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            found = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            layers = found.past_key_values.layers
            return found.logits, *(each for one in layers for each in (one.keys, one.values))

    made = {
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=8000, hidden_size=512, intermediate_size=1376, num_hidden_layers=4,
                num_attention_heads=8, num_key_value_heads=2, attn_implementation="eager",
            )
        ),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=8000, n_embd=512, n_layer=4, n_head=8, n_positions=2048,
                attn_implementation="eager",
            )
        ),
    }  # fmt: skip
    return {name: lambda make=make: Cached(make().eval()) for name, make in made.items()}


def exported(folder: Path) -> None:
    """Write the decoders that are not there yet."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    for name, make in modules().items():
        path = folder / f"{name}.onnx"
        if path.exists():
            continue
        torch.manual_seed(0)
        heads = 2 if name == "llama" else 8
        past = [torch.randn(1, heads, 3, 64) for _ in range(8)]
        inputs = (torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 5, dtype=torch.long))
        caches = [f"{layer}.{part}" for layer in range(4) for part in ("key", "value")]
        pasts, presents = (
            [f"{kind}.{c}" for c in caches] for kind in ("past_key_values", "present")
        )
        tokens, total = {0: "batch", 1: "tokens"}, {0: "batch", 1: "total"}
        torch.onnx.export(
            make(),
            (*inputs, torch.arange(3, 5)[None], *past),
            str(path),
            input_names=["input_ids", "attention_mask", "position_ids", *pasts],
            output_names=["logits", *presents],
            dynamic_axes={
                "input_ids": tokens, "attention_mask": total, "position_ids": tokens,
                **{name: {0: "batch", 2: "past"} for name in pasts},
            },
            dynamo=False,
        )  # fmt: skip


class Loop:
    """ONNX Runtime's loop on the exported model; caches stay on its side."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.ort, self.session = ort, ort.InferenceSession(str(path), options)
        self.past = [i for i in self.session.get_inputs() if i.name.startswith("past")]
        self.caches: list[Any] = []
        self.length = 0

    def prefill(self, prompt: np.ndarray) -> np.ndarray:
        """The logits behind a prompt."""
        empty = [np.zeros((1, each.shape[1], 0, each.shape[3]), "float32") for each in self.past]
        self.caches = [self.ort.OrtValue.ortvalue_from_numpy(each) for each in empty]
        self.length = 0
        return self._run(prompt)

    def step(self, token: int) -> np.ndarray:
        """The logits behind one more token."""
        return self._run(np.array([token]))

    def _run(self, tokens: np.ndarray) -> np.ndarray:
        begin, self.length = self.length, self.length + len(tokens)
        binding = self.session.io_binding()
        feed = {
            "input_ids": tokens[None],
            "attention_mask": np.ones((1, self.length), np.int64),
            "position_ids": np.arange(begin, self.length)[None],
        }
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        for each, cache in zip(self.past, self.caches, strict=True):
            binding.bind_ortvalue_input(each.name, cache)
        for each in self.session.get_outputs():
            binding.bind_output(each.name)
        self.session.run_with_iobinding(binding)
        logits, *self.caches = binding.get_outputs()
        return logits.numpy()[0, -1]


def timed(path: Path, threads: int, seconds: float) -> Item:
    """Medians of samples in turn: a prompt, and a step behind a cache of each size."""
    rng = np.random.default_rng(0)
    prompt, item = rng.integers(0, 8000, TOKENS), Item(network=path.stem, threads=threads)
    loop, clock = Loop(path, threads), process_time if threads == 1 else perf_counter
    for slots in SLOTS:
        ours = tilewright.decoder(path, tokens=TOKENS, cache=(slots,), threads=threads)
        pair = (ours, loop)
        logits = [each.prefill(prompt) for each in pair]
        for token in rng.integers(0, 8000, slots - TOKENS - STEPS - 1):
            logits = [each.step(int(token)) for each in pair]
        off = float(np.abs(logits[0] - logits[1]).max() / np.abs(logits[1]).max())
        caches, kept = ours.cache(), loop.caches
        item |= {f"step {slots}": {}, f"off {slots}": off}

        def ours_steps(ours: Any = ours, caches: Any = caches) -> float:
            ours.restore(caches)
            return _each(ours.step, clock)

        def their_steps(kept: Any = kept, length: int = loop.length) -> float:
            loop.caches, loop.length = kept, length
            return _each(loop.step, clock)

        item[f"step {slots}"] = _in_turn(ours_steps, their_steps, seconds)
    prompts = [lambda one=one: _lasts(lambda: one.prefill(prompt), clock) for one in (ours, loop)]
    return item | {"prefill": _in_turn(*prompts, seconds), "load": os.getloadavg()[0]}


def _lasts(work: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    work()
    return clock() - began


def _each(step: Callable[[int], object], clock: Callable[[], float]) -> float:
    """Seconds of a step, of several in a row."""
    step(1)
    return _lasts(lambda: [step(token) for token in range(STEPS)], clock) / STEPS


def _in_turn(ours: Callable[[], float], theirs: Callable[[], float], seconds: float) -> Item:
    samples: list[tuple[float, ...]] = []
    end = perf_counter() + seconds
    while perf_counter() < end or len(samples) < 5:
        pair: list[float] = []
        for each in (ours, theirs):
            sleep(_SLEEP_S)
            pair.append(each())
        samples.append(tuple(pair))
    mine, other = (median(column) for column in zip(*samples, strict=True))
    ratios = sorted(b / a for a, b in samples)
    quarter = len(ratios) // 4
    spread = [ratios[quarter], ratios[-1 - quarter]]
    return Item(ours_s=mine, theirs_s=other, ratio=median(ratios), middle_half=spread)


def tables(folder: Path) -> None:
    """Write the page's table."""
    rows: list[list[str]] = []
    for name in NAMES:
        item = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for what, count in (("prefill", TOKENS), *((f"step {slots}", 1) for slots in SLOTS)):
            found = item[what]
            low, high = found["middle_half"]
            rates = (f"{count / found[side]:,.0f}" for side in ("ours_s", "theirs_s"))
            rows.append([name, what, *rates, f"{found['ratio']:.2f} ({low:.2f} to {high:.2f})"])
    header = ["network", "what", "ours, tokens/s", "ONNX Runtime, tokens/s", "speed-up"]
    replace_between(PAGE, MARKS, table(header, rows))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("export", "time", "tables"))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--only", choices=NAMES, nargs="*", default=NAMES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    if asked.what == "export":
        exported(asked.folder)
    elif asked.what == "tables":
        tables(asked.folder)
    else:
        for name in asked.only:
            path = asked.folder / f"{name}.onnx"
            result = path.with_suffix(".json")
            print(json.dumps(once(result, lambda p=path: timed(p, asked.threads, asked.seconds))))


if __name__ == "__main__":
    main()
