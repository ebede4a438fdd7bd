"""What NVIDIA's compiler makes of default settings for each architecture, and which instructions a
kernel is made of: as recorded.

    python tests/compiler/test_cuda_golden.py       writes the record anew

Registers and numbers of instructions are those of the version of nvcc that the record names;
another version may take a quarter more or less of either. So may NVRTC, which compiles where there
is no nvcc, of registers; it unrolls other loops, and only kinds of instructions are compared. None
may spill.
"""

from __future__ import annotations

import json
import re
import subprocess
from math import inf
from pathlib import Path
from typing import Any

import pytest

import cuda_bars
from tilewright.compiler.cuda.compilers import compiled_source, missing_compiler, nvrtc
from tilewright.core.forms import IMAGE_LAYOUTS
from tilewright.insight.single_operators import main_task
from tilewright.kernels.registry import ports_in
from tilewright.kernels.spaces import MAX_ERROR, ranked_defaults
from tilewright.models import ModelOptions

RECORD = Path(__file__).resolve().parents[1] / "fixtures" / "cuda" / "golden.json"
OPERATORS = (
    "op:conv2d[c=64,h=56,k=3,pad=1,out=64]",
    "op:dense[m=128,k=768,n=768]",
    "op:softmax[shape=1536x128]",
    "op:conv2d[c=256,h=14,k=3,pad=1,out=256] within 2e-3",
    "op:dense[m=1024,k=768,n=3072] within 2e-3",
    "op:conv2d[c=64,h=56,k=3,pad=1,out=64] in NHWC",
    "op:conv2d_transpose[c=64,h=14,k=4,stride=2,pad=1,out=32]",
    "op:conv2d_transpose[c=64,h=14,k=4,stride=2,pad=1,out=32] in NHWC",
    "op:conv2d[c=96,h=28,k=3,pad=1,out=96,groups=96]",
    "op:max_pool2d[c=64,h=56,k=3,stride=2,pad=1]",
    "op:attention[queries=128,keys=128,heads=12,d=64]",
    "op:dense[m=1,k=2048,n=1000]",
    "op:gelu[shape=1x64x56x56]",
    "op:conv2d[c=3,h=227,k=7,out=32]",
    "op:conv2d_int8[c=64,h=56,k=3,pad=1,out=64] in NHWC",
    "op:dense[m=512,k=768,n=3072] by cuda_product_async",
    "op:conv2d[c=256,h=14,k=3,pad=1,out=256] by cuda_product_tf32_async",
    "op:conv2d[c=256,h=7,k=3,pad=1,out=512] by cuda_product_tf32_exchanged",
    "op:conv2d[c=3,h=225,k=3,out=32]",
    "op:conv2d[c=5,h=227,k=7,out=32]",
    "op:conv2d[c=64,h=28,k=3,pad=1,out=128,groups=4]",
    "op:batch_matmul[b=12,m=128,k=64,n=128]",
    "op:layer_norm[shape=128x768]",
    "op:reduce_mean[shape=1x512x7x7,axes=2x3]",
    "op:avg_pool2d[c=64,h=56,k=3,stride=2,pad=1]",
    "op:transpose[shape=12x128x64,perm=0x2x1]",
    "op:concat[shape=1x64x28x28,count=2,axis=1]",
    "op:conv2d[c=96,h=28,k=3,pad=1,out=96,groups=96] in NHWC",
    "op:conv2d[c=3,h=225,k=3,out=32] in NHWC",
    "op:conv2d[c=64,h=28,k=3,pad=1,out=64] in NHWC within 2e-3",
    "op:dense[m=128,k=768,n=768] by cuda_default",
)
"""With the layout of images, the error that is allowed, and the implementation, where they are not
the usual ones."""
_IN_CI = frozenset(
    {
        *("op:dense[m=128,k=768,n=768]", "op:softmax[shape=1536x128]"),
        "op:conv2d[c=256,h=14,k=3,pad=1,out=256] within 2e-3",
        "op:dense[m=512,k=768,n=3072] by cuda_product_async",
    }
)
COUNTED = (
    *("fma", "ld.shared", "ld.global", "st.global", "st.shared", "bar.sync", "shfl.sync"),
    *("mma.sync", "cvt.rna.tf32.f32", "dp4a", "cp.async.cg", "cp.async.ca"),
)
FORBIDDEN = ("ld.local", "st.local")
TOLERANCE = 0.25
WHERE = ("sm_75", "sm_90", "sm_120")
_WHERE_IN_CI = ("sm_90",)
_BY_NVRTC = ("sm_75", "sm_120")


