"""Small quantized networks, described as those of the zoo are."""

from __future__ import annotations

import onnx

from tilewright.models.zoo._builder import GraphBuilder
from tilewright.models.zoo._description import append_network, parse_sections, zoo_sections

RESNETS = """
block begin
    input: input 3,48,48
    conv1+bn1+relu: conv_norm 16 7 stride=2 padding=3
    max_pool 3 stride=2 padding=1

block end
    global_average_pool
    flatten
    fc: gemm 40
    logits: output

network basic_1_1
    begin
    layer1.0: basic 16 1 identity
    layer2.0: basic 32 2 projection 32 2
    end

network basic_2_1
    begin
    layer1.[0..1]: basic 16 1 identity
    layer2.0: basic 32 2 projection 32 2
    end

network bottleneck_1_1
    begin
    layer1.0: bottleneck 16 1 projection 64 1
    layer2.0: bottleneck 32 2 projection 128 2
    end
"""


def quantized_resnet(name: str) -> onnx.ModelProto:
    """A ResNet on 8-bit codes for images of 48x48: its block, and how many in either stage."""
    graph = GraphBuilder("tiny", seed=1)
    sections = {**zoo_sections(), **parse_sections(RESNETS)}
    append_network(graph, name, sections, quantized=True)
    return graph.model
