"""The time of a network in plain TVM without any tuning, for comparison with tilewright.

    python benchmarks/untuned_tvm.py --network resnet50

The steps are ONNX import, LegalizeOps, FuseOps, FuseTIR and compiling. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from statistics import median
from typing import Any

import numpy as np


def build(network: str, target: str) -> tuple[Any, list[np.ndarray]]:
    """The compiled module and random inputs."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from tilewright.models import zoo

    rng = np.random.default_rng(0)
    shapes = zoo.entry(network).input_shapes
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    module = from_onnx(zoo.build(network), keep_params_in_input=False)
    passes = (
        "DecomposeOpsForInference",
        "FoldConstant",
        "LegalizeOps",
        "AnnotateTIROpPattern",
        "FoldConstant",
        "FuseOps",
        "FuseTIR",
    )
    module = tvm.transform.Sequential([getattr(relax.transform, name)() for name in passes])(module)
    return tvm.compile(module, tvm.target.Target(target)), inputs


def main() -> None:
    """Build, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--threads", type=int, default=None, help="default: tilewright's")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    from tilewright.hardware.device import local_placement

    placement = local_placement(options.threads)
    os.environ["TVM_NUM_THREADS"] = str(
        placement.resources.threads
    )  # TVM reads it when it is imported
    import tvm
    from tvm import relax

    began_s = time.perf_counter()
    executable, inputs = build(options.network, placement.tvm_target)
    compile_s = time.perf_counter() - began_s
    network = relax.VirtualMachine(executable, tvm.cpu())["main"]
    tensors = [tvm.runtime.tensor(array) for array in inputs]
    network(*tensors)
    samples_s: list[float] = []
    for _ in range(options.repeats):
        began_s = time.perf_counter()
        network(*tensors)
        samples_s.append(time.perf_counter() - began_s)
    result = {
        "network": options.network,
        "threads": placement.resources.threads,
        "latency_s": median(samples_s),
        "samples_s": samples_s,
        "compile_s": compile_s,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
