"""Attention on codes of eight bits: in one kernel, in kernels of their own, and in other types.

    python benchmarks/attention_on_codes.py [--threads N] [--tried N] [--tokens N] [--heads N]

The codes are those of a QDQ layer as ONNX Runtime's quantizer writes it, with three roundings
between both products. Of each task the settings with the least estimates are timed, and the fastest
counts; with `--tried 1` the default ones. Prints microseconds of each kernel.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import onnx

from tilewright.core.forms import PLAIN, stored_in
from tilewright.core.records import Candidate, Measurement, Placement, Protocol
from tilewright.graph.tasks import fused_network
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.spaces import ranked_defaults, spaces
from tilewright.measure.base import Measurer
from tilewright.measure.targeting import open_measurer
from tilewright.models.loading import load_model
from tilewright.testing.implementations import single

CODES = {
    "q": (0.03, 122),
    "k": (0.03, 118),
    "v": (0.03, 121),
    "s": (0.11, 133),
    "t": (0.01375, 133),
}
CODES |= {"p": (1 / 255, 0), "h": (0.01, 108)}
"""Scales and zero points."""


def layer(heads: int, tokens: int, width: int) -> onnx.ModelProto:
    """Attention between codes, in the QDQ form."""
    kinds = ", ".join(f"uint8[1, {tokens}, {heads * width}] {name}_in" for name in "qkv")
    given = ", ".join(
        f"float {n}_scale = {{{scale!r}}}, uint8 {n}_zero = {{{zero}}}"
        for n, (scale, zero) in CODES.items()
    )
    lines = list[str]()
    for name, turned in (("q", "0, 2, 1, 3"), ("k", "0, 2, 3, 1"), ("v", "0, 2, 1, 3")):
        lines += [
            f"{name}_r = Reshape({name}_in, apart)",
            f"{name}_code = Transpose <perm = [{turned}]> ({name}_r)",
        ]

    def dequantized(name: str) -> str:
        return f"{name}_float = DequantizeLinear({name}_code, {name}_scale, {name}_zero)"

    def quantized(name: str) -> list[str]:
        return [
            f"{name}_code = QuantizeLinear({name}, {name}_scale, {name}_zero)",
            dequantized(name),
        ]

    lines += [*map(dequantized, "qkv")]
    lines += ["s = MatMul(q_float, k_float)", *quantized("s")]
    lines += ["t = Mul(s_float, eighth)", *quantized("t")]
    lines += ["p = Softmax <axis = -1> (t_float)", *quantized("p")]
    lines += ["h = MatMul(p_float, v_float)", *quantized("h")[:1]]
    lines += ["h_t = Transpose <perm = [0, 2, 1, 3]> (h_code)", "y = Reshape(h_t, together)"]
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
layer ({kinds}) => (uint8[1, {tokens}, {heads * width}] y)
<{given}, float eighth = {{0.125}}, int64[4] apart = {{1, {tokens}, {heads}, {width}}},
 int64[3] together = {{1, {tokens}, {heads * width}}}> {{
  {chr(10).join(lines)}
}}"""
    return onnx.parser.parse_model(text)


def tried(task: Workload, on: Placement, dtype: str | None, count: int) -> list[Candidate]:
    """The default setting, or the settings with the least estimates of the default kernel."""
    forms = tuple(stored_in(PLAIN, dtype) for _ in range(len(task.arguments) + 1))
    best, _ = ranked_defaults(task, forms, on)[0]
    found = [best]
    for space in spaces(task, forms, on) if count > 1 else ():
        if space.part.candidate(int(space.numbers[0])).implementation == best.implementation:
            order = space.estimates_s.argsort(kind="stable")[:count]
            found += [space.part.candidate(int(space.numbers[row])) for row in order]
    return found


def timed(
    measurer: Measurer, name: str, task: Workload, on: Placement, dtype: str | None, count: int
) -> float:
    """Microseconds of a task, printed."""
    outcomes = measurer.measure(task, tried(task, on, dtype, count), Protocol())
    good = [each for each in outcomes if isinstance(each, Measurement)]
    best = min(good, key=lambda each: each.latency_s)
    how = best.candidate
    print(f"    {1e6 * best.latency_s:7.1f} {name} {how.implementation} {dict(how.settings)}")
    return 1e6 * best.latency_s


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser()
    for name, usual in (("threads", 1), ("tried", 1), ("tokens", 128), ("heads", 12)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--width", type=int, default=64)
    asked = parser.parse_args()
    on = local_placement(asked.threads)
    graph = load_model(layer(asked.heads, asked.tokens, asked.width), "layer").graph
    shape = (1, asked.tokens, asked.heads * asked.width)
    named = {"heads": asked.heads, "key_heads": asked.heads, "scale": 0.125, "causal": False}
    of_singles = single("attention", shape, shape, shape, fill="-inf", **named)
    with open_measurer(on, 0) as measurer:
        for whole in (True, False):
            calls = fused_network(graph, attention_on_codes=whole).calls
            total = sum(
                timed(measurer, call.name, call.workload, on, None, asked.tried) for call in calls
            )
            print(f"{total:7.1f} µs on codes, in {len(calls)} kernels", flush=True)
        for precision, dtype in (("bfloat16", "bfloat16"), ("float32", None)):
            there = replace(on, precision=precision)
            with open_measurer(there, 0) as other:
                total = timed(other, "attention", of_singles, there, dtype, asked.tried)
            print(f"{total:7.1f} µs in {precision}", flush=True)


if __name__ == "__main__":
    main()
