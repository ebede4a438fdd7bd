"""GPUs that nobody can mean, or that are too old: what is wrong, what is known, what to do."""

from __future__ import annotations

import pytest

from tilewright.core.errors import TargetError
from tilewright.hardware.device import parse_target
from tilewright.hardware.target import parse_gpu


@pytest.mark.parametrize(
    ("text", "said", "helped"),
    [
        ("cuda -model=K80", "the K80 is too old: its architecture is sm_37", "sm_75 and newer"),
        ("cuda -arch=sm_35", "sm_35 is too old, and GPUs are known here from sm_60 on", "sm_75"),
        ("cuda -arch=sm_52", "sm_52 is too old", "predicted"),
        ("cuda -arch=sm_99", "the limits of 'sm_99' are not known", "sm_90"),
        ("cuda -arch=35", "the limits of '35' are not known", "sm_90"),
        ('{"kind": "cuda", "arch": 35}', "the limits of '35' are not known", "sm_90"),
        ("cuda -model=H1000", "no datasheet of the GPU 'H1000' is known", "H100"),
        ("cuda -model=", "target option '-model=' cannot be read", "-model=H100"),
        ("cuda H100", "target option 'H100' cannot be read", "-model=H100"),
        ("cuda -arch=sm_90 -arch=sm_80", "has the option 'arch' twice", ""),
        ("cuda -mcpu=H100", "a cuda target has no option 'mcpu' here", "arch, as in sm_90"),
        ("cuda -model=H100 -arch=sm_80", "the architecture of the H100 is sm_90, not", "only"),
    ],
)
def test_what_cannot_be_meant_is_said(text: str, said: str, helped: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_gpu(text)
    assert said in caught.value.message and helped in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["CUDA", "cuda:0", "cudas"])
def test_what_nearly_means_a_gpu_is_told_how_to(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(text, None)
    assert "--target 'cuda -model=H100'" in (caught.value.hint or "")


def test_options_of_a_cpu_keep_their_example() -> None:
    with pytest.raises(TargetError) as caught:
        parse_target("llvm nonsense", None)
    assert "-mcpu=NAME" in (caught.value.hint or "")
