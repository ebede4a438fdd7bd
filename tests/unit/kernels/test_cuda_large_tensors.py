"""Tensors with more elements than 32 bits count are left to TVM's schedules, whose positions have
64 bits."""

from __future__ import annotations

import pytest

from helpers.kernels.attention_tasks import attention
from helpers.kernels.gpu_kernels import a_gpu
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import applicable

PLANE = dict(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1))


def convolved(images: int, groups: int) -> Workload:
    shapes = [(images, 64, 300, 300), (64, 64 // groups, 1, 1)]
    return workload(shapes, step("conv2d", 0, 1, groups=groups, **PLANE))


def rows(count: int) -> Workload:
    return workload([(count, 2**15)], step("softmax", 0, axis=1))


def pooled(images: int) -> Workload:
    return workload([(images, 64, 512, 512)], step("max_pool2d", 0, kernel=(2, 2), **PLANE))


def added(count: int) -> Workload:
    return workload([(count, 2**15), (2**15,)], step("add", 0, 1))


def dense(rows: int) -> Workload:
    return workload([(rows, 2**14), (2**14, 8)], step("dense", 0, 1))


def attended(texts: int) -> Workload:
    return attention(*[(texts, 128, 768)] * 3, heads=12)


@pytest.mark.parametrize(
    ("make", "few", "many"),
    [
        (lambda n: convolved(n, 1), 32, 373),
        (lambda n: convolved(n, 64), 32, 373),
        (rows, 2**15, 2**16),
        (pooled, 64, 128),
        (added, 2**15, 2**16),
        (dense, 2**16, 2**17),
        (attended, 8, 2**15),
    ],
    ids=["convolution", "depthwise", "rows", "pooling", "elements", "product", "attention"],
)
def test_only_tvms_schedules_take_them(make, few: int, many: int) -> None:
    on = a_gpu()
    ours, others = (
        {spec.name for spec in applicable(make(count), on.target, on.resources)}
        for count in (few, many)
    )
    assert others == {"cuda_default"} < ours
