"""Gemm and MatMul."""

from __future__ import annotations

import numpy as np

from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.elementwise import operand
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates


@translates("Gemm")
def gemm(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Gemm → dense with a constant matrix, else batch_matmul; then add."""
    a, b, c = node.input(0), node.input(1), node.input(2)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if node.integer("transA", 0):
        a = builder.transpose(a, (1, 0))
    transposed = bool(node.integer("transB", 0))
    if builder.value(b) is not None:
        weight = builder.transpose(b, (1, 0)) if transposed else b
        result = builder.emit("dense", a, _scaled(builder, weight, alpha))
    else:
        product = builder.emit("batch_matmul", a, b, transpose_b=transposed)
        result = _scaled(builder, product, alpha)
    if not c or beta == 0:
        return result
    return builder.emit("add", result, operand(builder, _scaled(builder, c, beta), result))


def _scaled(builder: GraphBuilder, name: str, factor: float) -> str:
    if factor == 1:
        return name
    dtype = np.dtype(builder.dtype(name))
    return builder.emit("multiply", name, builder.constant(np.asarray(factor, dtype)))


@translates("MatMul")
def matrix_product(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """MatMul → dense with a constant matrix, else batch_matmul; vectors get an axis for a while."""
    a, b = node.input(0), node.input(1)
    vector_a, vector_b = len(builder.shape(a)) == 1, len(builder.shape(b)) == 1
    if vector_a:
        a = builder.reshape(a, (1, *builder.shape(a)))
    if vector_b:
        b = builder.reshape(b, (*builder.shape(b), 1))
    b_shape = builder.shape(b)
    matrix = all(size == 1 for size in b_shape[:-2]) and len(b_shape) <= len(builder.shape(a))
    if builder.value(b) is not None and builder.value(a) is None and matrix:
        result = builder.emit("dense", a, builder.reshape(b, b_shape[-2:]))
    else:
        result = builder.emit("batch_matmul", a, b, transpose_b=False)
    shape = list(builder.shape(result))
    if vector_b:
        del shape[-1]
    if vector_a:
        del shape[-1 if vector_b else -2]
    return builder.reshape(result, shape)
