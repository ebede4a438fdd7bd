"""`benchmarks/on_a_card.py` as far as it goes without a GPU: kernels are prepared, executed on the
CPU, reported and stored."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from card.archive import Archive, Prepared, Wanted, lines
from card.reporting import report, store
from card.wishes import wishes
from helpers.fakes.levels import relu
from helpers.fakes.measuring import measured
from helpers.kernels.one_kernel import step, workload
from on_a_card import main, require_cubins
from shipped_kernels import of_one_meter
from tilewright.core.codec import to_builtins
from tilewright.core.forms import CHANNELS_LAST, PLAIN
from tilewright.core.records import Candidate, EnergyUse
from tilewright.measure.targeting import placement_of
from tilewright.store import open_store
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.simulated_driver import H100

CHOSEN = Candidate(implementation="cuda_stream", settings=(), forms=(PLAIN, PLAIN))
WITHOUT_TVM = """
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None
import on_a_card, card.worker
"""


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_the_whole_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "kernels.jsonl", tmp_path / "results.jsonl"
    prepare = ["prepare", "checks", "study", "--most", "2", "--texts", "--file", str(file)]
    main(prepare)
    before = file.read_bytes()
    main(prepare)
    assert file.read_bytes() == before, "what is there is not made again"
    archive = Archive(file)
    assert len(archive.of("checks")) == len(archive.of("study")) == 2
    assert {kernel.key for kernel in archive.without_binary()} == {
        wanted.key for wanted in archive.wanted.values()
    }
    for part in ("checks", "study"):
        for _ in range(2):
            main(["run", part, "--on", "simulated", "--file", str(file), "--out", str(out)])
    found = [line for line in lines(out) if line["part"] not in ("card", "state")]
    assert [line["part"] for line in found] == ["checks"] * 2 + ["study"] * 2
    assert all(line["error"] <= line["bound"] for line in found[:2])
    main(["report", str(out)])
    said = capsys.readouterr().out
    told = re.findall(r"^\| cuda_\w+ \| (\d+) \| (\d+) \| (\d+) \|", said, flags=re.MULTILINE)
    assert [sum(map(int, column)) for column in zip(*told, strict=True)] == [2, 0, 0]
    assert "op:conv2d[c=3,h=225,k=3,out=32], pad 0 to 0" in said
    location = str(tmp_path / "card.db")
    main(["store", str(out), "--db", location])
    with open_store(location) as database:
        stored = database.stored_measurements()
        assert len(stored) == 2
        assert stored[0].device_class.startswith("h100-sm90-")
        assert database.workload(stored[0].workload_key) is not None


def test_what_does_not_fit_the_card_is_said(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "kernels.jsonl")
    task = workload([(2, 2)], step("relu", 0))
    kernel = Prepared(
        key="k",
        model="H100",
        workload=task.text,
        candidate=Candidate(implementation="cuda_default", settings=(), forms=(PLAIN, PLAIN)),
        source="",
        launches=(),
        workspaces={},
        types=(),
        kernel_hash="",
        build_s=0.0,
    )
    archive.add(kernel)
    wanted = [Wanted(part="rows", key="k", labels={})]
    with pytest.raises(SystemExit, match="the card is sm_80, and kernels are for sm_90"):
        require_cubins(archive, wanted, "sm_80")
    with pytest.raises(SystemExit, match="only text"):
        require_cubins(archive, wanted, "sm_90")
    archive.add_binary("k", b"a cubin")
    require_cubins(Archive(archive.path), wanted, "sm_90")
    assert Archive(archive.path).kernel("k").binary == b"a cubin"


def test_the_machine_with_the_card_needs_no_tvm() -> None:
    path = os.pathsep.join(map(str, filter(None, sys.path)))
    asked = [sys.executable, "-c", WITHOUT_TVM]
    subprocess.run(asked, check=True, env={**os.environ, "PYTHONPATH": path}, timeout=60)  # noqa: S603


def test_a_file_that_a_kill_cut_short_is_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"part": "card"}\n{"part": "che', encoding="utf-8")
    assert list(lines(path)) == [{"part": "card"}]


def test_rows_are_of_many_families_in_several_settings() -> None:
    placement = placement_of("cuda -model=H100", None, None)
    made = wishes("rows", placement)
    found = [next(made) for _ in range(20)]
    assert len({labels["family"] for labels, _, _ in found}) >= 5
    assert {labels["setting"] for labels, _, _ in found} >= {"default"}


def test_defaults_are_also_those_where_tf32_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("card.wishes.NETWORKS", ("zoo:mlp",))
    placement = placement_of("cuda -model=A100", None, None)
    found: dict[str, set[str]] = {}
    for labels, _, candidate in wishes("defaults", placement):
        found.setdefault(labels["setting"], set()).add(candidate.implementation)
    assert "cuda_product_tf32" in found["tf32"]
    assert "cuda_product_tf32" not in found["default"]


def test_the_convolution_of_the_study_is_in_both_layouts() -> None:
    made = wishes("study", placement_of("cuda -model=H100", None, None))
    found = [next(made) for _ in range(6)]
    settings = [labels["setting"] for labels, _, _ in found]
    assert settings == ["default", "baseline", "channels last"] * 2
    forms = {candidate.forms[-1] for _, _, candidate in found[2::3]}
    assert forms == {CHANNELS_LAST}


def line(part: str, task: str, setting: str, samples_s: list[float], **more: Any) -> dict[str, Any]:
    labels = {"network": "zoo:net", "batch": 1, "setting": setting, "rank": more.get("rank", 0)}
    return {"part": part, "task": task, "labels": labels, "samples_s": samples_s, **more}


def test_ratios_are_geometric_means_over_what_both_have() -> None:
    results = [
        {"part": "card", "card": {"name": "NVIDIA H100"}},
        line("defaults", "a", "default", [1.0, 2.0, 3.0]),
        line("defaults", "a", "baseline", [8.0]),
        line("defaults", "b", "default", [1.0]),
        line("defaults", "b", "baseline", [9.0]),
        line("defaults", "c", "default", [1.0]),
        line("defaults", "a", "tf32", [0.5]),
        {"part": "torch", "task": "a", "samples_s": [1.0], "anchor_s": [0.5], "tf32_s": [0.75]},
        {"part": "torch", "task": "b", "failure": "RemoteError"},
        line("tuning", "a", "", [2.0], wall_s=20.0, rank=0),
        line("tuning", "a", "", [0.5], wall_s=20.0, rank=1),
        line("tuning", "a", "", [0.1], wall_s=30.0, rank=2),
    ]
    said = "\n".join(report(results))
    assert "| zoo:net | 1 | 3 | 6.00 (2) | 0.50 (1) | 0.25 (1) | 1.50 (1) | 1.59 (3) |" in said
    assert "| zoo:net | 1 | 4.00 (1) | 2.00 (1) |" in said, "sixty seconds end before the third"


def test_codes_stand_beside_singles() -> None:
    """Default settings of both, and TVM's schedule, of each product."""
    placement = placement_of("cuda -model=H100", None, None)
    made = list(islice(wishes("codes", placement), 3))
    settings = {labels["setting"]: candidate for labels, _, candidate in made}
    assert list(settings) == ["codes", "baseline", "singles"]
    assert settings["codes"].implementation == "cuda_product_int8"
    results = [
        {"part": "card", "card": {"name": "NVIDIA H100"}},
        *(
            {"part": "codes", "labels": {"operator": name, "setting": setting}, "samples_s": [s]}
            for name, setting, s in (
                ("a", "codes", 1e-6), ("a", "singles", 2e-6), ("b", "codes", 1e-6),
                ("b", "singles", 8e-6), ("b", "baseline", 4e-5),
            )
        ),
    ]  # fmt: skip
    said = "\n".join(report(results))
    assert "| b | 1.0 | 8.0 | 40.0 | – | – |" in said
    assert "singles ÷ codes: 4.00 (2)" in said


