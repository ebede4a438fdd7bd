"""The good things that are changed: made once per run by the commands themselves."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from fuzzing.cases import Ground, Words, generator
from fuzzing.seed_models import convolutional
from fuzzing.warm import Place, forked
from tilewright.cli.main import main

_LAST = "y.npy"
_LOGS = ("jsonl", "csv", "autotvm", "t4", "parquet")


def environment(ground: Ground, folder: Path) -> Mapping[str, str]:
    """What commands of a case find in their environment."""
    return {
        "TILEWRIGHT_DB": str(folder / "tilewright.db"),
        "TILEWRIGHT_CACHE": str(ground.cache),
        "TMPDIR": str(folder / "tmp"),
        "HOME": str(folder),
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
    }


def prepare(folder: Path) -> Ground:
    """A compiled network, its input and output, a database, logs, predictors in the cache; those
    of before where the folder has them."""
    ground = Ground(folder=folder)
    if (folder / _LAST).exists():
        return ground
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    onnx.save(convolutional(generator("ground", 0)), ground.network)
    values = np.random.default_rng(0).standard_normal((1, 3, 8, 8), dtype=np.float32)
    np.save(folder / "x.npy", values)
    shared: Words = ("--threads", "1", "--db", str(ground.database))
    commands: list[Words] = [
        ("optimize", "network.onnx", "--budget", "6", "--out", "artifact", *shared),
        ("predict", "network.onnx", *shared),
        ("run", "artifact", "--input", "x.npy", "--out", "outputs", "--threads", "1"),
        *(("db", "export", f"log.{kind}", "--kind", kind, *shared) for kind in _LOGS),
    ]
    place = Place(folder=folder, environment=environment(ground, folder), limit_s=300)
    for words in commands:
        ended = forked(lambda words=words: main(words), place)
        if ended.code != 0:
            raise RuntimeError(f"tilewright {' '.join(words)} failed: {ended.err}")
    (output,) = (folder / "outputs").glob("*.npy")
    shutil.move(output, folder / _LAST)
    return ground