def version() -> str:
    """Of nvcc; empty where NVRTC compiles."""
    try:
        done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    found = re.search(r"release [\d.]+, (V[\d.]+)", done.stdout)
    return found[1] if found else ""


def instructions(text: str, name: str) -> int:
    """How many instructions of PTX begin so."""
    return len(re.findall(rf"^\s*(?:@!?%p\d+\s+)?{re.escape(name)}\b", text, re.MULTILINE))


def facts(
    operator: str,
    where: tuple[str, ...] = WHERE,
    architectures: tuple[str, ...] = cuda_bars.ARCHITECTURES,
) -> dict[str, Any]:
    """Registers and spilled bytes for each architecture that offers the kernel, and counts of
    instructions for some."""
    found: dict[str, Any] = {}
    operator, _, implementation = operator.partition(" by ")
    named, _, error = operator.partition(" within ")
    text, _, layout = named.partition(" in ")
    for arch in architectures:
        on = cuda_bars.placement(f"cuda -arch={arch}")
        task = main_task(text, ModelOptions(), on)
        forms = task.forms
        if layout:
            form = IMAGE_LAYOUTS[layout]
            forms = ports_in(form, task.workload, on.target, on.resources)
            assert forms is not None
        most = inf if implementation else float(error or MAX_ERROR)
        ranked = [it for it, _ in ranked_defaults(task.workload, forms, on, most)]
        ranked = [it for it in ranked if implementation in ("", it.implementation)]
        if not ranked:
            continue
        candidate = ranked[0]
        made = cuda_bars.program(task.workload, candidate, on)
        done = compiled_source(made.source, arch)
        assert not done.reason, done.reason
        found[arch] = {
            "implementation": candidate.implementation,
            "registers": [report.registers for report in done.reports.values()],
            "spilled": sum(
                it.spill_store_bytes + it.spill_load_bytes + it.stack_bytes
                for it in done.reports.values()
            ),
        }
        if arch in where:
            ptx = compiled_source(made.source, arch, "ptx").binary.decode()
            counted = {name: instructions(ptx, name) for name in (*COUNTED, *FORBIDDEN)}
            found[arch]["instructions"] = counted
    return found


def near(now: int, recorded: int, *, same: bool) -> bool:
    """Whether a number is that of the record."""
    return now == recorded if same else abs(now - recorded) <= max(2, TOLERANCE * recorded)


@pytest.mark.skipif(bool(missing_compiler()), reason="no compiler of NVIDIA's is here")
@pytest.mark.parametrize(
    ("operator", "where"),
    [
        *((name, _WHERE_IN_CI) for name in OPERATORS if name in _IN_CI),
        *(pytest.param(name, WHERE, marks=pytest.mark.on_request) for name in OPERATORS),
    ],
)
def test_default_settings_compile_to_what_is_recorded(
    operator: str, where: tuple[str, ...]
) -> None:
    check(operator, facts(operator, where))


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC, of NVIDIA's packages on PyPI, is not installed")
@pytest.mark.parametrize(
    "operator",
    [
        *("op:dense[m=128,k=768,n=768]", "op:softmax[shape=1536x128]"),
        "op:max_pool2d[c=64,h=56,k=3,stride=2,pad=1]",
    ],
)
def test_nvrtc_takes_the_place_of_an_nvcc_that_is_not_there(
    operator: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert version() == ""
    check(operator, facts(operator, _BY_NVRTC[:1], _BY_NVRTC), _BY_NVRTC)


def check(
    operator: str,
    now: dict[str, Any],
    architectures: tuple[str, ...] = cuda_bars.ARCHITECTURES,
) -> None:
    """That what was found is what is recorded, for the architectures that were looked at."""
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    same, before = recorded["compiler"] == version(), recorded["operators"][operator]
    assert now.keys() == before.keys() & {*architectures}
    for arch, found in now.items():
        assert found["implementation"] == before[arch]["implementation"]
        assert found["spilled"] == 0, arch
        registers = list(zip(found["registers"], before[arch]["registers"], strict=True))
        assert all(near(*pair, same=same) for pair in registers), (arch, registers)
        for name, count in found.get("instructions", {}).items():
            expected = before[arch]["instructions"][name]
            alike = near(count, expected, same=same) if version() else bool(count) == bool(expected)
            assert alike, (arch, name)
            assert name not in FORBIDDEN or count == 0, "a thread's values are in memory"


if __name__ == "__main__":
    made = {"compiler": version(), "operators": {name: facts(name) for name in OPERATORS}}
    RECORD.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
