"""One queue for devices behind a tracker: answers are those of the artifact, whatever dies."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright
from helpers.commands.command_line import optimize_small_model
from helpers.commands.made_once import made_once
from helpers.processes.rpc_processes import Farm, farm
from helpers.records.written_artifacts import write_artifact
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.serving import InstanceService
from tilewright.deploy.hashes import sealed
from tilewright.deploy.manifest import MANIFEST
from tilewright.serving.load import named_inputs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of singles, for a processor without tile registers: a server of TVM's does not ask Linux for
    them, so that a device counts as one without."""
    folder = tmp_path_factory.mktemp("for boards") / "out"
    shutil.copytree(
        made_once(tmp_path_factory, "small artifact", optimize_small_model) / "out", folder
    )
    manifest = json.loads((folder / MANIFEST).read_text())
    features = manifest["machine"]["features"]
    manifest["machine"]["features"] = [name for name in features if not name.startswith("amx-")]
    (folder / MANIFEST).write_text(json.dumps(sealed(manifest, MANIFEST)))
    return folder


@pytest.fixture(scope="module")
def two() -> Iterator[Farm]:
    """Two devices of one core each."""
    with farm(2, threads=1) as found:
        yield found


def until(found: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_what_no_device_computes(made: Path, two: Farm, tmp_path: Path) -> None:
    def refused(error: type[Exception], match: str, **more: object) -> None:
        given = {"artifacts": {"a": made}, "devices": ["rpc:box"], "tracker": two.address}
        with pytest.raises(error, match=match):
            tilewright.serve(**{**given, **more})  # type: ignore[arg-type]

    other = write_artifact(tmp_path / "other")
    refused(UsageError, "of different networks", artifacts={"a": [made, other]})
    manifest = json.loads((other / MANIFEST).read_text())
    arm = {**manifest["machine"], "architecture": "aarch64", "features": ["neon"]}
    write_artifact(tmp_path / "arm", machine=arm)
    refused(TargetError, "'rpc:box': compiled for aarch64", artifacts={"a": tmp_path / "arm"})
    refused(UsageError, "instances of this machine", instances="2x1")
    refused(UsageError, "on this machine only", batches=2)
    refused(UsageError, "No artifact is given", artifacts={})
    refused(TargetError, "knows no device 'b'", devices=["llvm", "rpc:b"])
    assert not any(server.serving for server in two.servers), "nothing was opened"


def test_a_board_is_killed_and_comes_back(made: Path, two: Farm) -> None:
    """Every request has its own answer, once, whoever computes it."""
    direct, devices = tilewright.load(made, threads=1), ["rpc:box", "rpc:box", "llvm"]
    heard: list[int] = []
    with tilewright.serve(
        {"a": made}, instances="1x1", devices=devices, tracker=two.address
    ) as server:

        def asked(seeds: range, kill_at: int = -1) -> None:
            inputs = {seed: named_inputs(server.networks["a"], seed) for seed in seeds}
            answers = {s: server.submit("a", x, timeout_s=None) for s, x in inputs.items()}
            for seed, answer in answers.items():
                answer.add_done_callback(lambda _, seed=seed: heard.append(seed))
                if seed == kill_at:
                    answer.result(60)
                    two.servers[0].kill()
                np.testing.assert_array_equal(answer.result(60), direct(**inputs[seed]))

        def told_now() -> tuple[InstanceService, ...]:
            return server.statistics().instances

        asked(range(200), kill_at=50)
        told = server.statistics()
        assert [each.device for each in told.instances] == ["llvm", "rpc:box", "rpc:box"]
        assert all(each.answered for each in told.instances), "each has taken some"
        assert {each.cores for each in told.instances[1:]} == {(0,)}
        until(lambda: asked(range(200, 230)) or any(e.restarts for e in told_now()))
        asked(range(230, 240))
        two.add(threads=1)
        until(lambda: all(each.state == "ready" for each in told_now()))
        (back,) = (each for each in told_now() if each.restarts)
        until(lambda: asked(range(300, 340)) or told_now()[back.instance].answered > back.answered)
        told = server.statistics()
    assert sum(each.answered for each in told.instances) == told.networks[0].answered == len(heard)
    assert (told.networks[0].failed, told.networks[0].missed) == (0, 0)
