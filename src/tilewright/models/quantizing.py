"""A network in single precision on codes of eight bits, which are calibrated on inputs.

    Conv → Relu → Conv → Add      before
    DequantizeLinear → Conv → QuantizeLinear → DequantizeLinear → Conv → …      after

ONNX Runtime's static quantization writes that form, or NNCF's (`models.clean`), in which only
what products and sums read is on codes. Which nodes are on codes is decided here:
products with constant weights; what moves, picks or averages their operands and results; sums and
concatenations of those alone. Everything else stays in single precision between them, where a
kernel reads codes and writes codes all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import onnx

from tilewright.core.arguments import kept_names
from tilewright.core.errors import ModelError, TargetError, UsageError, close_matches, quoted
from tilewright.core.grouping import grouped
from tilewright.core.noise import Powers, RoundingNoise
from tilewright.core.scratch import scratch_folder
from tilewright.graph.network import Array
from tilewright.models import contained
from tilewright.models.calibration import noise_inputs
from tilewright.models.loaded import Calibrator, LoadedModel, ModelOptions, OnnxReference
from tilewright.models.onnx_file import parse_onnx
from tilewright.models.onnx_model import weights_bytes

QUANTIZED = "quantized.onnx"
"""The name of the file."""
CALIBRATED_ON = (8, 64)
"""So many inputs are drawn, and so many of a file are taken at most, to calibrate on."""
NOISE_ON = 2
"""On so many of them noise is measured."""
_PRODUCTS = {"Conv": 4, "ConvTranspose": 4, "Gemm": 2, "MatMul": 2}
"""The axes of their weights."""
_PICKING = ("MaxPool", "Relu", "Clip", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose")
"""What they read and what they write has the same codes."""
_MOVING = (*_PICKING, "AveragePool", "GlobalAveragePool")
_JOINING = ("Add", "Concat")
_ON_CODES = ("QuantizeLinear", "DequantizeLinear", "Integer", "QLinear", "QGemm")
_DRAWN = (
    "Codes are calibrated on inputs that are drawn; --calibration FILE.npz gives the network's own."
)


class Quantizer:
    """A network in single precision, and its forms on codes. `nodes` may be on codes; `inputs` are
    those that codes are calibrated on, and those that results are judged on; `remark` is what there
    is to say of them.

    Raises UsageError for unknown names and inputs that are not the network's, ModelError for a
    network that is on codes already, or has nothing that could be on them, and as
    `require_calibrator`.
    """

    def __init__(self, model: LoadedModel, options: ModelOptions) -> None:
        require_calibrator(options)
        self.model = model
        self._calibrator: Calibrator = options.calibrator
        self.inputs = noise_inputs(model.graph, options.calibration, options.seed, CALIBRATED_ON)
        self.remark = "" if self.inputs.given else _DRAWN
        self._folder = scratch_folder()
        self._folded, original = self._folder.path / "folded.onnx", parse_onnx(model.onnx_path)
        self._size_bytes = weights_bytes(original)
        light = contained.fold(model.onnx_path, self._folded, self._size_bytes)
        if light is None:
            raise ModelError(f"{model.name!r} cannot be quantized: ONNX Runtime does not run it")
        self.graph = light.graph
        _name_nodes(self.graph)
        _refuse_codes(self.graph, model.name)
        self.kept = _kept(self.graph, original.graph, options)
        if not self.on_codes():
            raise ModelError(
                f"nothing of {model.name!r} can be put on codes of eight bits: it has no Conv or "
                "ConvTranspose of images, Gemm or MatMul with constant weights in float32 that is "
                "not kept",
                hint="Leave out --precision, or some of --keep.",
            )
        self.nodes, self.same = coded_nodes(self.graph, self.kept)
        self._folded.write_bytes(light.SerializeToString())

    def on_codes(self, kept: Collection[str] = ()) -> list[str]:
        """The names of the nodes that are on codes where more are kept."""
        return nodes_on_codes(self.graph, {*self.kept, *kept})

    def quantized(self, kept: Collection[str] = ()) -> OnnxReference:
        """An ONNX file of the network on codes, but for more nodes that are kept, by name. Raises
        ModelError where the calibrator does not quantize it."""
        folder = scratch_folder()
        path, nodes = folder.path / QUANTIZED, self.on_codes(kept)
        contained.quantize(
            self._folded, path, self.inputs.fitted, nodes, self._size_bytes, self._calibrator
        )
        return OnnxReference(path=path, keeper=folder)

    def noise(self, quantized: OnnxReference, count: int = NOISE_ON) -> RoundingNoise:
        """What each tensor and each node's constants on codes change in the outputs, on so many of
        the inputs that were calibrated on; tensors have the names that `nodes` have for them."""
        fitted = self.inputs.fitted[:count]
        found = contained.code_noise(self._folded, quantized.path, fitted, self._size_bytes)
        tensors: dict[str, Powers] = {}
        for name, powers in found.tensors.items():
            tensors.setdefault(self.same.get(name, name), powers)
        return replace(found, tensors=tensors)

    @property
    def writers(self) -> dict[str, str]:
        """The name of the node that writes each tensor."""
        return {tensor: node.name for node in self.graph.node for tensor in node.output}

    def judged(self, path: Path) -> list[list[Array]]:
        """The outputs of an ONNX file of the network for inputs that were not calibrated on."""
        return contained.outputs_of(path, self.inputs.judged, self._size_bytes)


def require_calibrator(options: ModelOptions) -> None:
    """Raise TargetError, with the command that helps, where the calibrator is not installed."""
    if options.calibrator == "nncf" and find_spec("nncf") is None:
        raise TargetError(
            "the calibrator nncf needs the package nncf, not installed here",
            hint="pip install 'tilewright[nncf]', or leave out --calibrator.",
        )


def numbers_of(quantized: OnnxReference) -> dict[str, str]:
    """The tensors of an ONNX file on codes that hold what codes stand for, each with the tensor
    that was put on codes."""
    graph = parse_onnx(quantized.path).graph
    coded = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "QuantizeLinear"}
    return {
        node.output[0]: coded[node.input[0]]
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in coded
    }


def nodes_on_codes(graph: onnx.GraphProto, kept: Collection[str] = ()) -> list[str]:
    """The names of the nodes of a folded graph that are put on codes, in their order."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    products = {n.name for n in graph.node if n.name not in kept and _is_product(n, weights)}
    coded = {
        tensor
        for node in graph.node
        if node.name in products
        for tensor in (node.input[0], node.output[0])
    }
    found: list[str] = []
    for node in graph.node:
        data = node.input[:1] if node.op_type in _MOVING else node.input
        follows = node.op_type in (*_MOVING, *_JOINING) and node.name not in kept
        if node.name in products or (follows and all(name in coded for name in data)):
            coded.update(node.output[:1])
            found.append(node.name)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedNode:
    """A node that may be on codes, or stay in single precision: the tensors that it reads, less
    constants, and the one that it writes. Tensors with the same codes have one name."""

    name: str
    product: bool
    inputs: tuple[str, ...]
    output: str


