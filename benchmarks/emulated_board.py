"""A board with an Arm processor under user-mode emulation: are the numbers of networks right there?

    python benchmarks/emulated_board.py [--folder DIR] [--measurements 6] [--without-linker]

It puts together a root folder with Debian's Python for arm64 and TVM's wheels for it, starts TVM's
own RPC server there under QEMU, beside a tracker, and optimizes an MLP and a small convolutional
network for it, in single precision for a Cortex-A72, in bfloat16 and in int8 for a processor with
ARM's dot products; all are then run there once more and compared with ONNX Runtime in single
precision. Times are those of the emulation and say nothing. It needs Debian or Ubuntu with
`qemu-user-static` and `g++-aarch64-linux-gnu`; packages come from where apt and pip get theirs.
With `--without-linker` only the board may use that compiler, so that it links what it is sent. The
folder is kept for the next time. Ends with 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

TARGET = 'rpc:emulated={"kind": "llvm", "mtriple": "aarch64-linux-gnu", %s}'
PLAIN, DOTS = '"mcpu": "cortex-a72"', '"mattr": ["+neon", "+dotprod", "+i8mm", "+bf16"]'
ALLOWED = {"float32": (PLAIN, 1e-4), "bfloat16": (DOTS, 2e-2), "int8": (DOTS, 5e-2)}
"""By precision the processor, and the error that is allowed."""
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
PINNED = ("apache-tvm", "apache-tvm-ffi")
WHEELS = ("numpy", "tornado", "cloudpickle", "psutil", "typing_extensions", "ml_dtypes")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64")
_SERVER = """
import sys
from tvm.rpc.server import PopenRPCServerState
tracker = (sys.argv[1], int(sys.argv[2]))
PopenRPCServerState("127.0.0.1", 21000, 21999, False, tracker, "emulated").thread.join()
"""
"""What `python -m tvm.exec.rpc_server` starts in a second process, which the emulation cannot."""


def make_root(folder: Path) -> Path:
    """Debian's Python for arm64 with all that it needs, unpacked; its interpreter."""
    root, apt = folder / "root", folder / "apt"
    if not root.is_dir():
        for name in ("state/lists/partial", "cache/archives/partial", "log"):
            (apt / name).mkdir(parents=True, exist_ok=True)
        (apt / "status").touch()
        (apt / "options").write_text(
            'APT::Architecture "arm64"; APT::Architectures { "arm64"; };\n'
            f'Dir::State "{apt}/state"; Dir::State::status "{apt}/status";\n'
            f'Dir::Cache "{apt}/cache"; Dir::Log "{apt}/log"; Debug::NoLocking "true";\n'
            'APT::Install-Recommends "false"; APT::Sandbox::User "";\n'
        )
        own = {**os.environ, "APT_CONFIG": str(apt / "options")}
        packages = ("python3", "libstdc++6", "zlib1g", "libgomp1")
        for words in (["update"], ["install", "--download-only", "-y", *packages]):
            subprocess.run(["apt-get", "-q", *words], env=own, check=True, stdout=sys.stderr)
        made = folder / "root.new"
        for package in sorted((apt / "cache/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(made)], check=True)
        made.rename(root)
    return next(root.glob("usr/bin/python3.[0-9]*"))


def make_site(folder: Path, python: Path) -> Path:
    """TVM for that Python, in the versions that are installed here."""
    site = folder / "site"
    if not site.is_dir():
        wheels = folder / "wheels"
        platforms = [word for name in PLATFORMS for word in ("--platform", name)]
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels)]
        command += [*platforms, "--only-binary=:all:"]
        command += ["--python-version", python.name.removeprefix("python")]
        pinned = [f"{name}=={version(name)}" for name in PINNED]
        subprocess.run([*command, *pinned, *WHEELS], check=True, stdout=sys.stderr)
        made = folder / "site.new"
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(made)
        made.rename(site)
    return site


