"""Compiled networks served: by the function, by the command, over HTTP, and what they answer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from socket import create_server
from urllib.request import Request, urlopen

import numpy as np
import pytest

import tilewright
from helpers.commands.command_line import environment, optimize_small_model, succeed
from helpers.commands.made_once import made_once
from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.serving.load import named_inputs
from tilewright.serving.networks import open_served


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "small artifact", optimize_small_model)


def test_answers_are_those_of_the_artifact_bit_for_bit(made: Path) -> None:
    """Also after the process was killed in between."""
    direct = tilewright.load(made / "out", threads=1)
    with tilewright.serve({"a": made / "out", "b": made / "out"}, instances="1x1") as server:
        for seed in range(4):
            if seed == 2:
                (instance,) = server.statistics().instances
                assert instance.pid is not None
                os.kill(instance.pid, signal.SIGKILL)
            inputs = named_inputs(server.networks["a"], seed)
            expected = direct(**inputs)
            for name in "ab":
                np.testing.assert_array_equal(server.submit(name, inputs).result(60), expected)


def test_what_is_not_served(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No artifact"):
        open_served({})
    with pytest.raises(ModelError, match="is no compiled network"):
        tilewright.serve({"a": tmp_path})
    with pytest.raises(TargetError, match="want 9999 cores"):
        tilewright.serve({"a": made / "out"}, instances="1x9999")
    damaged = Path(shutil.copytree(made / "out", tmp_path / "out"))
    library = damaged / "model.so"
    library.write_bytes(library.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError, match="is damaged"):
        tilewright.serve({"a": damaged})


def test_the_parent_stays_light(made: Path) -> None:
    """No TVM in the process that serves."""
    text = (
        "import sys, tilewright; from tilewright.serving.load import named_inputs\n"
        f"with tilewright.serve({{'a': {str(made / 'out')!r}}}, instances='1x1') as server:\n"
        "    server.submit('a', named_inputs(server.networks['a'], 0)).result()\n"
        "assert 'tvm' not in sys.modules and 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], check=True, env=environment(made))


def test_a_load(made: Path) -> None:
    data = succeed(made, "serve", "out", "other=out", "--load", "200ms", "--mode", "sequential")
    assert data["sequential"] is None and data["speedup"] is None
    assert [each["network"] for each in data["load"]["networks"]] == ["out", "other"]
    assert all(each["throughput_per_s"] > 0 for each in data["load"]["networks"])
    assert data["statistics"]["instances"][0]["answered"] > 0


def test_http_ends_with_a_signal(made: Path) -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tilewright", "serve", "out", "--instances", "1x1"]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--format", "json"],
        cwd=made,
        env=environment(made),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = f"http://127.0.0.1:{port}/v2/models/out"
        about = json.loads(_asked(address))
        (given,) = about["inputs"]
        count = int(np.prod(given["shape"]))
        message = {"inputs": [{**given, "data": [0.5] * count}]}
        answer = json.loads(_asked(f"{address}/infer", json.dumps(message).encode()))
        x = np.full(given["shape"], 0.5, np.float32)
        expected = np.asarray(tilewright.load(made / "out", threads=1)(x))
        assert answer["outputs"][0]["data"] == expected.reshape(-1).tolist()
        server.send_signal(signal.SIGINT)
        out, _ = server.communicate(timeout=30)
    finally:
        server.kill()
    assert server.returncode == 130
    assert json.loads(out)["data"]["networks"][0]["answered"] == 1


def _asked(address: str, body: bytes | None = None) -> bytes:
    end_s = time.monotonic() + 60
    while True:
        try:
            with urlopen(Request(address, body), timeout=60) as answer:
                return answer.read()
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)