def coded_nodes(
    graph: onnx.GraphProto, kept: Collection[str]
) -> tuple[list[CodedNode], dict[str, str]]:
    """The nodes of a folded graph that are put on codes, in their order, less those that only pick
    or move codes; and the names that go for those of other tensors with the same codes."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    on_codes = {*nodes_on_codes(graph, kept)}
    same: dict[str, str] = {}
    found: list[CodedNode] = []
    for node in (node for node in graph.node if node.name in on_codes):
        inputs = tuple(same.get(each, each) for each in node.input if each not in weights)
        if node.op_type in _PICKING:
            same[node.output[0]] = inputs[0]
            continue
        found.append(
            CodedNode(
                name=node.name,
                product=node.op_type in _PRODUCTS,
                inputs=inputs,
                output=node.output[0],
            )
        )
    return found, same


def _is_product(node: onnx.NodeProto, weights: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a node multiplies by constant weights in single precision, as kernels on codes do."""
    axes = _PRODUCTS.get(node.op_type, 0)
    constants = [weights.get(name) for name in node.input[1:] if name]
    named = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    scaled = named.get("alpha", 1.0) != 1 or named.get("beta", 1.0) != 1 or named.get("transA", 0)
    # the quantizer has one scale for a channel of every group, and none for each bias
    refused = node.op_type == "ConvTranspose" and named.get("group", 1) > 1 and len(constants) > 1
    return (
        axes > 0
        and not refused
        and not (node.op_type == "Gemm" and scaled)
        and node.input[0] not in weights
        and all(w is not None and w.data_type == onnx.TensorProto.FLOAT for w in constants)
        and constants[0] is not None
        and len(constants[0].dims) == axes
    )


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give nodes names of their own where they have none, or one of another node."""
    taken: set[str] = set()
    for node in graph.node:
        names = (f"{node.op_type}_{number}" for number in count())
        node.name = next(name for name in _first(node.name, names) if name not in taken)
        taken.add(node.name)


def _first(name: str, others: Iterator[str]) -> Iterator[str]:
    if name:
        yield name
    yield from others


def _refuse_codes(graph: onnx.GraphProto, name: str) -> None:
    for node in graph.node:
        if any(part in node.op_type for part in _ON_CODES):
            raise ModelError(
                f"{name!r} is on codes already: node {quoted(node.name)} is {node.op_type}",
                hint="Leave out --precision: a network on codes is computed in what it says.",
            )


def _kept(
    graph: onnx.GraphProto, original: onnx.GraphProto, options: ModelOptions
) -> frozenset[str]:
    """The nodes that stay in single precision, since people named them or a tensor of theirs.
    Batch norms and others that were folded into a node are no more, and not unknown."""
    around = grouped(
        [(name, n.name) for n in graph.node for name in (n.name, *n.input, *n.output) if name]
    )
    gone = {name for n in original.node for name in (n.name, *n.input, *n.output)}
    wishes = kept_names(options.keep)
    for name in wishes:
        if name not in around and name not in gone:
            raise UsageError(
                f"the network has no node or tensor {quoted(name)}",
                hint=close_matches(name, [*around]),
            )
    return frozenset(node for name in wishes for node in around.get(name, ()))