@contextmanager
def running(*words: str, **more: str) -> Generator[subprocess.Popen[bytes]]:
    """A program that is killed at the end, with all that it started."""
    environment = {**os.environ, **more}
    process = subprocess.Popen(
        words, env=environment, stdout=sys.stderr, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tilewright(*words: str, path: str) -> dict[str, object]:
    """`data` of a command; SystemExit where it fails."""
    command = [sys.executable, "-m", "tilewright", *words, "--format", "json"]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {' '.join(words)}")
    return json.loads(done.stdout)["data"]


def small_networks(folder: Path) -> list[tuple[str, Path, tuple[int, ...]]]:
    """Name, file and input shape of an MLP and of three convolutions with pooling behind them."""
    rng = np.random.default_rng(0)
    made: list[tuple[str, Path, tuple[int, ...]]] = []

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    def write(
        name: str, shape: tuple[int, ...], nodes: list[onnx.NodeProto], weights: list
    ) -> None:
        ends = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10]),
        ]
        graph = helper.make_graph(nodes, name, ends[:1], ends[1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, folder / f"{name}.onnx")
        made.append((name, folder / f"{name}.onnx", shape))

    dense = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("Relu", ["h"], ["r"])]
    dense.append(helper.make_node("MatMul", ["r", "b"], ["y"]))
    write("dense", (1, 128), dense, [weight("a", 128, 64), weight("b", 64, 10)])
    nodes, weights, before, channels = [], [], "x", 3
    for number, filters in enumerate((16, 32, 32)):
        steps = {"pads": [1] * 4, "strides": [1 + number % 2] * 2}
        nodes.append(helper.make_node("Conv", [before, f"w{number}"], [f"c{number}"], **steps))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        weights.append(weight(f"w{number}", filters, channels, 3, 3))
        before, channels = f"r{number}", filters
    nodes.append(helper.make_node("GlobalAveragePool", [before], ["p"]))
    nodes.append(helper.make_node("Flatten", ["p"], ["f"]))
    nodes.append(helper.make_node("MatMul", ["f", "d"], ["y"]))
    write("convolutions", (1, 3, 32, 32), nodes, [*weights, weight("d", 32, 10)])
    return made


def tried(
    model: Path, precision: str, shape: tuple[int, ...], tracker: str, measurements: int, path: str
) -> float:
    """Optimize for the board, run there, compare: the error relative to the largest value."""
    folder = model.with_suffix(f".{precision}")
    there = ("--target", TARGET % ALLOWED[precision][0], "--tracker", tracker)
    database = ("--db", str(model.with_suffix(".db")), "--precision", precision)
    budget = ("--budget", str(measurements), "--out", str(folder))
    tilewright("optimize", str(model), *there, *database, *budget, path=path)
    given = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    np.save(model.with_suffix(".npy"), given)
    words = ("--input", str(model.with_suffix(".npy")), "--out", str(folder / "outputs"))
    tilewright("run", str(folder), *there, *words, path=path)
    found = np.load(folder / "outputs" / "y.npy")
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(["y"], {"x": given})
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def wait_for_server(port: int, server: subprocess.Popen[bytes]) -> None:
    """Until the tracker knows the server: importing TVM takes a while there."""
    from tilewright.core.errors import TargetError
    from tilewright.measure.boards import Tracker

    while True:
        try:
            Tracker(host="127.0.0.1", port=port).servers("emulated")
            return
        except TargetError:
            if server.poll() is not None:
                sys.exit("The emulated server ended.")
            time.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("tilewright-out/emulated-board"))
    parser.add_argument("--measurements", type=int, default=6)
    parser.add_argument("--port", type=int, default=20_900, help="where the tracker listens")
    parser.add_argument("--without-linker", action="store_true", help="the board links")
    options = parser.parse_args(arguments)
    emulator = next((found for name in EMULATORS if (found := shutil.which(name))), None)
    if emulator is None:
        sys.exit("No QEMU for user programs is here: apt-get install qemu-user-static")
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = make_root(folder)
    site = make_site(folder, python)
    own = {"PYTHONPATH": str(site), "TVM_NUM_THREADS": "2"}
    if options.without_linker:
        own["CXX"] = shutil.which("aarch64-linux-gnu-g++") or sys.exit("No g++ for Arm is here.")
    port, wrong = options.port, False
    tracker = (sys.executable, "-m", "tvm.exec.rpc_tracker", "--host", "127.0.0.1")
    board = (emulator, "-L", str(folder / "root"), str(python), "-c", _SERVER, "127.0.0.1")
    with (
        TemporaryDirectory() as scratch,
        running(*tracker, "--port", str(port), "--port-end", str(port + 1)),
        running(*board, str(port), **own) as server,
    ):
        path = _path(Path(scratch), hidden=options.without_linker)
        wait_for_server(port, server)
        for (name, model, shape), precision in product(small_networks(Path(scratch)), ALLOWED):
            at = f"127.0.0.1:{port}"
            error = tried(model, precision, shape, at, options.measurements, path)
            print(
                f"{name}, {precision}: largest error {error:.1e} of the largest value", flush=True
            )
            wrong |= not error <= ALLOWED[precision][1]
    return int(wrong)


def _path(scratch: Path, *, hidden: bool) -> str:
    """PATH, with links to everything but linkers for Arm where those are hidden."""
    path = os.environ.get("PATH", "")
    if not hidden:
        return path
    place = scratch / "bin"
    place.mkdir()
    for entry in reversed(path.split(os.pathsep)):
        for program in Path(entry).iterdir() if Path(entry).is_dir() else ():
            if not program.name.startswith("aarch64-linux-gnu-"):
                (place / program.name).unlink(missing_ok=True)
                (place / program.name).symlink_to(program)
    return str(place)


if __name__ == "__main__":
    sys.exit(main())
