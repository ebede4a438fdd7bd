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
from tilewright.insight.single_operators import main_task
from tilewright.kernels.spaces import MAX_ERROR, default_candidate
from tilewright.models import ModelOptions

RECORD = Path(__file__).resolve().parents[1] / "fixtures" / "cuda" / "golden.json"
OPERATORS = (
    "op:conv2d[c=64,h=56,k=3,pad=1,out=64]",
    "op:dense[m=128,k=768,n=768]",
    "op:softmax[shape=1536x128]",
    "op:conv2d[c=256,h=14,k=3,pad=1,out=256] within 2e-3",
    "op:dense[m=1024,k=768,n=3072] within 2e-3",
)
"""With the error that is allowed, where it is not the usual one."""
_MORE = frozenset(
    {"op:conv2d[c=64,h=56,k=3,pad=1,out=64]", "op:dense[m=1024,k=768,n=3072] within 2e-3"}
)
"""Much like others."""
COUNTED = (
    *("fma", "ld.shared", "ld.global", "st.global", "st.shared", "bar.sync", "shfl.sync"),
    *("mma.sync", "cvt.rna.tf32.f32"),
)
FORBIDDEN = ("ld.local", "st.local")
TOLERANCE = 0.25
WHERE = "sm_90"


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


def facts(operator: str) -> dict[str, Any]:
    """Registers and spilled bytes for each architecture, and counts of instructions for one."""
    found: dict[str, Any] = {}
    text, _, error = operator.partition(" within ")
    for arch in cuda_bars.ARCHITECTURES:
        on = cuda_bars.placement(f"cuda -arch={arch}")
        task = main_task(text, ModelOptions(), on)
        candidate, _ = default_candidate(task.workload, task.forms, on, float(error or MAX_ERROR))
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
        if arch == WHERE:
            ptx = compiled_source(made.source, arch, "ptx").binary.decode()
            found["instructions"] = {n: instructions(ptx, n) for n in (*COUNTED, *FORBIDDEN)}
    return found


def near(now: int, recorded: int, *, same: bool) -> bool:
    """Whether a number is that of the record."""
    return now == recorded if same else abs(now - recorded) <= max(2, TOLERANCE * recorded)


@pytest.mark.skipif(bool(missing_compiler()), reason="no compiler of NVIDIA's is here")
@pytest.mark.parametrize(
    "operator",
    [pytest.param(o, marks=pytest.mark.on_request if o in _MORE else ()) for o in OPERATORS],
)
def test_default_settings_compile_to_what_is_recorded(operator: str) -> None:
    recorded, now = json.loads(RECORD.read_text(encoding="utf-8")), facts(operator)
    same = recorded["compiler"] == version()
    before = recorded["operators"][operator]
    for arch in cuda_bars.ARCHITECTURES:
        assert now[arch]["implementation"] == before[arch]["implementation"]
        assert now[arch]["spilled"] == 0, arch
        registers = list(zip(now[arch]["registers"], before[arch]["registers"], strict=True))
        assert all(near(*pair, same=same) for pair in registers), (arch, registers)
    for name, count in now["instructions"].items():
        assert near(count, before["instructions"][name], same=same), name
        assert name not in FORBIDDEN or count == 0, "a thread's values are in memory"


if __name__ == "__main__":
    made = {"compiler": version(), "operators": {name: facts(name) for name in OPERATORS}}
    RECORD.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