def test_the_last_result_counts_beside_pytorch_on_the_same_card() -> None:
    results = [
        {"part": "card", "card": {"name": "one", "identity": "1"}},
        line("defaults", "a", "default", [4.0]),
        line("defaults", "b", "default", [1.0]),
        line("tuning", "a", "", [1.0], wall_s=20.0, rank=0),
        *({"part": "torch", "task": task, "samples_s": [4.0]} for task in "ab"),
        {"part": "card", "card": {"name": "two", "identity": "2"}},
        line("defaults", "a", "default", [2.0]),
        {"part": "torch", "task": "a", "samples_s": [18.0]},
    ]
    said = "\n".join(report(results))
    assert "| zoo:net | 1 | 2 | – | 6.00 (2) |" in said
    assert "| zoo:net | 1 | 1.00 (1) | 4.00 (1) |" in said


def test_energies_are_stored_with_times_of_their_card_or_by_themselves(tmp_path: Path) -> None:
    """Two cards; on the second one a kernel was metered that the first one timed, and another one
    that nobody timed."""
    task = workload([(2, 2)], step("relu", 0))

    def kernel(part: str, key: str, **more: Any) -> dict[str, Any]:
        chosen = Candidate(implementation="cuda_stream", settings=(("n", len(key)),), forms=())
        named = {"part": part, "key": key, "workload": task.text, "kernel_hash": key}
        return {**named, "candidate": to_builtins(chosen), "build_s": 1.0, **more}

    def power(key: str, power_w: float) -> dict[str, Any]:
        counted = {"method": "made up", "calls": 10, "call_s": 2e-6, "window_s": 0.6}
        return kernel("power", key, **counted, power_w=power_w, energy_j=2e-6 * power_w)

    cards = [to_builtins(replace(H100, identity=name)) for name in ("first", "second")]
    told = [
        {"part": "card", "card": cards[0], "at": 1.0},
        kernel("rows", "a", samples_s=[1e-6]),
        power("a", 200.0),
        {"part": "card", "card": cards[1], "at": 2.0},
        power("a", 220.0),
        power("bb", 300.0),
        kernel("power", "ccc", reason="the energy counter went on 2 times", call_s=2e-6),
    ]
    path, location = tmp_path / "results.jsonl", str(tmp_path / "card.db")
    path.write_text("".join(json.dumps(line) + "\n" for line in told), encoding="utf-8")
    assert store(path, location) == 3
    with open_store(location) as database:
        found = database.stored_measurements()
    assert len({one.instance for one in found}) == 2
    assert [
        (one.kernel_hash, one.latency_s, one.energy.power_w) for one in found if one.energy
    ] == [*[("a", 1e-6, 200.0), ("a", 2e-6, 220.0), ("bb", 2e-6, 300.0)]]


def test_energies_of_one_machine_ship() -> None:
    use = EnergyUse(method="made up", energy_j=1e-3, power_w=100.0)
    one, many = (
        measured(relu(), CHOSEN, 1e-6, energy=use, instance=name) for name in ("one", "many")
    )
    kept = of_one_meter([one, many, many])
    assert [each.energy for each in kept] == [None, use, use]
    assert [each.latency_s for each in kept] == [1e-6] * 3


def test_a_rival_computes_what_the_workload_says() -> None:
    torch = pytest.importorskip("torch")
    from card.torch_worker import computed

    shapes = [(1, 3, 9, 7), (5, 3, 3, 3), (5, 1, 1)]
    named = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    task = workload(shapes, step("conv2d", 0, 1, **named), step("add", 3, 2), step("relu", 4))
    x, w, b = (torch.randn(shape) for shape in shapes)
    product = torch.nn.functional.conv2d(x, w, padding=1)
    assert torch.allclose(computed(task)(x, w, b), torch.relu(product + b))
    assert torch.allclose(computed(task, anchor=True)(x, w), product)
