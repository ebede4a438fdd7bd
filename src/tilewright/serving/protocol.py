"""The open inference protocol (version 2, as KServe and Triton have it): its messages, and arrays
in them as JSON or, behind the JSON, as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from tilewright.core.element_types import element_type, element_types
from tilewright.core.errors import UsageError
from tilewright.graph.network import Array
from tilewright.serving.served import ServedNetwork

_NAMES = {
    each.name: each.name.upper().replace("FLOAT", "FP").replace("BFP", "BF")
    for each in element_types()
}
"""The protocol's names of element types."""
_MICRO = 1e-6


class TensorMessage(msgspec.Struct, kw_only=True):
    """A tensor of a request: its values in `data`, nested or flat, or as many bytes behind the JSON
    as the parameter `binary_data_size` says."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: dict[str, Any] = {}


class WantedOutput(msgspec.Struct, kw_only=True):
    """An output that is wanted; with the parameter `binary_data` as bytes."""

    name: str
    parameters: dict[str, Any] = {}


class InferenceMessage(msgspec.Struct, kw_only=True):
    """A request. Of the parameters `timeout` is the deadline in microseconds, `binary_data_output`
    asks for all outputs as bytes."""

    inputs: list[TensorMessage]
    id: str = ""
    outputs: list[WantedOutput] = []
    parameters: dict[str, Any] = {}

    @property
    def deadline_s(self) -> float | None:
        """Seconds until the answer is due. Raises UsageError for what is no number."""
        timeout = self.parameters.get("timeout")
        if timeout is not None and not isinstance(timeout, (int, float)):
            raise UsageError(f"the parameter timeout is {timeout!r}, not microseconds")
        return None if timeout is None else timeout * _MICRO


def read_message(body: bytes, json_bytes: int | None) -> tuple[InferenceMessage, dict[str, Array]]:
    """A request and its inputs by name; `json_bytes` is the length of the JSON where bytes follow.

    Raises UsageError for everything that is not such a message.
    """
    at = len(body) if json_bytes is None else json_bytes
    try:
        message = msgspec.json.decode(body[:at], type=InferenceMessage)
    except msgspec.MsgspecError as error:
        raise UsageError(f"this is no inference request: {error}") from error
    arrays: dict[str, Array] = {}
    for tensor in message.inputs:
        size = tensor.parameters.get("binary_data_size")
        values = body[at : at + size] if isinstance(size, int) else tensor.data
        at += size if isinstance(size, int) else 0
        arrays[tensor.name] = _array(tensor, values)
    return message, arrays


def _array(tensor: TensorMessage, values: bytes | list[Any] | None) -> Array:
    known = {name: dtype for dtype, name in _NAMES.items()}
    if tensor.datatype not in known:
        raise UsageError(
            f"input {tensor.name!r} has the datatype {tensor.datatype!r}",
            hint="Known: " + ", ".join(sorted(known)),
        )
    dtype = element_type(known[tensor.datatype]).numpy
    try:
        found = (
            np.frombuffer(values, dtype) if isinstance(values, bytes) else _listed(values, dtype)
        )
        return found.reshape(tensor.shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(
            f"input {tensor.name!r} is no {tensor.datatype}{tensor.shape}: {error}"
        ) from error


def _listed(values: list[Any] | None, dtype: np.dtype[Any]) -> Array:
    """Numbers from JSON; none that the type would change into another kind."""
    if values is None:
        raise ValueError("it has neither data nor binary_data_size")
    found = np.asarray(values)
    if found.size and not np.can_cast(found.dtype, dtype, "same_kind"):
        safe = np.issubdtype(found.dtype, np.integer) and dtype.kind != "b"
        if not safe or not np.array_equal(found.astype(dtype), found):
            raise ValueError(f"its data are {found.dtype}")
    return found.astype(dtype)


def write_answer(
    network: ServedNetwork, message: InferenceMessage, outputs: Mapping[str, Array]
) -> tuple[bytes, list[bytes]]:
    """The JSON of an answer, and the bytes that follow it. Raises UsageError for an output that the
    network does not have."""
    everything = bool(message.parameters.get("binary_data_output"))
    wanted = {each.name: bool(each.parameters.get("binary_data", everything))
              for each in message.outputs} or dict.fromkeys(outputs, everything)  # fmt: skip
    unknown = [name for name in wanted if name not in outputs]
    if unknown:
        raise UsageError(f"no output is called {unknown[0]!r}", hint="Known: " + ", ".join(outputs))
    tensors, parts = list[dict[str, Any]](), list[bytes]()
    for name, binary in wanted.items():
        array = outputs[name]
        tensor: dict[str, Any] = {
            "name": name,
            "shape": list(array.shape),
            "datatype": _NAMES[str(array.dtype)],
        }
        if binary:
            parts.append(array.tobytes())
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            tensor["data"] = array.reshape(-1).tolist()
        tensors.append(tensor)
    answer = {"model_name": network.name, "id": message.id, "outputs": tensors}
    return msgspec.json.encode(answer), parts


def described(network: ServedNetwork) -> dict[str, Any]:
    """A network's metadata; of one whose requests are put together also how many at a time."""
    sizes = network.batches.sizes
    more = {"parameters": {"batches": sizes}} if sizes[1:] else {}
    return {
        "name": network.name,
        "platform": "tilewright",
        "inputs": _ports(network.inputs),
        "outputs": _ports(network.outputs),
        **more,
    }


def _ports(ports: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"name": port.name, "datatype": _NAMES[port.dtype], "shape": list(port.shape)}
        for port in ports
    ]
