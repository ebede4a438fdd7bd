"""Attention and recurrent layers as ONNX nodes."""

from __future__ import annotations

import numpy as np

from tilewright.graph.operators.attention import heads_of
from tilewright.graph.operators.recurrent import GATES, PARAMETERS, activations_of, state_names
from tilewright.kernels.onnx_nodes import Step, require

_MASKS_WHOLLY = -1e30
"""Added to a score it leaves nothing of it in single precision."""


def attention(step: Step, q: str, k: str, v: str, *masks: str) -> str:
    """ONNX Runtime's own operator, which takes rows with heads side by side as ours does."""
    found, named = heads_of(step.types, **step.named), step.named
    require(found.heads == found.key_heads, "attention whose heads share keys")
    require(not named["causal"] or found.queries == found.keys, "causal attention with a past")
    bias = ""
    for mask, kind in zip(masks, step.types[3:], strict=True):
        if kind.dtype == "bool":
            require(float(named["fill"]) < _MASKS_WHOLLY, "a mask that replaces scores by a bit")
            values = (step.task.constant(float(v), "float32") for v in (0.0, named["fill"]))
            mask = step.task.emit("Where", mask, *values)
        shape = (1,) * (4 - len(kind.shape)) + kind.shape
        bias = step.task.emit(
            "Expand", mask, step.task.constant((*shape[:2], found.queries, found.keys))
        )
    return step.task.emit(
        "com.microsoft.MultiHeadAttention",
        *(q, k, v, "", "", bias),
        num_heads=found.heads,
        scale=float(named["scale"]),
        unidirectional=int(named["causal"]),
    )


_LAYERS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
_ACTIVATIONS = {
    "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "affine": "Affine",
    "leaky_relu": "LeakyRelu", "thresholded_relu": "ThresholdedRelu", "elu": "Elu",
    "scaled_tanh": "ScaledTanh", "hard_sigmoid": "HardSigmoid", "softsign": "Softsign",
    "softplus": "Softplus",
}  # fmt: skip


def recurrent(step: Step, gates: str, weights: str, *others: str) -> str:
    """A layer whose inputs are the gates: its input weights are a unit matrix."""
    task, named, cell = step.task, step.named, str(step.named["cell"])
    given = dict(zip(named["operands"].split(), others, strict=True))
    hidden, columns = step.types[1].shape
    steps, batch, _ = step.types[0].shape
    functions = activations_of(named["activations"])
    require(all(each.name in _ACTIVATIONS for each in functions), "one of its activations")
    unit = task.constant(np.eye(columns)[None], "float32")
    own = task.reshaped(task.emit("Transpose", weights, perm=(1, 0)), (1, columns, hidden))
    bias = ""
    if "bias" in given:  # of the products with the state, in the last of three gates
        zeros = task.constant(np.zeros((1, 2 * columns - hidden)), "float32")
        bias = task.emit("Concat", zeros, task.reshaped(given["bias"], (1, hidden)), axis=1)
    first = [
        task.reshaped(given[name], (1, batch, hidden)) if name in given else ""
        for name in ("state", "memory")
    ]
    layer, outputs = _LAYERS[cell.split("_")[0]], len(state_names(cell)) + 1
    operands = [gates, unit, own, bias, given.get("lengths", ""), *first[: outputs - 1]]
    if "peepholes" in given:
        operands.append(task.reshaped(given["peepholes"], (1, columns * 3 // GATES[cell])))
    variant = {"lstm_coupled": "input_forget", "gru_reset_after": "linear_before_reset"}.get(cell)
    numbers = {
        f"activation_{name}": [each.named[name] for each in functions if name in each.named]
        for name in PARAMETERS
    }
    rows, *last = task.emit_many(
        layer,
        outputs,
        *operands,
        hidden_size=hidden,
        direction="reverse" if named["reverse"] else "forward",
        activations=[_ACTIVATIONS[each.name] for each in functions],
        **{name: values for name, values in numbers.items() if values},
        **({variant: 1} if variant else {}),
        **({"clip": float(named["clip"])} if named["clip"] else {}),
    )
    rows = task.reshaped(rows, (steps, batch, hidden))
    return task.emit("Concat", rows, *last[: named["finals"]], axis=0) if named["finals"] else rows
