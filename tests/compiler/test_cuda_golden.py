"""What NVIDIA's compiler makes of default settings for each architecture, and which instructions a
kernel is made of: as recorded.

    python tests/compiler/test_cuda_golden.py       writes the record anew

Registers and numbers of instructions are those of the version of the compiler that the record
names; another version may take a quarter more or less of either. No version may spill.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import cuda_bars
from tilewright.compiler.cuda.compilers import compiled_source, missing_compiler
from tilewright.core.forms import IMAGE_LAYOUTS
from tilewright.insight.single_operators import main_task
from tilewright.kernels.registry import ports_in
from tilewright.kernels.spaces import MAX_ERROR, default_candidate
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
    "op:conv2d[c=3,h=225,k=3,out=32]",
    "op:conv2d[c=5,h=227,k=7,out=32]",
)
"""With the layout of images, and the error that is allowed, where they are not the usual ones."""
_IN_CI = frozenset(
    {
        *("op:dense[m=128,k=768,n=768]", "op:softmax[shape=1536x128]"),
        "op:conv2d[c=256,h=14,k=3,pad=1,out=256] within 2e-3",
    }
)
COUNTED = (
    *("fma", "ld.shared", "ld.global", "st.global", "st.shared", "bar.sync", "shfl.sync"),
    *("mma.sync", "cvt.rna.tf32.f32"),
)
FORBIDDEN = ("ld.local", "st.local")
TOLERANCE = 0.25
WHERE = ("sm_75", "sm_90", "sm_120")
_WHERE_IN_CI = ("sm_90",)


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


def facts(operator: str, where: tuple[str, ...] = WHERE) -> dict[str, Any]:
    """Registers and spilled bytes for each architecture, and counts of instructions for some."""
    found: dict[str, Any] = {}
    named, _, error = operator.partition(" within ")
    text, _, layout = named.partition(" in ")
    for arch in cuda_bars.ARCHITECTURES:
        on = cuda_bars.placement(f"cuda -arch={arch}")
        task = main_task(text, ModelOptions(), on)
        forms = task.forms
        if layout:
            form = IMAGE_LAYOUTS[layout]
            forms = ports_in(form, task.workload, on.target, on.resources)
            assert forms is not None
        candidate, _ = default_candidate(task.workload, forms, on, float(error or MAX_ERROR))
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
    recorded, now = json.loads(RECORD.read_text(encoding="utf-8")), facts(operator, where)
    same = recorded["compiler"] == version()
    before = recorded["operators"][operator]
    for arch in cuda_bars.ARCHITECTURES:
        assert now[arch]["implementation"] == before[arch]["implementation"]
        assert now[arch]["spilled"] == 0, arch
        registers = list(zip(now[arch]["registers"], before[arch]["registers"], strict=True))
        assert all(near(*pair, same=same) for pair in registers), (arch, registers)
    for arch in where:
        for name, count in now[arch]["instructions"].items():
            assert near(count, before[arch]["instructions"][name], same=same), (arch, name)
            assert name not in FORBIDDEN or count == 0, "a thread's values are in memory"


if __name__ == "__main__":
    made = {"compiler": version(), "operators": {name: facts(name) for name in OPERATORS}}
    RECORD.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
