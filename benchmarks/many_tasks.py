"""Transformers of many different tasks, for `torch:many_tasks:NAME`; random weights.

Their stages have different widths and resolutions, and Swin cuts its planes in two ways: hardly a
kernel is called twice. Needs `tilewright[transformers]`.
"""

from __future__ import annotations

import torch
import transformers

Network = tuple[torch.nn.Module, tuple[torch.Tensor]]

IMAGE = torch.zeros(1, 3, 224, 224)


def swin() -> Network:
    """Swin-T for classification: 120 tasks, 118 MB of weights."""
    configuration = transformers.SwinConfig(num_labels=1000)
    return transformers.SwinForImageClassification(configuration), (IMAGE,)


def segformer() -> Network:
    """SegFormer-B0 with its decoder for segmentation: 90 tasks, 15 MB of weights."""
    configuration = transformers.SegformerConfig(num_labels=150)
    return transformers.SegformerForSemanticSegmentation(configuration), (IMAGE,)
