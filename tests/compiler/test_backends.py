"""Worker processes import less of TVM, and load the rest where it is needed."""

from __future__ import annotations

import os
import subprocess
import sys

ASKED = """
import sys
import tvm_ffi
from tilewright.compiler import execute
from tilewright.compiler.backends import load_backends

def known(name):
    return tvm_ffi.get_global_func(name, allow_missing=True) is not None

def show():
    print(known("tvm.contrib.sort.sort"), known("tirx.intrinsics.cuda.get_codegen"))

show()
load_backends()
show()
"""


def known(**switches: str) -> list[str]:
    environment = {**os.environ, **switches}
    command = [sys.executable, "-c", ASKED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_devices_are_known_where_they_are_asked_for_and_functions_of_kernels_always() -> None:
    assert known(TVM_DEVICE_BACKEND_AUTOLOAD="0") == ["True False", "True True"]
    assert known(TVM_DEVICE_BACKEND_AUTOLOAD="1") == ["True True", "True True"]
