"""What goes wrong on a real GPU costs one failure and one worker: hangs, faults, a full memory.

    PYTHONPATH=src python benchmarks/cuda_faults.py

Stands in front of nvcc and plants faults in the text of kernels that it is given: a loop without an
end, a write to an address that nobody has. Memory is taken by PyTorch, in a process of its own. A
line says what became of each kernel; the exit code is 1 unless every fault was one failure, told as
what it is, and the kernel after it was measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tilewright.core.errors import TargetError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Failure, Measurement, Outcome
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.accesses.cuda import CudaMeasurer
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.targeting import placement_of
from tilewright.testing.implementations import single

_TIMEOUT_S = 5.0
_SMALL, _LARGE = 1 << 16, 1 << 28
"""Elements: two arrays of 1 GiB do not fit where 1.5 GiB are free."""
_PLANTED = {
    "hang": 'while (clock64() >= 0) { asm volatile("" ::: "memory"); }',
    "fault": "*(volatile float*)64 = 1.0f;",
}
_EXPECTED = {"hang": "timeout", "fault": "crash", "memory": "out of memory"}
_SHIM = """#!{python}
import os, re, sys
from pathlib import Path
planted = Path({fault!r})
source = Path(sys.argv[-1])
if planted.exists() and source.suffix == ".cu":
    text = source.read_text()
    source.write_text(re.sub(r"(__global__[^{{]*\\{{)", lambda found: found[0] + planted.read_text(), text))
os.execv({nvcc!r}, [{nvcc!r}, *sys.argv[1:]])
"""  # noqa: E501
_HOG = """
import torch, time
free = torch.cuda.mem_get_info()[0]
held = torch.empty(free - (3 << 29), dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(60)
"""


def main() -> None:
    """Provoke each fault, then measure the same kernel without it."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        sys.exit("nvcc is not on the PATH")
    try:
        placement_of("cuda", None, None)
    except TargetError as error:
        sys.exit(str(error))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        fault = Path(folder) / "planted"
        shim = Path(folder) / "nvcc"
        shim.write_text(_SHIM.format(python=sys.executable, fault=str(fault), nvcc=nvcc))
        shim.chmod(0o755)
        home = Path(nvcc).resolve().parent.parent
        os.environ.setdefault("CUDA_PATH", str(home))  # TVM looks for headers beside nvcc
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        for name, expected in _EXPECTED.items():
            length = _LARGE if name == "memory" else _SMALL
            with planted(name, fault):
                failed, seconds = measured(length)
            after, _ = measured(length)
            good = isinstance(failed, Failure) and failed.kind == expected
            good = good and isinstance(after, Measurement)
            wrong += not good
            said = failed.message if isinstance(failed, Failure) else "no failure"
            line = {"fault": name, "good": good, "said": said, "seconds": round(seconds, 1)}
            line["kind"] = failed.kind if isinstance(failed, Failure) else ""
            line["after"] = str(after) if isinstance(after, Failure) else "measured"
            print(json.dumps(line), flush=True)
    sys.exit(1 if wrong else 0)


@contextmanager
def planted(name: str, fault: Path) -> Iterator[None]:
    """A kind of fault, while it lasts."""
    if name == "memory":
        with subprocess.Popen([sys.executable, "-c", _HOG], stdout=subprocess.PIPE) as hog:
            assert hog.stdout is not None
            try:
                hog.stdout.readline()
                yield
            finally:
                hog.kill()
        return
    fault.write_text(_PLANTED[name])
    try:
        yield
    finally:
        fault.unlink()


def measured(length: int) -> tuple[Outcome, float]:
    """What becomes of one default kernel, and the seconds that it took."""
    placement = placement_of("cuda", None, None)
    workload = single("relu", (1, length))
    candidate = default_candidate(workload, (PLAIN, PLAIN), placement)[0]
    began = time.monotonic()
    with CudaMeasurer(placement) as measurer:
        protocol = replace(kernel_protocol(placement), timeout_s=_TIMEOUT_S)
        (outcome,) = measurer.measure(workload, [candidate], protocol)
    return outcome, time.monotonic() - began


if __name__ == "__main__":
    main()
