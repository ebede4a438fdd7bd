"""Runs cases, each in a folder of its own, and judges how they end."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fuzzing.artifact_cases import artifact_case
from fuzzing.cases import Case, Ground, Kind, Words
from fuzzing.command_cases import command_case
from fuzzing.database_cases import database_case
from fuzzing.ground import environment
from fuzzing.model_cases import model_case
from fuzzing.verdicts import Fault, faults_of
from fuzzing.warm import Ended, Place, cold, forked
from tilewright.cli.main import main

KINDS: dict[str, Kind] = {
    "models": model_case,
    "artifacts": artifact_case,
    "databases": database_case,
    "commands": command_case,
}
COUNTS = {"models": 2000, "artifacts": 500, "databases": 500, "commands": 300}
LIMIT_S = 20.0
"""What takes longer hangs."""
_LONG_S = 5.0
"""Verbs that may work for long get Ctrl-C after so much."""
_CHECK_S = 60.0
_FOUND = "found.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of a case; `cold` says that it was repeated in processes of their own."""

    kind: str
    seed: int
    what: str
    commands: Sequence[Words]
    codes: Sequence[int]
    seconds: float
    peak_bytes: int
    faults: Sequence[Fault]
    message: str = ""
    cold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs the cases of a `ground`."""

    ground: Ground

    def row(self, kind: str, seed: int) -> Row:
        """One case; what looks bad counts only if it is bad in processes of their own, too."""
        row = self.once(kind, seed)
        return self.once(kind, seed, warm=False) if row.faults else row

    def once(self, kind: str, seed: int, *, warm: bool = True, keep: Path | None = None) -> Row:
        """One case, run once; its folder stays where `keep` says."""
        folder = Path(tempfile.mkdtemp(prefix=f"{kind}-{seed}-", dir=self.ground.folder / "tmp"))
        try:
            return self._run(kind, seed, folder, warm=warm)
        finally:
            if keep is not None:
                shutil.copytree(folder, keep, symlinks=True, ignore=_pipes, dirs_exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, kind: str, seed: int, folder: Path, *, warm: bool) -> Row:
        (folder / "tmp").mkdir()
        shutil.copy(self.ground.database, folder / "tilewright.db")
        case = KINDS[kind](self.ground, seed, folder)
        if kind in ("databases", "artifacts"):
            shutil.copy(self.ground.network, folder / "network.onnx")
        place = Place(
            folder=folder,
            environment=environment(self.ground, folder),
            limit_s=_LONG_S if case.long else LIMIT_S,
            interrupt=case.long,
        )
        ended: list[Ended] = []
        faults: list[Fault] = []
        for words in case.commands:
            ended.append(
                forked(lambda words=words: main(words), place) if warm else cold(words, place)
            )
            faults.extend(faults_of(words, ended[-1], case.given_bytes))
        if not faults:
            faults.extend(_checked(case, ended, place, folder))
        return Row(
            kind=kind,
            seed=seed,
            what=case.what[:400],
            commands=[tuple(word[:200] for word in words) for words in case.commands],
            codes=[each.code for each in ended],
            seconds=round(sum(each.wall_s for each in ended), 3),
            peak_bytes=max(each.peak_bytes for each in ended),
            faults=faults,
            message=ended[0].err.strip()[-300:] if ended[0].code else "",
            cold=not warm,
        )


def _checked(case: Case, ended: Sequence[Ended], place: Place, folder: Path) -> list[Fault]:
    """What the case's own check finds, in a process of its own: it loads what is hostile."""

    def check() -> int:
        found = [asdict(fault) for fault in case.check(ended)]
        (folder / _FOUND).write_text(json.dumps(found))
        return 0

    wide = Place(folder=folder, environment=place.environment, limit_s=_CHECK_S)
    done = forked(check, wide)
    if done.code != 0:
        raised = (done.err.strip().splitlines() or ["no word"])[-1]
        code = "no end" if done.timed_out else str(done.code)
        return [Fault(group=f"the check failed: {code} {raised[:100]}", text=done.err[-2000:])]
    found: list[dict[str, Any]] = json.loads((folder / _FOUND).read_text())
    return [Fault(**each) for each in found]


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_fifo()]
