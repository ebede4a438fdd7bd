"""Random command lines: all verbs, their flags, values that fit and values that do not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from fuzzing.cases import Case, Ground, generator

_LONG = ("collect", "compare", "evaluate", "explain", "fit", "profile", "study", "tune", "optimize")
"""Verbs that may rightly work for longer than a case may take; they get Ctrl-C then."""
_MODELS = (
    *("op:relu[shape=1x8x4x4]", "op:dense[m=2,k=8,n=4]", "op:conv2d[c=4,h=6,k=3,out=4]"),
    *("network.onnx", "zoo:mlp", "artifact", "broken.onnx", "pipe", "folder", "missing.onnx"),
    *(
        "op:relu[]",
        "op:nothing[a=1]",
        "op:conv2d[c=0]",
        "op:conv2d[c=4,c=4]",
        "op:relu[shape=-1x2]",
    ),
    *(
        "op:relu[shape=99999999999999999999]",
        "zoo:",
        "zoo:nothing",
        "hf:nothing",
        "hf:bert[layers=x]",
    ),
    *("torch:os:system", "torch::", "https://127.0.0.1:1/x.onnx#sha256=00", "http://", "C:\\x", ""),
    *(
        "/dev/null",
        "/dev/zero",
        "/proc/self/mem",
        "é.onnx",
        "loop.onnx",
        "\udcff.onnx",
        "a\nb",
        "~",
    ),
)
_READ = (
    *("good.db", "log.jsonl", "log.csv", "network.onnx", "x.npy", "artifact", "missing", "folder"),
    *("pipe", "broken.onnx", "", "é", "loop.onnx", "n" * 300, "/dev/null", "/proc/version"),
)
_WRITTEN = (
    *("new.jsonl", "new.csv", "new/deep/file.parquet", "good.db", "log.jsonl", "network.onnx"),
    *("folder", "pipe", "", "é", "loop.onnx", "n" * 300, "network.onnx/x", "log.xlsx", "new"),
)
"""Never outside the folder of the case: the commands run with all rights."""
_WRITERS = (("db", "export"), ("db", "merge"))
_DEVICES = ("/dev/", "/proc/")
_FOLDERS = ("out", "new/deep", "folder", "network.onnx", "network.onnx/x", "", "é", "pipe")
_NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1.5",
    "x",
    "",
    "1e3",
    "99999999999999999999",
    "0x10",
    "٣",
    "nan",
)
_TEXTS = (
    "",
    "x",
    "é",
    "default",
    "best",
    "auto",
    "none",
    "latency",
    "all",
    "--",
    "-",
    "a=b",
    "%s",
    "\u202e",
)
_VALUES = {
    "--budget": (
        "0",
        "0",
        "0",
        "0",
        "1",
        "1s",
        "-1",
        "x",
        "",
        "0m",
        "1h30m",
        "nan",
        "1e99h",
        "2m3",
    ),
    "--shape": ("x=1,3,8,8", "x=", "=1", "x", "x=1,-1", "x=1,3,8,8,", "é=1", "x=99999999999999"),
    "--target": (
        "llvm",
        "llvm",
        "rpc:x",
        "cuda",
        "cuda -model=H100",
        "{}",
        "{",
        "nothing",
        "llvm -x",
    ),
    "--tracker": ("127.0.0.1:1", "x", ":", "127.0.0.1:99999", ""),
    "--level": ("op", "subgraph", "graph", "x"),
    "--tuner": ("default", "random", "xgb", "nothing", "", "gridsearch"),
    "--solver": ("auto", "exact", "nothing"),
    "--settings": ("default", "best", "shipped", "x", "2"),
    "--format": ("json", "json", "table", "csv", "md", "xml", ""),
    "--input": (
        "x.npy",
        "x=x.npy",
        "input=x.npy",
        "missing.npy",
        "network.onnx",
        "=",
        "x=",
        "pipe",
    ),
    "--peers": ("onnxruntime", "nothing", "", "onnxruntime,nothing", ",", "torch"),
    "--max-error": ("1e-4", "0", "-1", "nan", "inf", "x"),
    "--fail-below": ("0.1", "1e9", "nan", "x", "-1"),
    "--metric": ("latency", "power,energy", "memory", "x", ",", ""),
    "--kind": ("jsonl", "csv", "autotvm", "t4", "parquet", "x", "", "metaschedule"),
    "--split": ("configuration", "network", "device", "x"),
    "--family": ("dense", "conv2d", "all", "x", "gemm_power", ""),
    "--op": ("dense", "conv2d", "x", "", "op:relu[shape=2x2]"),
    "--dtype": ("float32", "int8", "x", ""),
    "--cache": ("cold", "warm", "x", ""),
    "--meter": ("none", "auto", "command:false", "command:echo nan", "nvml", "x"),
    "--failures-older-than": ("1h", "-1h", "x", "0s", "1e99h"),
    "--parameter": ("pad", "c", "x", ""),
    "--values": ("0,1", "0:3", "x", "", "1:1e9", "-1"),
    "--versus": ("op:relu[shape=1x8x4x4]", "op:dense[m=2,k=8,n=4]", "x", ""),
    "--seed": ("0", "7", "-1", "x", "99999999999999999999999"),
    "--threads": ("1", "1", "1", "2", "0", "-1", "x", "100000", "1,2"),
    "--batch": ("1", "2", "0", "-1", "x", "1000000000000"),
    "--samples": ("1", "2", "0", "-1", "x"),
    "--db": ("good.db", "good.db", "new.db", "network.onnx", "folder", "pipe", "missing/x.db", ""),
    "--out": _FOLDERS,
    "--save-problem": _WRITTEN,
    "--into": _WRITTEN,
}
_POSITIONS = {"MODEL": _MODELS, "NAME": _MODELS, "MODELS": _MODELS, "OPERATOR": _MODELS}
_POSITIONS |= {
    "FAMILIES": ("dense", "conv2d", "x", ""),
    "ARTIFACT": ("artifact", "artifact", *_READ),
}
_OFTEN = ("--threads", "--budget")
"""Flags that nearly every command line has, so that most of them end soon."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of a verb, or a place among its arguments; `switch` takes no value."""

    names: tuple[str, ...]
    switch: bool


@cache
def grammar() -> dict[tuple[str, ...], tuple[Flag, ...]]:
    """The flags of every verb, asked of the command line itself."""
    from cyclopts import App

    from tilewright.cli.main import build_app

    found: dict[tuple[str, ...], tuple[Flag, ...]] = {}

    def gather(app: App, path: tuple[str, ...]) -> None:
        for name in app:
            if name.startswith("-"):
                continue
            below = app[name]
            if below.default_command is None:
                gather(below, (*path, name))
                continue
            arguments = below.assemble_argument_collection()
            found[*path, name] = tuple(
                Flag(tuple(each.names), each.hint is bool)
                for each in arguments
                if each.names and each.names != ("*",)
            )

    gather(build_app(), ())
    return found


def command_case(ground: Ground, seed: int, folder: Path) -> Case:
    """One command line in a folder with good and bad files."""
    rng = generator("commands", seed)
    furnish(ground, folder)
    verb = rng.choice(sorted(grammar()))
    words = list(verb)
    for flag in grammar()[verb]:
        words += _given(flag, rng, writes=verb in _WRITERS)
    if not any(placement in word for word in words for placement in _DEVICES):
        words = _disturbed(words, rng)
    return Case(
        what=" ".join(words),
        commands=[tuple(words)],
        long=any(word in _LONG for word in words[:2]),
    )


def furnish(ground: Ground, folder: Path) -> None:
    """What command lines may name: good files, broken ones, a pipe, a loop of links."""
    shutil.copy(ground.database, folder / "good.db")
    shutil.copy(ground.network, folder / "network.onnx")
    shutil.copytree(ground.artifact, folder / "artifact")
    shutil.copy(ground.folder / "x.npy", folder / "x.npy")
    for name in ("log.jsonl", "log.csv"):
        shutil.copy(ground.folder / name, folder / name)
    (folder / "broken.onnx").write_bytes(ground.network.read_bytes()[:100])
    (folder / "folder").mkdir()
    (folder / "loop.onnx").symlink_to("loop.onnx")
    os.mkfifo(folder / "pipe")


def _given(flag: Flag, rng: Random, *, writes: bool) -> list[str]:
    """A flag with a value, or nothing; `writes` says that the verb's arguments are written."""
    name = flag.names[0]
    if not name.startswith("-"):
        values = _WRITTEN if writes else _POSITIONS.get(name, _READ)
        return [] if rng.random() > 0.95 else [_drawn(values, rng)]
    often = 0.9 if name in _OFTEN else 0.08
    if rng.random() > often:
        return []
    name = rng.choice(flag.names)
    if flag.switch:
        return [name]
    value = _drawn(_VALUES.get(name, rng.choice((_NUMBERS, _TEXTS, _READ))), rng)
    if rng.random() < 0.05:
        value = rng.choice((*_NUMBERS, *_TEXTS, "x" * 100_000))
    return [f"{name}={value}"] if rng.random() < 0.3 else [name, value]


def _drawn(values: Sequence[str], rng: Random) -> str:
    """One of the values; the first ones, which are good, half of the time."""
    return rng.choice(values[:3] if rng.random() < 0.5 else values)


def _disturbed(words: Sequence[str], rng: Random) -> list[str]:
    """Sometimes a word less, twice, or one that belongs to nothing."""
    changed = list(words)
    drawn = rng.random()
    place = rng.randrange(len(changed))
    if drawn < 0.06:
        del changed[place]
    elif drawn < 0.12:
        changed.insert(place, changed[rng.randrange(len(changed))])
    elif drawn < 0.18:
        changed.insert(rng.randrange(len(changed) + 1), rng.choice((*_TEXTS, "--nothing", "-h")))
    elif drawn < 0.22:
        rng.shuffle(changed)
    return changed
